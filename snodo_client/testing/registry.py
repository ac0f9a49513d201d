"""What a server offers: the decorators that register tools, resources, prompts and completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from snodo_client.testing.entries import Completion, Entry, Prompt, Template, Tool

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")


class Registry:
    """The registered entries by name or URI; they may be edited at any time, and lists show the present state."""

    def __init__(self, capabilities: dict[str, Any] | None) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Entry] = {}
        self.templates: dict[str, Template] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str], Completion] = {}
        self._capabilities = capabilities

    @property
    def capabilities(self) -> dict[str, Any]:
        """What `server/discover` declares."""
        if self._capabilities is not None:
            return self._capabilities
        told: dict[str, Any] = {"logging": {}}
        if self.tools:
            told["tools"] = {"listChanged": True}
        if self.resources or self.templates:
            told["resources"] = {"listChanged": True, "subscribe": True}
        if self.prompts:
            told["prompts"] = {"listChanged": True}
        if self.completions:
            told["completions"] = {}
        return told

    @overload
    def tool(self, function: Function, /) -> Function: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        annotations: dict[str, Any] | None = None,
        task_support: Literal["optional", "required"] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Callable[[Function], Function]: ...
    def tool(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        annotations: dict[str, Any] | None = None,
        task_support: Literal["optional", "required"] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Register a tool: `@server.tool`, or `@server.tool(name=..., output_schema=...)`.

        Type hints make the input schema, and the output schema where the return type is a number, bool, list or dict;
        the docstring is the description. Arguments that do not fit give an `isError` result and the function is not
        called. See `content.tool_result` for what it may return, and raise `ToolError` to fail. `task_support` is for
        clients of 2025-11-25: they may, or have to, run the tool as a task.
        """

        def register(handler: Function) -> Function:
            tool = Tool(
                handler,
                input_schema,
                output_schema,
                task_support,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                _meta=meta,
            )
            self.tools[tool.definition["name"]] = tool
            return handler

        return register if function is None else register(function)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Callable[[Function], Function]:
        """Register a resource; the function gives a string, bytes, or contents as they are sent."""

        def register(handler: Function) -> Function:
            self.resources[uri] = Entry(
                handler, uri=uri, name=name, title=title, description=description, mimeType=mime_type, _meta=meta
            )
            return handler

        return register

    def resource_template(
        self,
        template: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Callable[[Function], Function]:
        """Register a URI template with plain `{name}` parts; the function takes the parts as strings."""

        def register(handler: Function) -> Function:
            self.templates[template] = Template(
                handler, template, name=name, title=title, description=description, mimeType=mime_type, _meta=meta
            )
            return handler

        return register

    @overload
    def prompt(self, function: Function, /) -> Function: ...
    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Callable[[Function], Function]: ...
    def prompt(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Register a prompt; its parameters are the arguments. It gives text, a block, messages, or a list."""

        def register(handler: Function) -> Function:
            prompt = Prompt(handler, name=name, title=title, description=description, _meta=meta)
            self.prompts[prompt.definition["name"]] = prompt
            return handler

        return register if function is None else register(function)

    def completion(self, target: str, argument: str) -> Callable[[Function], Function]:
        """Complete an argument of a prompt (`target` is its name) or of a resource template (its URI template).

        The function takes the text so far, and as a second parameter, where it has one, the arguments already chosen;
        it gives a list of strings, of which the first 100 are sent.
        """

        def register(handler: Function) -> Function:
            self.completions[target, argument] = Completion(handler)
            return handler

        return register
