"""Servers from the JSON files of desktop hosts and editors: a file becomes the `ConnectSpec` of each server in it.

Read are `mcpServers` (Claude Desktop and Claude Code, Cursor, Windsurf, Cline, Gemini CLI and many more), `servers` (VS
Code) and `context_servers` (Zed). Nothing is started or connected here. What is wrong with a file is a ValueError that
names file, server and key, and never shows a value: commands, URLs, headers and environments hold secrets.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .log import logger
from .variables import Variables, env_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from .spec import ConnectSpec

    T = TypeVar("T")

    Source = str | os.PathLike[str] | Mapping[str, Any]

MAX_BYTES = 4 * 1024 * 1024

# The object that holds the servers.
TOP_KEYS = ("mcpServers", "servers", "context_servers")

# The spellings of `type`, in lower case and without what is between the words.
KINDS = {
    "stdio": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "ws": "websocket",
    "websocket": "websocket",
}

# What concerns only the host, such as what its model may do: left out without a word.
_HOSTS_OWN = frozenset(
    [
        "alwaysAllow",
        "alwaysLoad",
        "autoApprove",
        "description",
        "dev",
        "disabledTools",
        "displayName",
        "enabledTools",
        "excludeTools",
        "gallery",
        "icon",
        "id",
        "includeTools",
        "name",
        "sandbox",
        "sandboxEnabled",
        "settings",
        "source",
        "tools",
        "trust",
        "version",
        "watchPaths",
    ]
)

# A `timeout` below is in seconds, one from the second number on in milliseconds. Between them it is not known.
_SECONDS_BELOW, _MILLISECONDS_FROM = 1_000, 10_000


def load(source: Source, *, env: Mapping[str, str] | None = None, **options: Any) -> dict[str, ConnectSpec]:
    """The servers of a configuration file, or of its content as a mapping, by name. Nothing is connected.

    An entry has `command`, `args`, `env`, `envFile` and `cwd`, or `url` (`serverUrl`, `httpUrl`) and `headers`. `type`
    (also `transport`) is "stdio", "http", "streamable-http", "sse", "ws", or a spelling like these; without it, a URL
    is asked what it speaks. Entries with `"disabled": true` or `"enabled": false` are left out, and so are extensions
    of Zed. A `timeout` is seconds below 1,000 and milliseconds from 10,000 on, as the hosts that have it would never
    take it otherwise; between these it is ignored. Other keys are ignored; one that no host is known to write is
    logged. Comments and trailing commas are allowed.

    In all of these texts, `${NAME}` and `${env:NAME}` are the variables of `env` (default: of this process),
    `${NAME:-text}` has a default for one that is not set, and `${file:path}` is what a file says. `${workspaceFolder}`,
    `${workspaceFolderBasename}`, `${userHome}`, `${pathSeparator}` and `${/}` are as in VS Code and Cursor. A bare
    `$NAME` counts in files of a `.gemini` folder alone. For `${input:id}`, which VS Code asks a person for, `env` may
    have an "input:id". What is not defined is an error.

    A server of a file runs in the folder of its project, unless it says a `cwd`: that is the folder the file is in, or
    the one above a folder whose name begins with a dot, such as `.vscode`. Relative paths in `cwd`, `envFile` and
    `${file:...}` start there too, one in `command` where the server runs; in all of these `~` is the home directory.
    With a mapping it is the working directory of this process. Like any server started here it has a safe base of our
    environment, and what the entry adds.

    `options` are those of `Client.connect`, for every server whose connection takes them; what the file says itself
    comes first.

    Raises OSError when the file cannot be read, ValueError for what it says, TypeError for wrong `options`.
    """
    where = place(source)
    if isinstance(source, Mapping):
        root, project, bare = source, None, False
    else:
        root, project = _read(where), _project(where)
        bare = os.path.basename(os.path.dirname(os.path.abspath(where))) == ".gemini"
    variables = Variables(os.environ if env is None else env, project, bare=bare)
    specs = {}
    for name, entry in _entries(root, where).items():
        reader = _Entry(f"{where}: server {name!r}", entry, variables)
        if reader.wanted():
            specs[name] = reader.spec(options)
    return specs


def place(source: Source) -> str:
    """What errors call a configuration: never its content."""
    return "the given mapping" if isinstance(source, Mapping) else os.path.expanduser(os.fspath(source))


class _Entry:
    """One server of a file, read key by key."""

    __slots__ = ("_entry", "_place", "_seen", "_variables")

    def __init__(self, place: str, entry: object, variables: Variables) -> None:
        if not isinstance(entry, Mapping):
            raise ValueError(f"{place} is {_kind_of(entry)}, not an object")
        command = entry.get("command")
        if isinstance(command, Mapping):  # as Zed wrote it once
            entry = {**entry, **command, "command": command.get("path")}
        self._entry: Mapping[str, Any] = entry
        self._place = place
        self._seen = {"path"}
        self._variables = variables

    def wanted(self) -> bool:
        """Whether the entry is a server, and switched on."""
        off = self._switch("disabled", False) or not self._switch("enabled", True)
        extension = self._entry.get("source") == "extension" and "command" not in self._entry
        return not (off or extension)

    def spec(self, options: Mapping[str, Any]) -> ConnectSpec:
        from .options import OWNERS
        from .spec import ConnectSpec

        kind, target, said = self._target()
        timeout = self._timeout()
        if timeout is not None:
            said["timeout"] = timeout
        self._log_unknown()
        fitting = {name: value for name, value in options.items() if kind in OWNERS.get(name, (kind,))}
        if kind == "stdio" and self._variables.project is not None:
            fitting.setdefault("cwd", self._variables.project)
        try:
            return ConnectSpec(target, **{**fitting, **said})
        except ValueError as wrong:
            raise ValueError(f"{self._place}: {wrong}") from None

    def _target(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """The kind of connection, the target, and the options of that connection."""
        command, url, kind = self._text("command"), self._url(), self._kind()
        if kind is None:
            if (command is None) == (url is None):
                both = "neither a command nor" if url is None else "both a command and"
                raise self._wrong("type", f"it is not given, and there is {both} a URL")
            kind = "stdio" if command is not None else "http"
        if kind == "stdio":
            if not command:
                raise self._wrong("command", "there is none")
            return kind, (kind, os.path.expanduser(command), self._texts("args")), self._process()
        if not url:
            raise self._wrong("url", "there is none")
        headers = self._table("headers")
        return kind, (kind, url), {"headers": headers} if headers else {}

    def _kind(self) -> str | None:
        for key in ("type", "transport", "transportType"):
            text = self._text(key)
            if text is not None:
                kind = KINDS.get(re.sub(r"[^a-z]", "", text.lower()))
                if kind is None:
                    raise self._wrong(key, "it is none of stdio, http, streamable-http, sse, ws")
                return kind
        return None

    def _url(self) -> str | None:
        given = [key for key in ("url", "serverUrl", "httpUrl") if self._text(key) is not None]
        if len(given) > 1:
            raise self._wrong(given[1], f"there is {given[0]} too")
        return self._text(given[0]) if given else None

    def _process(self) -> dict[str, Any]:
        said: dict[str, Any] = {}
        cwd, file = self._text("cwd", expand=False), self._text("envFile", expand=False)
        if cwd:
            said["cwd"] = self._checked("cwd", lambda: self._variables.path(cwd))
        variables = self._checked("envFile", lambda: env_file(self._variables.path(file))) if file else {}
        variables |= self._table("env")
        if variables:
            said["env"] = variables
        return said

    def _timeout(self) -> float | None:
        """Seconds."""
        value = self._get("timeout")
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 < value < 1e12:
            raise self._wrong("timeout", "it is no positive number")
        if value < _SECONDS_BELOW:
            return float(value)
        if value >= _MILLISECONDS_FROM:
            return float(value) / 1000
        logger("config").warning(
            "%s: timeout is ignored: it may be seconds or milliseconds; pass timeout= in seconds", self._place
        )
        return None

    # -- reading values

    def _get(self, key: str) -> Any:
        self._seen.add(key)
        return self._entry.get(key)

    def _text(self, key: str, *, expand: bool = True) -> str | None:
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._wrong(key, f"it is {_kind_of(value)}, not a string")
        return self._checked(key, lambda: self._variables(value)) if expand else value

    def _texts(self, key: str) -> list[str]:
        values = self._get(key)
        if values is None:
            return []
        if not isinstance(values, list):
            raise self._wrong(key, f"it is {_kind_of(values)}, not a list of strings")
        return [self._item(f"{key}[{place}]", value) for place, value in enumerate(values)]

    def _table(self, key: str) -> dict[str, str]:
        """Names and texts. Null is how VS Code says that a variable is not to be set."""
        values = self._get(key)
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            raise self._wrong(key, f"it is {_kind_of(values)}, not an object")
        return {name: self._item(f"{key}.{name}", value) for name, value in values.items() if value is not None}

    def _item(self, key: str, value: object) -> str:
        if type(value) in (int, float):
            return json.dumps(value)
        if not isinstance(value, str):
            raise self._wrong(key, f"it is {_kind_of(value)}, not a string")
        return self._checked(key, lambda: self._variables(value))

    def _switch(self, key: str, default: bool) -> bool:
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, f"it is {_kind_of(value)}, not true or false")
        return value

    def _checked(self, key: str, make: Callable[[], T]) -> T:
        try:
            return make()
        except ValueError as wrong:
            raise self._wrong(key, str(wrong)) from None

    def _wrong(self, key: str, why: str) -> ValueError:
        return ValueError(f"{self._place}, key {key!r}: {why}")

    def _log_unknown(self) -> None:
        unknown = sorted(map(str, self._entry.keys() - self._seen - _HOSTS_OWN))
        if unknown:
            logger("config").warning("%s: not known, and ignored: %s", self._place, ", ".join(unknown))


def _entries(root: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The servers of a file, by name."""
    settings = root.get("mcp")  # where VS Code's own settings have them
    nested = settings if isinstance(settings, Mapping) and "servers" in settings else {}
    found = [(key, part[key]) for part in (root, nested) for key in TOP_KEYS if key in part]
    if len(found) != 1:
        keys = " or ".join(TOP_KEYS)
        raise ValueError(f"{place}: one object named {keys} has to hold the servers; there are {len(found)}")
    key, entries = found[0]
    if not isinstance(entries, Mapping):
        raise ValueError(f"{place}: {key!r} is {_kind_of(entries)}, not an object")
    return entries


