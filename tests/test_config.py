"""The configuration files of desktop hosts and editors, as each of them writes its own."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import config
from snodo_client.spec import ConnectSpec
from snodo_client.variables import Variables

ENV = {"TOKEN": "t0p-s3cret", "EMPTY": "", "HOST": "mcp.example.com"}


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def one(entry: dict[str, Any], env: dict[str, str] = ENV, **options: Any) -> ConnectSpec:
    """The spec of a single entry, given as a mapping."""
    (spec,) = config.load({"mcpServers": {"x": entry}}, env=env, **options).values()
    return spec


def refusal(entry: object, env: dict[str, str] = ENV, **options: Any) -> str:
    with pytest.raises(ValueError, match="server 'x'") as caught:
        config.load({"mcpServers": {"x": entry}}, env=env, **options)
    return str(caught.value)


# -- hosts


CLAUDE_DESKTOP = """
{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"],
      "env": {"LOG_LEVEL": "warn"}
    }
  }
}
"""
CLAUDE_CODE = """
{
  "mcpServers": {
    "local": {"type": "stdio", "command": "${CLAUDE_PROJECT_DIR:-.}/serve", "args": [], "env": {"KEY": "${TOKEN}"}},
    "remote": {
      "type": "http", "url": "https://${HOST:-localhost}/mcp", "timeout": 60000,
      "headers": {"Authorization": "Bearer ${TOKEN}"}
    },
    "named-as-in-the-specification": {"type": "streamable-http", "url": "https://a.example/mcp"},
    "old": {"type": "sse", "url": "https://b.example/sse"},
    "socket": {"type": "ws", "url": "wss://c.example/mcp"}
  }
}
"""
CURSOR = """
{
  "mcpServers": {
    "local": {
      "command": "${userHome}/bin/serve",
      "args": ["--root", "${workspaceFolder}"],
      "envFile": "${workspaceFolder}/.env"
    },
    "remote": {"url": "https://${env:HOST}/mcp", "headers": {"X-Key": "${env:TOKEN}"}}
  }
}
"""
VS_CODE = """
{
  // What is asked for once.
  "inputs": [
    {"type": "promptString", "id": "api-key", "description": "The key", "password": true},
  ],
  "servers": {
    "local": {
      "type": "stdio",
      "command": "uvx",
      "args": ["serve", "http://not.a/comment", "/* nor this */"],
      "env": {"KEY": "${input:api-key}", "PORT": 8080, "PROXY": null}, /* null: not set */
      "dev": {"watch": "src/**/*.py"},
    },
    "remote": {"type": "http", "url": "https://api.example.com/mcp", "gallery": true},
  },
}
"""
WINDSURF = """
{
  "mcpServers": {
    "remote": {
      "serverUrl": "https://api.example.com/mcp",
      "headers": {"Authorization": "Bearer ${file:token.txt}"},
      "disabledTools": ["rm"]
    },
    "off": {"command": "py", "args": ["${NOT_SET_ANYWHERE}"], "disabled": true}
  }
}
"""
CLINE = """
{
  "mcpServers": {
    "local": {"command": "node", "args": ["/srv/index.js"], "disabled": false, "autoApprove": [], "timeout": 60},
    "remote": {"type": "streamableHttp", "url": "https://a.example/mcp", "disabled": false, "autoApprove": ["x"]},
    "older": {"transportType": "sse", "url": "https://b.example/sse", "timeout": 30}
  }
}
"""
ZED = """
{
  // Settings of the editor are in the same file.
  "theme": "One Dark",
  "context_servers": {
    "local": {"source": "custom", "enabled": true, "command": "serve", "args": ["a"], "env": {}},
    "older": {"source": "custom", "command": {"path": "serve", "args": ["b"], "env": {"A": "1"}}},
    "remote": {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer x"}},
    "extension": {"source": "extension", "enabled": true, "settings": {"token": "x"}},
    "off": {"enabled": false, "command": "serve"}
  }
}
"""
GEMINI = """
{
  "mcpServers": {
    "local": {
      "command": "python", "args": ["-m", "serve", "costs $5"], "cwd": "./servers",
      "env": {"KEY": "$TOKEN", "OTHER": "a-${TOKEN}"}, "timeout": 30000, "trust": false, "includeTools": ["a"]
    },
    "remote": {"httpUrl": "https://a.example/mcp", "headers": {"X-Key": "$TOKEN"}, "timeout": 5000}
  }
}
"""


def test_claude_desktop(tmp_path: Path) -> None:
    file = write(tmp_path, "claude_desktop_config.json", CLAUDE_DESKTOP)
    assert config.load(file, env={}) == {
        "filesystem": ConnectSpec(
            ("stdio", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "/data"]),
            env={"LOG_LEVEL": "warn"},
            cwd=str(tmp_path),
        )
    }


def test_claude_code(tmp_path: Path) -> None:
    file = write(tmp_path, ".mcp.json", CLAUDE_CODE)
    assert config.load(file, env={"TOKEN": "x"}) == {
        "local": ConnectSpec(("stdio", "./serve", []), env={"KEY": "x"}, cwd=str(tmp_path)),
        "remote": ConnectSpec(("http", "https://localhost/mcp"), headers={"Authorization": "Bearer x"}, timeout=60.0),
        "named-as-in-the-specification": ConnectSpec(("http", "https://a.example/mcp")),
        "old": ConnectSpec(("sse", "https://b.example/sse")),
        "socket": ConnectSpec(("websocket", "wss://c.example/mcp")),
    }


def test_cursor(tmp_path: Path) -> None:
    file = write(tmp_path / "shop", ".cursor/mcp.json", CURSOR)
    write(tmp_path / "shop", ".env", "# of the shop\nexport KEY='a b'\nPLAIN=c d # not this\n\nHASH=a#b\n")
    assert config.load(file, env=ENV) == {
        "local": ConnectSpec(
            ("stdio", str(Path.home() / "bin/serve"), ["--root", str(tmp_path / "shop")]),
            env={"KEY": "a b", "PLAIN": "c d", "HASH": "a#b"},
            cwd=str(tmp_path / "shop"),
        ),
        "remote": ConnectSpec(("http", "https://mcp.example.com/mcp"), headers={"X-Key": "t0p-s3cret"}),
    }


def test_vs_code(tmp_path: Path) -> None:
    file = write(tmp_path, ".vscode/mcp.json", VS_CODE)
    assert config.load(file, env={"input:api-key": "x"}) == {
        "local": ConnectSpec(
            ("stdio", "uvx", ["serve", "http://not.a/comment", "/* nor this */"]),
            env={"KEY": "x", "PORT": "8080"},
            cwd=str(tmp_path),
        ),
        "remote": ConnectSpec(("http", "https://api.example.com/mcp")),
    }


def test_what_vs_code_would_ask_a_person_for_is_said_to_be_missing(tmp_path: Path) -> None:
    file = write(tmp_path, ".vscode/mcp.json", VS_CODE)
    with pytest.raises(ValueError, match="is not defined") as caught:
        config.load(file, env=ENV)
    assert str(file) in str(caught.value)
    assert "server 'local', key 'env.KEY'" in str(caught.value)
    assert "${input:api-key}" in str(caught.value)


def test_the_settings_of_vs_code_hold_them_one_level_below() -> None:
    settings = {"editor.fontSize": 12, "mcp": {"servers": {"x": {"url": "https://a.example/"}}}}
    assert config.load(settings) == {"x": ConnectSpec(("http", "https://a.example/"))}


def test_windsurf(tmp_path: Path) -> None:
    file = write(tmp_path, "mcp_config.json", WINDSURF)
    write(tmp_path, "token.txt", "from a file\n")
    assert config.load(file, env={}) == {
        "remote": ConnectSpec(("http", "https://api.example.com/mcp"), headers={"Authorization": "Bearer from a file"})
    }


def test_cline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path, "cline_mcp_settings.json", CLINE)
    assert config.load(file, env={}) == {
        "local": ConnectSpec(("stdio", "node", ["/srv/index.js"]), timeout=60.0, cwd=str(tmp_path)),
        "remote": ConnectSpec(("http", "https://a.example/mcp")),
        "older": ConnectSpec(("sse", "https://b.example/sse"), timeout=30.0),
    }
    assert caplog.records == []


def test_zed(tmp_path: Path) -> None:
    file = write(tmp_path / "config", "settings.json", ZED)
    cwd = str(tmp_path / "config")
    assert config.load(file, env={}) == {
        "local": ConnectSpec(("stdio", "serve", ["a"]), cwd=cwd),
        "older": ConnectSpec(("stdio", "serve", ["b"]), env={"A": "1"}, cwd=cwd),
        "remote": ConnectSpec(("http", "https://a.example/mcp"), headers={"Authorization": "Bearer x"}),
    }


def test_gemini_cli(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path, ".gemini/settings.json", GEMINI)
    assert config.load(file, env={"TOKEN": "x"}) == {
        "local": ConnectSpec(
            ("stdio", "python", ["-m", "serve", "costs $5"]),
            env={"KEY": "x", "OTHER": "a-x"},
            cwd=f"{tmp_path}/./servers",
            timeout=30.0,
        ),
        "remote": ConnectSpec(("http", "https://a.example/mcp"), headers={"X-Key": "x"}),
    }
    (said,) = caplog.messages
    assert "'remote'" in said
    assert "timeout" in said


# -- entries


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("http", ("http", "https://a.example/")),
        ("HTTP", ("http", "https://a.example/")),
        ("streamable-http", ("http", "https://a.example/")),
        ("streamable_http", ("http", "https://a.example/")),
        ("streamableHttp", ("http", "https://a.example/")),
        ("sse", ("sse", "https://a.example/")),
    ],
)
@pytest.mark.parametrize("key", ["type", "transport", "transportType"])
def test_the_spellings_of_the_connection(kind: str, spec: Any, key: str) -> None:
    assert one({key: kind, "url": "https://a.example/"}) == ConnectSpec(spec)


@pytest.mark.parametrize("kind", ["ws", "websocket"])
def test_websocket(kind: str) -> None:
    assert one({"type": kind, "url": "ws://a.example/"}) == ConnectSpec(("websocket", "ws://a.example/"))


def test_the_type_decides_between_a_command_and_a_url() -> None:
    entry = {"command": "serve", "url": "https://a.example/"}
    assert one({**entry, "type": "stdio"}) == ConnectSpec(("stdio", "serve", []))
    assert one({**entry, "type": "http"}) == ConnectSpec(("http", "https://a.example/"))


def test_a_tilde_is_the_home_directory_in_paths_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    spec = one({"command": "~/bin/serve", "args": ["~/data"], "cwd": "~/work"})
    assert spec == ConnectSpec(("stdio", "/home/me/bin/serve", ["~/data"]), cwd="/home/me/work")


def test_a_file_is_found_from_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, ".cursor/mcp.json", '{"mcpServers": {"x": {"url": "https://a.example/"}}}')
    assert list(config.load("~/.cursor/mcp.json")) == ["x"]


def test_a_mapping_has_no_folder() -> None:
    assert one({"command": "serve", "cwd": "here"}) == ConnectSpec(("stdio", "serve", []), cwd="here")
    assert one({"command": "serve"}) == ConnectSpec(("stdio", "serve", []))
    assert "only a file has one" in refusal({"command": "${workspaceFolder}/serve"})


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(1, 1.0), (60, 60.0), (0.5, 0.5), (999, 999.0), (10_000, 10.0), (600_000, 600.0)]
)
def test_a_timeout_whose_unit_is_plain(timeout: float, seconds: float) -> None:
    url = "https://a.example/"
    assert one({"url": url, "timeout": timeout}) == ConnectSpec(("http", url), timeout=seconds)


def test_a_timeout_whose_unit_is_not_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    url = "https://a.example/"
    assert one({"url": url, "timeout": 3600}, timeout=7) == ConnectSpec(("http", url), timeout=7)
    assert len(caplog.messages) == 1


def test_keys_that_nobody_knows_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    one({"url": "https://a.example/", "header": {"Authorization": "Bearer t0p-s3cret"}, "odd": 1, "trust": True})
    (said,) = caplog.messages
    assert "header, odd" in said
    assert "trust" not in said
    assert "s3cret" not in said


def test_options_go_to_the_servers_that_take_them_and_the_file_comes_first() -> None:
    root = {
        "mcpServers": {
            "local": {"command": "serve", "env": {"A": "1"}},
            "remote": {"url": "https://a.example/", "timeout": 5},
        }
    }
    specs = config.load(root, timeout=9, env=ENV, shutdown_timeout=1, headers={"X-A": "b"}, cwd="/")
    assert specs == {
        "local": ConnectSpec(("stdio", "serve", []), env={"A": "1"}, timeout=9, shutdown_timeout=1, cwd="/"),
        "remote": ConnectSpec(("http", "https://a.example/"), timeout=5.0, headers={"X-A": "b"}),
    }


def test_an_option_that_does_not_exist_is_the_callers_mistake() -> None:
    with pytest.raises(TypeError, match="did you mean timeout="):
        config.load({"mcpServers": {"x": {"command": "serve"}}}, timeuot=3)


# -- variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${TOKEN}", "t0p-s3cret"),
        ("${env:TOKEN}", "t0p-s3cret"),
        ("a ${HOST} b ${HOST}", "a mcp.example.com b mcp.example.com"),
        ("${EMPTY}|${EMPTY:-x}", "|"),
        ("${NOPE:-}", ""),
        ("${NOPE:-a:-b $c {d}", "a:-b $c {d"),
        ("${env:NOPE:-x}", "x"),
        ("${HOST:-x}", "mcp.example.com"),
        ("$TOKEN", "$TOKEN"),
        ("${}", "${}"),
        ("${1} ${ TOKEN } ${#TOKEN} ${", "${1} ${ TOKEN } ${#TOKEN} ${"),
        ("$${TOKEN}", "$t0p-s3cret"),
        ("a${/}b${pathSeparator}c", "a/b/c"),
    ],
)
def test_variables(text: str, expected: str) -> None:
    assert one({"command": "serve", "args": [text]}) == ConnectSpec(("stdio", "serve", [expected]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${NOPE}", "${NOPE} is not defined"),
        ("${env:NOPE}", "${env:NOPE} is not defined"),
        ("${NOPE-x}", "${NOPE-x} is not defined"),
        ("${config:editor.tab}", "${config:editor.tab} is not defined"),
        ("${NOPE:-${TOKEN}}", "another variable"),
        ("${file:/no/such/file}", "No such file"),
    ],
)
@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("command", lambda text: {"command": text}),
        ("args[1]", lambda text: {"command": "serve", "args": ["a", text]}),
        ("env.KEY", lambda text: {"command": "serve", "env": {"KEY": text}}),
        ("cwd", lambda text: {"command": "serve", "cwd": text}),
        ("url", lambda text: {"url": text}),
        ("headers.X-Key", lambda text: {"url": "https://a.example/", "headers": {"X-Key": text}}),
    ],
)
def test_a_variable_that_is_not_defined_is_named_with_its_key(text: str, says: str, key: str, entry: Any) -> None:
    said = refusal(entry(text))
    assert said.startswith(f"the given mapping: server 'x', key {key!r}: ")
    assert says in said


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("userHome", "pathSeparator", "workspaceFolder", "workspaceFolderBasename")
)
VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LITERALS = st.text(st.sampled_from("ab $}:-\\\"'~/"), max_size=6).filter(lambda text: not text.endswith("$"))


@given(st.data(), st.dictionaries(NAMES, VALUES, min_size=1))
def test_every_reference_is_replaced_once_and_nothing_else(data: st.DataObject, env: dict[str, str]) -> None:
    text, expected = "", ""
    for _ in range(data.draw(st.integers(1, 6))):
        literal = data.draw(LITERALS)
        name = data.draw(st.sampled_from(sorted(env)) | NAMES)
        default = data.draw(st.none() | st.text(st.sampled_from("ab:- $"), max_size=4))
        if name not in env and default is None:
            default = ""
        prefix = data.draw(st.sampled_from(["", "env:"]))
        text += literal + f"${{{prefix}{name}{'' if default is None else ':-' + default}}}"
        expected += literal + env.get(name, default or "")
    assert Variables(env)(text) == expected


@given(st.text(st.sampled_from("${}:-_/ envABC1"), max_size=40))
def test_any_text_is_read_or_refused_without_its_values(text: str) -> None:
    secret = "0123456789"
    variables = Variables(dict.fromkeys(("A", "B", "C", "AB", "e", "n"), secret))
    said = ""
    try:
        variables(text)
    except ValueError as error:
        said = str(error)
    assert secret not in said


@pytest.mark.parametrize("text", ["${a:" * 20_000, "${a:" + ":-" * 20_000, "${a::-" * 20_000, "${a" * 20_000])
def test_a_long_text_is_read_in_time(text: str) -> None:
    begun = time.monotonic()
    assert Variables({})(text) == text
    assert time.monotonic() - begun < 2


# -- JSON with comments

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_plain_json_stays_what_it_is(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert config.plain(text) == text


@given(JSON, st.data())
def test_comments_and_trailing_commas_change_nothing(value: Any, data: st.DataObject) -> None:
    between: st.SearchStrategy[str] = st.sampled_from(
        ["", " ", '// a, ] " }\n', '/* " , } */', "/**/", "\n/* a\n * b */\n"]
    )

    def spell(value: Any) -> str:
        def gap() -> str:
            return data.draw(between)

        if isinstance(value, list):
            items = [gap() + spell(item) + gap() for item in value]
            opened, closed = "[", "]"
        elif isinstance(value, dict):
            items = [gap() + json.dumps(key) + gap() + ":" + gap() + spell(item) + gap() for key, item in value.items()]
            opened, closed = "{", "}"
        else:
            return json.dumps(value)
        comma = data.draw(st.sampled_from(["", ","])) + gap() if items else ""
        return opened + ",".join(items) + comma + gap() + closed

    text = spell(value)
    assert json.loads(config.plain(text)) == value
    assert config.plain(text).count("\n") == text.count("\n")


# -- what is wrong


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON at line 1, column 1"),
        ('{\n  "mcpServers": {"a" "b"}}', "no JSON at line 2, column 22"),
        ("{} {}", "no JSON at line 1, column 4"),
        ('{"a": 1 /* never closed', "no JSON at line 1, column 9"),
        ("[]", "it holds a list, not an object"),
        ("{}", "mcpServers or servers or context_servers has to hold the servers; there are 0"),
        ('{"mcpServers": {}, "servers": {}}', "there are 2"),
        ('{"mcpServers": []}', "'mcpServers' is a list, not an object"),
        ('{"mcpServers": {"x": "npx"}}', "server 'x' is a string, not an object"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str, says: str) -> None:
    file = write(tmp_path, "mcp.json", text)
    with pytest.raises(ValueError, match=r"mcp\.json") as caught:
        config.load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert says in str(caught.value)
    assert caught.value.__context__ is None, "it would hold the text of the file"


def test_a_file_that_is_not_there_not_text_or_endless(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        config.load(tmp_path / "nowhere.json")
    latin = tmp_path / "latin.json"
    latin.write_bytes('{"mcpServers": {"é": 1}}'.encode("latin-1"))
    with pytest.raises(ValueError, match="it is not UTF-8"):
        config.load(latin)
    with pytest.raises(ValueError, match="no configuration"):
        config.load("/dev/zero")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps({"mcpServers": {}}).encode())
    assert config.load(file) == {}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ([], "is a list, not an object"),
        ({}, "key 'type': it is not given, and there is neither a command nor a URL"),
        ({"command": "a", "url": "https://a.example/"}, "both a command and a URL"),
        ({"type": "stdio", "url": "https://a.example/"}, "key 'command': there is none"),
        ({"type": "http", "command": "serve"}, "key 'url': there is none"),
        ({"command": ""}, "key 'command': there is none"),
        ({"command": ["npx", "serve"]}, "key 'command': it is a list, not a string"),
        ({"command": "npx", "args": "serve"}, "key 'args': it is a string, not a list of strings"),
        ({"command": "npx", "args": ["a", None]}, "key 'args[1]': it is null, not a string"),
        ({"command": "npx", "env": ["A=1"]}, "key 'env': it is a list, not an object"),
        ({"command": "npx", "env": {"A": True}}, "key 'env.A': it is true or false, not a string"),
        ({"command": "npx", "env": {"A=B": "1"}}, "env cannot have a variable named 'A=B'"),
        ({"command": "npx", "envFile": "/no/such/file"}, "key 'envFile': /no/such/file cannot be read"),
        ({"command": "npx", "disabled": "no"}, "key 'disabled': it is a string, not true or false"),
        ({"type": "pigeon", "url": "https://a.example/"}, "key 'type': it is none of stdio, http"),
        ({"type": 1, "url": "https://a.example/"}, "key 'type': it is a number, not a string"),
        ({"transport": {"type": "http"}, "url": "https://a.example/"}, "key 'transport': it is an object"),
        ({"url": "https://a.example/", "httpUrl": "https://a.example/"}, "key 'httpUrl': there is url too"),
        ({"url": "a.example"}, "the URL of an endpoint is http://host/path"),
        ({"url": "https://a.example/", "headers": ["A: b"]}, "key 'headers': it is a list, not an object"),
        ({"url": "https://a.example/", "headers": {"A b": "c"}}, "server 'x': "),
        ({"url": "https://a.example/", "timeout": 0}, "key 'timeout': it is no positive number"),
        ({"url": "https://a.example/", "timeout": "30s"}, "key 'timeout': it is no positive number"),
        ({"url": "https://a.example/", "timeout": True}, "key 'timeout': it is no positive number"),
        ({"url": "https://a.example/", "timeout": float("nan")}, "key 'timeout': it is no positive number"),
    ],
)
def test_an_entry_that_is_wrong(entry: Any, says: str) -> None:
    assert says in refusal(entry)


SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "npx", "args": [f"--key={SECRET}"], "env": {"A": [SECRET]}},
        {"command": "npx", "env": {"A": "${NOPE}", "B": SECRET}},
        {"command": "npx", "env": {"A": f"{SECRET}\0"}},
        {"command": f"npx {SECRET}\0"},
        {"url": f"https://me:{SECRET}@a.example/"},
        {"url": f"https://a.example/?key={SECRET} "},
        {"url": f"{SECRET}"},
        {"type": "ws", "url": f"https://a.example/?key={SECRET}#"},
        {"type": SECRET, "url": "https://a.example/"},
        {"url": "https://a.example/", "headers": {"A": f"{SECRET}\n"}},
        {"url": "https://a.example/", "headers": {"A": f"{SECRET}", "a": "b"}},
        {"command": "npx", "env": {"KEY": f"${{NOPE:-${{{SECRET}}}}}"}},
    ],
)
def test_what_is_wrong_is_told_without_values(entry: Any) -> None:
    assert SECRET not in refusal(entry)


def test_a_line_of_an_env_file_that_is_wrong_is_told_without_it(tmp_path: Path) -> None:
    write(tmp_path, ".env", f"A=1\n{SECRET}\n")
    said = refusal({"command": "npx", "envFile": str(tmp_path / ".env")})
    assert "line 2" in said
    assert SECRET not in said


def test_specs_do_not_show_what_they_hold(tmp_path: Path) -> None:
    spec = one({"url": f"https://a.example/?key={SECRET}", "headers": {"A": SECRET}})
    assert SECRET not in repr(spec)
    spec = one({"command": "npx", "env": {"A": SECRET}, "args": [SECRET]})
    assert SECRET not in repr(spec)
