"""The lines between the rooms of the package, and the promises its papers make.

These tests read the source instead of running it, apart from the one about what an import costs.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import snodo_client
from snodo_client.version import __version__

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "snodo_client"

# `protocol` is functions over values: with none of these it needs no thread, clock, socket or file to be tested.
IMPURE = {"asyncio", "logging", "os", "queue", "requests", "selectors", "socket", "subprocess", "threading", "time"}

# Each of these costs more than the whole package may, and most programs need few of them.
HEAVY = {
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "importlib.metadata",
    "inspect",
    "jsonschema",
    "jwt",
    "logging",
    "requests",
    "sseclient",
    "subprocess",
    "urllib.parse",
    "urllib3",
    "websockets",
}

# Places and people that a reader of this project has never heard of. Written so that this file does not match itself.
OUTSIDE = re.compile(
    r"/wor[k]/|DESIG[N]\.md|\bthe see[d]s?\b|\bthe issu[e]\b|pypi\.or[g]|pythonhosted\.or[g]|npmjs\.(?:or[g]|co[m])"
    r"|(?<!user-)(?<!user_)\b(?:sub)?agen[t]s?\b",
    re.IGNORECASE,
)
TEXT = {".cfg", ".css", ".html", ".json", ".md", ".mjs", ".py", ".sh", ".toml", ".txt", ".yml"}


def modules(*folders: str) -> dict[str, Path]:
    """Dotted name -> file, of the whole package or of the folders given; a folder that does not exist has none."""
    roots = [PACKAGE / folder for folder in folders] or [PACKAGE]
    files = (file for root in roots for file in root.rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def imports(name: str, file: Path) -> Iterator[str]:
    """Every dotted name that the module imports, anywhere in it, also for type checkers only."""
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) + 1 - node.level]
                base = ".".join([*above, *filter(None, [base])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, *rooms: str) -> bool:
    """Whether a dotted name is one of these rooms of the package, or something in one."""
    return any(f"{name}.".startswith(f"snodo_client.{room}.") for room in rooms)


def offences(wrong: str, *folders: str) -> list[str]:
    """Imports in the folders whose target matches the expression, as lines to read."""
    rule = re.compile(wrong)
    found = {(name, target) for name, file in modules(*folders).items() for target in imports(name, file)}
    return sorted(f"{name} imports {target}" for name, target in found if rule.match(f"{target}."))


def test_protocol_imports_only_values_and_the_standard_library() -> None:
    top_level = {
        (name, target.partition(".")[0]) for name, file in modules("protocol").items() for target in imports(name, file)
    }
    allowed = sys.stdlib_module_names - IMPURE | {"snodo_client"}
    assert sorted(f"{name} imports {target}" for name, target in top_level if target not in allowed) == []
    assert offences(r"snodo_client\.(?!protocol\.|outcome\.|reasons\.)\w", "protocol") == []


def test_schema_knows_values_only() -> None:
    assert offences(r"snodo_client\.(?!schema\.|outcome\.|reasons\.|protocol\.)\w", "schema") == []
    assert offences("|".join(IMPURE), "schema") == []


def test_engine_knows_of_transports_only_what_one_is() -> None:
    assert offences(r"snodo_client\.transports\.(?!base\.)\w", "engine") == []


def test_transports_know_neither_the_session_nor_the_client() -> None:
    assert offences(r"snodo_client\.(engine\.session|client|clients)\.", "transports") == []


def test_authorization_is_known_to_its_callers_only() -> None:
    assert offences(r"snodo_client\.(engine\.session|client|clients|options|targets)\.", "auth") == []
    known = offences(r"snodo_client\.auth\.", "engine", "protocol", "schema", "transports")
    for_type_checkers = "snodo_client.transports.http_options imports snodo_client.auth.oauth"
    assert known == [for_type_checkers, f"{for_type_checkers}.OAuth"]


def test_only_the_outermost_modules_import_the_client() -> None:
    allowed = {"snodo_client", "snodo_client.clients", "snodo_client.config", "snodo_client.spec"}
    offenders = [
        line
        for line in offences(r"snodo_client\.(client|clients)\.")
        if (name := line.partition(" ")[0]) not in allowed and not within(name, "testing", "cli")
    ]
    assert offenders == []


def test_the_rules_above_can_be_broken(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("import os.path\nfrom . import here\nfrom ..engine.session import Session\nfrom .. import client\n")
    found = set(imports("snodo_client.transports.module", file))
    assert {"os.path", "snodo_client.transports.here", "snodo_client.engine.session", "snodo_client.client"} <= found


def test_every_folder_is_a_package_and_every_module_says_what_it_holds() -> None:
    files = modules()
    folders = {file.parent for file in files.values()}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []
    assert sorted(name for name, file in files.items() if not ast.get_docstring(ast.parse(file.read_text()))) == []


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys; before = set(sys.modules); import snodo_client; print(*(set(sys.modules) - before), sep='\\n')"
    )
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(printed.stdout.split())
    assert "snodo_client.client" in loaded
    assert loaded & HEAVY == set()


def test_public_names_are_the_documented_ones() -> None:
    section = (ROOT / "README.md").read_text().partition("## Public names\n")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert snodo_client.__all__ == sorted(documented)
    assert [name for name in snodo_client.__all__ if not hasattr(snodo_client, name)] == []


def test_the_changelog_tells_of_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == __version__


def test_the_project_speaks_of_itself_alone() -> None:
    skipped = {"build", "dist", "site"}
    files = [
        file
        for top in ROOT.iterdir()
        if top.name not in skipped and (not top.name.startswith(".") or top.name in {".ci", ".gitignore"})
        for file in ([top] if top.is_file() else top.rglob("*"))
        if file.is_file() and (file.suffix in TEXT or file.name in {"run", "LICENSE", ".gitignore"})
    ]
    assert ROOT / "README.md" in files
    hits = [
        f"{file.relative_to(ROOT)}:{number}: {match.group()}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (match := OUTSIDE.search(line))
    ]
    assert hits == []