def _project(path: str) -> str:
    """The folder a file speaks of."""
    folder = os.path.dirname(os.path.abspath(path))
    return os.path.dirname(folder) if os.path.basename(folder).startswith(".") else folder


# What has no end goes to the end of the text, which then is not looked through again for each beginning.
_STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_COMMENT = re.compile(rf"//[^\n]*+|/\*.*?\*/|(?P<kept>{_STRING}|/\*.*+)", re.DOTALL)
_COMMA = re.compile(rf"(?P<kept>{_STRING})|,(?=\s*+[\]}}])", re.DOTALL)


def _read(path: str) -> Mapping[str, Any]:
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path}: more than {MAX_BYTES} bytes are no configuration")
    try:
        root = json.loads(plain(data.decode("utf-8-sig")))
    except UnicodeDecodeError:
        wrong = "it is not UTF-8"
    except json.JSONDecodeError as error:
        wrong = f"no JSON at line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError):
        wrong = "it has numbers too long, or is nested too deep, to be read"
    else:
        if isinstance(root, dict):
            return root
        wrong = f"it holds {_kind_of(root)}, not an object"
    raise ValueError(f"{path}: {wrong}")  # not in a handler: what was caught has the whole text, secrets too


def plain(text: str) -> str:
    """JSON without the comments and trailing commas that VS Code, Zed and Gemini CLI allow; lines stay where they
    are.
    """
    text = _COMMENT.sub(lambda found: found["kept"] or re.sub(r"[^\n]", " ", found[0]), text)
    return _COMMA.sub(lambda found: found["kept"] or " ", text)


def _kind_of(value: object) -> str:
    """What a value of JSON is, without telling it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "a list"
