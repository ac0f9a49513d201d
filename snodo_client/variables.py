"""Variables in the texts of configuration files: `${NAME}`, and what hosts and editors write besides; `.env` files.

What is wrong is a ValueError that names the variable or the file, never a value: this is where secrets come from.
"""

from __future__ import annotations

import os
import re
from stat import S_ISREG
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CHARACTERS = 1024 * 1024  # of a file
MAX_EXPANDED = 16 * 1024 * 1024  # characters, of all that variables put into the texts of a configuration


class Variables:
    """Replaces the references to variables in a text, once: what a variable holds is not read again."""

    __slots__ = ("_env", "_left", "_pattern", "_predefined", "project")

    def __init__(self, env: Mapping[str, str], project: str | None = None, *, bare: bool = False) -> None:
        self._env = env
        self._left = MAX_EXPANDED
        self.project = project
        self._pattern = _BRACED_OR_BARE if bare else _BRACED
        self._predefined = {"userHome": os.path.expanduser("~"), "pathSeparator": os.sep, "/": os.sep}
        if project is not None:
            self._predefined["workspaceFolder"] = project
            self._predefined["workspaceFolderBasename"] = os.path.basename(project)

    def __call__(self, text: str) -> str:
        """Raises ValueError, naming the variable, for one that is not defined and has no default."""
        return self._pattern.sub(self._value, text)

    def path(self, text: str) -> str:
        """The path a text names, from the project's folder and with `~`."""
        return os.path.join(self.project or "", os.path.expanduser(self(text)))

    def _value(self, found: re.Match[str]) -> str:
        name, given, default = (found["body"] or found["bare"]).partition(":-")
        closed = found["bare"] or found[0].endswith("}")
        if not closed or not _NAME.fullmatch(name):
            return found[0]
        if "${" in default:
            raise ValueError(f"the default of ${{{name}}} has another variable in it, which is not read")
        value = self._lookup(name)
        if value is None and not given:
            raise ValueError(f"${{{name}}} is not defined, and has no default{_hint(name)}")
        value = default if value is None else value
        self._left -= len(value)
        if self._left < 0:
            raise ValueError(f"with ${{{name}}} the variables put more than {MAX_EXPANDED} characters into the texts")
        return value

    def _lookup(self, name: str) -> str | None:
        if name.startswith("env:"):
            return self._env.get(name[4:])
        if name.startswith("file:"):
            return _content(os.path.join(self.project or "", os.path.expanduser(name[5:])), name)
        return self._predefined.get(name, self._env.get(name))


# A name, or a kind and what it is of; "/" is VS Code's path separator. Anything else in braces is a shell's, or a text.
_NAME = re.compile(r"/|[A-Za-z_][\w.-]*(?::.*)?", re.ASCII | re.DOTALL)
# Without a closing brace it is the rest of the text, which then is not looked through again for each opening one.
_BODY = r"\$\{(?P<body>[A-Za-z_/][^}]*+)(?:\}|\Z)"
_BRACED = re.compile(_BODY + r"|(?P<bare>(?!))")
_BRACED_OR_BARE = re.compile(_BODY + r"|\$(?P<bare>[A-Za-z_]\w*)", re.ASCII)


def _hint(name: str) -> str:
    if name.startswith("input:"):
        return f": its host asks a person for it; here pass it as env={{**os.environ, {name!r}: ...}}"
    return ": only a file has one" if name.startswith("workspaceFolder") else ""


def env_file(path: str) -> dict[str, str]:
    """The variables of a `.env` file: `NAME=value` lines, with `export`, quotes and comments."""
    variables = {}
    for number, line in enumerate(_content(path, path).splitlines(), 1):
        line = line.strip().removeprefix("export ").lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name, value = name.rstrip(), value.strip()
        if not equals or not name:
            raise ValueError(f"line {number} of {path} is no NAME=value")
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\"`"
        variables[name] = value[1:-1] if quoted else value.partition(" #")[0].rstrip()
    return variables


def _content(path: str, name: str) -> str:
    try:
        if not S_ISREG(os.stat(path).st_mode):  # a pipe or a terminal may have no end
            raise ValueError(f"{name} is no file")
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{name} cannot be read: {why}") from None
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{name} is too large")
    return text.strip()
