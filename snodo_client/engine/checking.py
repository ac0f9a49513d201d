"""Whether the results of tools, and the arguments of calls, follow the schemas in the definitions of the tools.

A schema that cannot be checked safely is not checked: the tool stays usable, and the log says why, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log import logger
from ..outcome import McpError, Ok, local_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal

    from ..outcome import Outcome
    from ..schema.compiled import Compiled, Problem
    from .call import Call
    from .catalog import Catalog
    from .connection import Connection
    from .deadline import Deadline

    Validate = Literal["structured", "off", "all"]
    Definition = Mapping[str, Any]

MISSING = object()


class Checking:
    """`validate`: "structured" checks `structuredContent` where it is sent; "all" also that it is sent, and arguments.
    `relist` learns the definitions anew, for a result that does not fit may have been made by a newer one.
    """

    def __init__(
        self, validate: Validate, catalog: Catalog, connection: Connection, relist: Callable[[Deadline], object]
    ) -> None:
        self._validate = validate
        self._catalog = catalog
        self._connection = connection
        self._relist = relist
        self._said: set[tuple[str, str]] = set()

    def arguments(self, call: Call, definition: Definition | None) -> McpError | None:
        """The error of arguments that do not follow the tool's `inputSchema`, where that is known and wanted."""
        if self._validate != "all":
            return None
        name = call.request.params.get("name", "")
        schema = self._schema(name, "inputSchema", definition)
        problem = self._problem(name, "inputSchema", schema, call.request.params.get("arguments", {}))
        if problem is None:
            return None
        text = f"the arguments for the tool {name!r} do not follow its inputSchema: {problem}"
        data = {"method": "tools/call", "path": problem.path, "rule": problem.rule}
        return local_error("invalid_arguments", text, data=data)

    def result(self, call: Call, outcome: Outcome, definition: Definition | None) -> Outcome:
        """The outcome of a tool call, or the error of a result that does not follow the tool's `outputSchema`. What a
        tool reports as its own failure follows none.
        """
        if self._validate == "off" or not isinstance(outcome, Ok):
            return outcome
        value = outcome.value.get("structuredContent", MISSING)
        if (value is MISSING and self._validate != "all") or outcome.is_error or "task" in call.request.params:
            return outcome
        name = call.request.params.get("name", "")
        schema = self._schema(name, "outputSchema", definition)
        problem = self._found(name, schema, value)
        if problem is not None and definition is None:  # what is remembered of the tool may be old
            self._relist(call.deadline)
            newer = self._schema(name, "outputSchema", None)
            if newer != schema:
                problem = self._found(name, newer, value)
        if problem is None:
            return outcome
        text = f"the result of the tool {name!r} of {self._connection.name} does not follow its outputSchema: {problem}"
        data = {"tool": name, "path": problem.path, "rule": problem.rule, "result": outcome.value}
        return local_error("invalid_structured_content", text, data=data)

    # -- inside

    def _schema(self, name: str, member: str, definition: Definition | None) -> object:
        """The schema, None where there is none."""
        known = self._catalog.definition(name) if definition is None else definition
        return None if known is None else known.get(member)

    def _found(self, name: str, schema: object, value: object) -> Problem | None:
        if schema is None or value is not MISSING:
            return self._problem(name, "outputSchema", schema, value)
        from ..schema.compiled import Problem

        return Problem("", "structuredContent", "it has no structuredContent")

    def _problem(self, name: str, member: str, schema: object, value: object) -> Problem | None:
        """What is wrong with a value. None also when that cannot be told."""
        compiled = None if schema is None else self._checker(name, member, schema)
        if compiled is None:
            return None
        problem = compiled.problem(value)
        if not isinstance(problem, str):
            return problem
        self._unchecked(name, member, problem)  # this value; the next one may be smaller
        return None

    def _checker(self, name: str, member: str, schema: object) -> Compiled | None:
        kept = self._catalog.checker(name, member, schema)
        if kept is not None:
            return kept[1]
        try:
            from ..schema.compiled import compile_schema
        except (ImportError, OSError) as error:  # of what is imported so late, nothing may take the result away
            self._unchecked(name, member, f"jsonschema cannot be imported ({type(error).__name__})")
            return None
        made = compile_schema(schema)
        compiled = None if isinstance(made, str) else made
        if isinstance(made, str):
            self._unchecked(name, member, made)
        self._catalog.keep(name, member, schema, compiled)
        return compiled

    def _unchecked(self, name: str, member: str, why: str) -> None:
        shown = (name[:128], why)
        if shown not in self._said and len(self._said) < 1000:
            self._said.add(shown)
            text = "%s: the %s of the tool %r is not checked: %s"
            logger("schema").warning(text, self._connection.name, member, *shown)
