"""Nothing secret gets anywhere but where it belongs: to the server it is for, and into the store.

Real flows against servers that repeat whatever they were sent, in every place and spelling they can, with secrets of
which no part may turn up in what a program can show: errors with all Python keeps of them, logs of every library,
warnings, events, stdout and stderr, the repr of what there is. The page to sign in at is shown on stderr on purpose: it
holds `state` and the challenge, not the verifier. `SignIn.state`, `Ok.value` and what a server sends as JSON-RPC are
handed to the program as they are.
"""

from __future__ import annotations

import html
import json
import os
import shlex
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest

from snodo_client import Client
from snodo_client.auth import (
    EnterpriseManaged,
    FileTokenStore,
    KeyringTokenStore,
    MemoryTokenStore,
    OAuth,
    SignIn,
    WorkloadIdentity,
)
from support import canaries as c
from support.canaries import Canaries, EchoWorld, listening, shown
from support.oauth_server import Fault

ERAS = ("2026-07-28", "2025-11-25")
BACK = "https://app.example/callback"
SENT = ("client_secret", "code", "code_verifier", "refresh_token", "assertion", "client_assertion", "subject_token")


@pytest.fixture
def world() -> Iterator[EchoWorld]:
    world = EchoWorld(Canaries())
    world.tool_scopes = {"admin-tool": "admin"}
    with world:
        yield world


class Program:
    """What a program gets to see of the library, as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def sees(self, *values: object) -> None:
        self.lines += map(shown, values)

    def does(self, act: Callable[[], Any]) -> Any:
        """What comes of it, an exception too."""
        try:
            result = act()
        except Exception as raised:
            result = raised
        self.sees(result)
        return result

    def event(self, name: str, fields: dict[str, Any]) -> None:
        self.lines.append(f"{name} {fields}")


@pytest.fixture
def program(world: EchoWorld, capfd: pytest.CaptureFixture[str]) -> Iterator[Program]:
    """Looked through at the end of the test."""
    program = Program()
    with listening() as heard:
        yield program
    captured = capfd.readouterr()
    assert captured.err == captured.out == ""
    assert world.canaries.found("\n".join([*program.lines, *heard])) == []
    stays_where_it_belongs(world)


def stays_where_it_belongs(world: EchoWorld) -> None:
    """The MCP server gets access tokens and proofs alone, and authorization servers no access token."""
    canaries = world.canaries
    mine = {kind for kind in canaries.known.values() if kind != "access_token"}
    for seen in world.log:
        said = f"{seen.headers} {seen.body!r} {seen.path if seen.server == world.origin else seen.url}"
        allowed = {"access_token", "proof"} if seen.server == world.origin else mine
        assert canaries.found(said, allowed=allowed) == [], seen
        assert "elsewhere" not in seen.path or seen.server == world.origin, "a redirect was followed"


def key(canaries: Canaries) -> tuple[str, str]:
    """A private key, whose every line is a secret, and its public half."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    made = ec.generate_private_key(ec.SECP256R1())
    pem = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    keep_key(canaries, pem)
    public = made.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem, public.decode()


def keep_key(canaries: Canaries, pem: str) -> None:
    for line in pem.strip().splitlines()[1:-1]:
        canaries.add(line, "private_key")


@pytest.mark.parametrize("kind", ["access_token", "client_secret"])
def test_the_search_finds_a_part_in_any_spelling(kind: str) -> None:
    canaries = Canaries()
    value = canaries.new(kind)
    basic = b64encode(f"client:{quote_plus(value)}".encode()).decode()
    for text in (value, value[7:19], quote(value), quote_plus(value), html.escape(value), json.dumps([value]), basic):
        assert canaries.found(f"text{text}text")
        assert canaries.found(f"text{text}text", allowed=[kind]) == []
    assert canaries.found(shown(Canaries().new(kind))) == []
    error = ValueError("no")
    error.__context__ = KeyError(value)
    error.__suppress_context__ = True
    assert canaries.found(shown(error))


# --- the flows --------------------------------------------------------------------------------------------------------


def by_person(world: EchoWorld, **options: Any) -> OAuth:
    return OAuth(sign_in=world.authorize, **{"store": MemoryTokenStore(), **options})


def by_person_with_a_secret(world: EchoWorld) -> OAuth:
    world.registered_method = "client_secret_post"
    return by_person(world)


def by_person_given_a_secret(world: EchoWorld) -> OAuth:
    secret = world.mint("client_secret")
    world.add_client("app", secret)
    return by_person(world, client_id="app", client_secret=secret, issuer=world.issuer)


def by_person_with_proofs(world: EchoWorld) -> OAuth:
    world.dpop = world.dpop_required = world.as_nonce = world.rs_nonce = True
    return by_person(world)


def by_itself(world: EchoWorld, method: str, **options: Any) -> OAuth:
    secret = world.mint("client_secret")
    world.add_client("job", secret, method=method)
    world.token_methods = [method]
    return OAuth(grant="client_credentials", client_id="job", client_secret=secret, issuer=world.issuer, **options)


def by_basic(world: EchoWorld) -> OAuth:
    return by_itself(world, "client_secret_basic")


def by_post(world: EchoWorld) -> OAuth:
    return by_itself(world, "client_secret_post")


def by_key(world: EchoWorld, **options: Any) -> OAuth:
    private, public = key(world.canaries)
    world.add_client("job", method="private_key_jwt", key=public)
    return OAuth(grant="client_credentials", client_id="job", private_key=private, issuer=world.issuer, **options)


def by_key_with_proofs(world: EchoWorld) -> OAuth:
    return by_key(world, dpop=True)


def by_enterprise(world: EchoWorld) -> OAuth:
    provider = world.add_authorization_server()
    id_token, secret, ours = world.mint("id_token"), world.mint("client_secret"), world.mint("client_secret")
    world.subject_tokens.add(id_token)
    for issuer, client_id, its in ((provider, "at-idp", secret), (world.authorization_server, "app", ours)):
        before, world.authorization_server = world.authorization_server, issuer
        world.add_client(client_id, its)
        world.authorization_server = before
    grant = EnterpriseManaged(
        idp_token_endpoint=f"{provider.issuer}/token",
        id_token=id_token,
        idp_client_id="at-idp",
        idp_client_secret=secret,
    )
    return OAuth(grant=grant, client_id="app", client_secret=ours, issuer=world.issuer)


def by_workload(world: EchoWorld) -> OAuth:
    def assertion(audience: str) -> str:
        made = world.mint("assertion")
        world.workload_assertions.add(made)
        return made

    return OAuth(grant=WorkloadIdentity(assertion=assertion), issuer=world.issuer)


FLOWS = [
    by_person,
    by_person_with_a_secret,
    by_person_given_a_secret,
    by_person_with_proofs,
    by_basic,
    by_post,
    by_key,
    by_key_with_proofs,
    by_enterprise,
    by_workload,
]

ECHOES: dict[str, Any] = {
    **{f"JSON {status}": c.as_json(status) for status in (400, 401)},
    **{f"HTML {status}": c.as_html(status) for status in (200, 401, 500)},
    "a text that repeats": c.as_text(400),
    "a text that repeats, 401": c.as_text(401),
    "secrets alone": c.each(400),
    "secrets alone, 401": c.each(401),
    "other JSON": c.as_other_json(401),
    "all as error": c.as_error(400),
    "cut off": c.cut_off(401),
    "cut off, 200": c.cut_off(200),
    "redirect": c.to_elsewhere,
    "redirect to another origin": c.to_another_origin,
    "challenge": c.in_challenges,
}
SPOILT: dict[str, Any] = {
    "half": c.half,
    "within": c.within,
    "another type": c.otherwise(token_type="mac"),
    "no type": c.otherwise(token_type=None),
    "no token": c.otherwise(access_token=None, error="odd", error_description="no"),
    "refused": c.with_status(400),
    "failed": c.with_status(500),
    "redirected": c.with_status(303),
}


def use(
    program: Program, world: EchoWorld, oauth: OAuth, era: str, spoil: Callable[[bool], None], timeout: float = 10.0
) -> None:
    """All a program does: connect, call, renew, ask for more. `spoil` is called before the first token and after."""
    url = world.resource_url
    spoil(False)
    made = program.does(lambda: Client.connect(url, auth=oauth, protocol=era, on_event=program.event, timeout=timeout))
    if isinstance(made, Client):
        with made as client:
            program.does(lambda: client.call_tool("test-tool"))
            spoil(True)
            world.revoke_all()
            program.does(lambda: client.call_tool("test-tool"))
            program.does(lambda: client.call_tool("admin-tool"))
            program.does(client.list_tools)
            program.sees(client, client.protocol_info, client.server_info)
    program.sees(oauth, oauth.grant, oauth.client, oauth.store)
    program.does(lambda: oauth.status(url))
    program.does(lambda: oauth.login(url, timeout=timeout))
    program.does(lambda: oauth.forget(url))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_when_all_goes_well(world: EchoWorld, program: Program, flow: Callable[[EchoWorld], OAuth], era: str) -> None:
    oauth = flow(world)
    use(program, world, oauth, era, lambda later: None)
    assert len(world.canaries.of("access_token")) >= 3
    assert world.canaries.of(*SENT)


@pytest.mark.parametrize(
    ("flow", "later", "spoil"),
    [
        *((flow, False, spoil) for flow in FLOWS if flow not in (by_person, by_key, by_post) for spoil in ECHOES),
        *((flow, True, spoil) for flow in (by_person_given_a_secret, by_person_with_proofs) for spoil in ECHOES),
        *((flow, False, spoil) for flow in (by_person_with_a_secret, by_basic, by_enterprise) for spoil in SPOILT),
        *((by_person_with_proofs, True, spoil) for spoil in SPOILT),
    ],
    ids=lambda value: {False: "first", True: "refresh"}.get(value) or getattr(value, "__name__", value),
)
def test_token_endpoints_that_repeat_what_they_get(
    world: EchoWorld, program: Program, flow: Callable[[EchoWorld], OAuth], spoil: str, later: bool
) -> None:
    oauth = flow(world)

    def spoilt(now: bool) -> None:
        if now == later:
            world.spoil["token"] = (ECHOES | SPOILT)[spoil]

    use(program, world, oauth, ERAS[0], spoilt)
    assert world.spoiled


@pytest.mark.parametrize("spoil", ["JSON 400", "JSON 401", "HTML 500", "other JSON", "redirect", *SPOILT])
@pytest.mark.parametrize("flow", [by_person, by_person_with_a_secret], ids=lambda flow: flow.__name__)
def test_registrations(world: EchoWorld, program: Program, flow: Callable[[EchoWorld], OAuth], spoil: str) -> None:
    world.spoil["register"] = (ECHOES | SPOILT)[spoil]
    use(program, world, flow(world), ERAS[0], lambda later: None)
    assert world.spoiled


@pytest.mark.parametrize(("era", "later"), [(ERAS[0], True), (ERAS[1], False)])
@pytest.mark.parametrize("spoil", ECHOES)
@pytest.mark.parametrize("flow", [by_person_with_proofs, by_basic], ids=lambda flow: flow.__name__)
def test_mcp_servers_that_repeat_what_they_get(
    world: EchoWorld, program: Program, flow: Callable[[EchoWorld], OAuth], spoil: str, later: bool, era: str
) -> None:
    oauth = flow(world)

    def spoilt(now: bool) -> None:
        if now == later:
            world.spoil["mcp"] = ECHOES[spoil]

    use(program, world, oauth, era, spoilt)
    assert world.spoiled


@pytest.mark.parametrize("route", ["token", "mcp"])
@pytest.mark.parametrize("status", [400, 403, 404, 500, 503])
def test_every_status(world: EchoWorld, program: Program, status: int, route: str) -> None:
    for made in (c.as_json(status), c.as_html(status), c.as_text(status), c.cut_off(status)):
        use(program, world, by_post(world), ERAS[0], lambda later, made=made: world.spoil.update({route: made}))  # type: ignore[misc]
    assert world.spoiled >= 4


FAULTS: dict[str, Callable[[], Fault]] = {
    "cut": lambda: Fault(close=True, processed=True),
    "garbage": lambda: Fault(200, b"\x00\xff garbage", headers={"Content-Type": "application/json"}),
    "too large": lambda: Fault(size=300_000),
    "late": lambda: Fault(wait=threading.Event()),
}


@pytest.mark.parametrize("route", ["mcp", "resource_metadata", "server_metadata", "register", "token"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("flow", [by_person_with_proofs, by_post], ids=lambda flow: flow.__name__)
def test_connections_that_fail(
    world: EchoWorld, program: Program, flow: Callable[[EchoWorld], OAuth], fault: str, route: str
) -> None:
    oauth, made = flow(world), FAULTS[fault]()

    def spoilt(later: bool) -> None:
        if later or route == "register":
            world.faults[route] = made

    use(program, world, oauth, ERAS[0], spoilt, timeout=0.1 if fault == "late" else 10.0)
    world.faults.clear()


# --- programs that fail themselves ------------------------------------------------------------------------------------


def signs_with(token: str, when: str) -> Any:
    """Something for `auth=` that goes wrong, and tells the token."""

    def fail(*_: object) -> str:
        try:
            raise KeyError(token)
        except KeyError as error:
            raise RuntimeError(f"no luck with {token}") from error

    class Provider:
        def token(self) -> str | None:
            return fail() if when == "token" else token

        def refresh(self, challenge: object) -> str | None:
            return fail() if when == "refresh" else {"token": token, "odd": f"{token} \n"}.get(when)

    def authenticate(request: Any) -> Any:
        if when == "authenticator":
            fail()
        request.headers["Authorization"] = f"Bearer {token}"
        request.headers["X-Key"] = token if when == "header" else token.encode()
        return token if when == "no request" else request

    return {
        "callable": fail,
        "odd callable": lambda: f"{token}\n",
        "bytes": lambda: token.encode(),
        "string": token,
        "authenticator": authenticate,
        "no request": authenticate,
        "header": authenticate,
        "odd header": authenticate,
    }.get(when, Provider())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "when",
    [
        "token",
        "refresh",
        "no other",
        "odd",
        "callable",
        "odd callable",
        "bytes",
        "string",
        "authenticator",
        "no request",
        "header",
        "odd header",
    ],
)
def test_credentials_of_the_program(world: EchoWorld, program: Program, when: str, era: str) -> None:
    auth = signs_with(world.mint("access_token"), when)
    for spoil in (None, "JSON 401", "HTML 500", "a text that repeats, 401", "challenge"):
        if spoil is not None:
            world.spoil["mcp"] = ECHOES[spoil]
        made = program.does(lambda: Client.connect(world.resource_url, auth=auth, protocol=era))
        if isinstance(made, Client):
            with made as client:
                assert not program.does(lambda: client.call_tool("test-tool")).ok


class BadStore(MemoryTokenStore):
    """It fails in one of its methods, and tells what it knows."""

    __slots__ = ("secrets", "when")

    def __init__(self, when: str, secrets: Canaries) -> None:
        super().__init__()
        self.when, self.secrets = when, secrets

    def _fail(self, when: str, *told: object) -> None:
        if when == self.when:
            try:
                raise KeyError(self.secrets.new("access_token"))
            except KeyError as error:
                raise RuntimeError(f"{told} {list(self.secrets.known)}") from error

    def get(self, key: str, /) -> str | None:
        self._fail("get", key)
        return super().get(key)

    def set(self, key: str, value: str, /) -> None:
        self._fail("set", key, value)
        super().set(key, value)

    def delete(self, key: str, /) -> None:
        self._fail("delete", key)
        super().delete(key)

    def lock(self, key: str, wait: Callable[[], float], /) -> Any:
        self._fail("lock", key)
        return _BadLock(self)


class _BadLock:
    def __init__(self, store: BadStore) -> None:
        self.store = store

    def __enter__(self) -> None:
        self.store._fail("enter")

    def __exit__(self, *_: object) -> None:
        self.store._fail("exit")


@pytest.mark.parametrize("when", ["get", "set", "delete", "lock", "enter", "exit"])
def test_stores_that_fail(world: EchoWorld, program: Program, when: str) -> None:
    good = BadStore("never", world.canaries)
    oauth = by_person(world, store=good)

    def fails(later: bool) -> None:
        good.when = when if later else "never"

    use(program, world, oauth, ERAS[0], fails)
    fresh = by_person(world, store=BadStore(when, world.canaries))
    use(program, world, fresh, ERAS[0], lambda later: None)
    begun = program.does(lambda: fresh.begin(world.resource_url, redirect_uri=BACK))
    if isinstance(begun, SignIn):
        program.does(lambda: fresh.finish(world.authorize(begun.url), begun.state))


@pytest.mark.parametrize("odd", ["", "{", "not JSON {}", '{"access_token": "%s"}', '["%s"]', "%s"])
def test_what_a_store_holds_is_not_ours(world: EchoWorld, program: Program, odd: str) -> None:
    secret = world.mint("access_token")

    class Odd(MemoryTokenStore):
        def get(self, key: str, /) -> str | None:
            return odd.replace("%s", secret)

    use(program, world, by_person(world, store=Odd()), ERAS[0], lambda later: None)


def tells(error: str) -> Callable[[str], str]:
    def ask(url: str) -> str:
        try:
            raise KeyError(url)
        except KeyError as raised:
            raise RuntimeError(f"{error} {url}") from raised

    return ask


def changed(world: EchoWorld, **parameters: str | None) -> Callable[[str], str]:
    """A person whose browser comes back with other parameters; "{all}" stands for the address as it should be."""

    def ask(url: str) -> str:
        good = world.authorize(url)
        found = c.parameters(good) | {
            name: value and value.replace("{all}", good) for name, value in parameters.items()
        }
        return f"{good.partition('?')[0]}?{urlencode({name: value for name, value in found.items() if value})}"

    return ask


ANSWERS: dict[str, dict[str, str | None]] = {
    "another state": {"state": "another"},
    "no state": {"state": None},
    "no code": {"code": None},
    "refused": {"error": "access_denied", "error_description": "{all}"},
    "refused with all": {"error": "{all}", "error_description": "{all}"},
    "another issuer": {"iss": "https://as.example"},
    "an issuer with all": {"iss": "{all}"},
    "no issuer": {"iss": None},
    "a wrong code": {"code": "wrong"},
}
PEOPLE: dict[str, Callable[[EchoWorld], Callable[[str], Any]]] = {
    "raises": lambda world: tells("nobody signed in at"),
    "gives nothing": lambda world: lambda url: None,
    "gives the page": lambda world: lambda url: url,
    "gives bytes": lambda world: lambda url: world.authorize(url).encode(),
    "gives too much": lambda world: lambda url: world.authorize(url) + "&x=" + "x" * 100_000,
    "gives it twice": lambda world: lambda url: (back := world.authorize(url)) + "&" + back.partition("?")[2],
    "gives no URL": lambda world: lambda url: f"http://[{world.authorize(url)}",
    **{name: lambda world, name=name: changed(world, **ANSWERS[name]) for name in ANSWERS},  # type: ignore[misc]
}


@pytest.mark.parametrize("person", PEOPLE)
def test_sign_ins_that_fail(world: EchoWorld, program: Program, person: str) -> None:
    oauth = OAuth(sign_in=PEOPLE[person](world), store=MemoryTokenStore())
    use(program, world, oauth, ERAS[0], lambda later: None)


@pytest.mark.parametrize("person", PEOPLE)
def test_sign_ins_in_two_steps_that_fail(world: EchoWorld, program: Program, person: str) -> None:
    oauth = by_person(world, redirect_uri=BACK)
    begun = program.does(lambda: oauth.begin(world.resource_url))
    keep_pending(world.canaries, begun)
    try:
        back = PEOPLE[person](world)(begun.url)
    except RuntimeError:
        return
    program.does(lambda: oauth.finish(back, begun.state))
    program.does(lambda: oauth.finish(world.authorize(begun.url), begun.state[:-9]))
    program.does(lambda: oauth.finish(world.authorize(begun.url), begun.state.replace("begun_at", "begun")))
    program.does(lambda: oauth.finish(world.authorize(begun.url), None))  # type: ignore[arg-type]


def keep_pending(canaries: Canaries, begun: SignIn) -> None:
    pending = json.loads(begun.state)
    canaries.add(pending["state"], "state")
    canaries.add(pending["verifier"], "code_verifier")


@pytest.mark.parametrize("spoil", [*ECHOES, *SPOILT])
def test_the_second_step_fails_at_the_token_endpoint(world: EchoWorld, program: Program, spoil: str) -> None:
    oauth = by_person(world, redirect_uri=BACK)
    begun = program.does(lambda: oauth.begin(world.resource_url))
    keep_pending(world.canaries, begun)
    world.spoil["token"] = (ECHOES | SPOILT)[spoil]
    program.does(lambda: oauth.finish(world.authorize(begun.url), begun.state))
    assert world.spoiled
    world.spoil.clear()
    back = world.authorize(begun.url)
    assert program.does(lambda: oauth.finish(back, begun.state)).ok
    program.does(lambda: oauth.finish(back, begun.state))  # the code is used up


@pytest.mark.parametrize("grant", ["enterprise", "workload"])
@pytest.mark.parametrize("how", ["raises", "gives two lines", "gives bytes"])
def test_callables_of_grants_that_fail(world: EchoWorld, program: Program, grant: str, how: str) -> None:
    secret = world.mint("assertion")

    def give(*_: str) -> Any:
        if how == "raises":
            try:
                raise KeyError(secret)
            except KeyError as error:
                raise RuntimeError(secret) from error
        return f"{secret}\n{secret}" if how == "gives two lines" else secret.encode()

    options: Any = (
        EnterpriseManaged(idp_token_endpoint=f"{world.issuer}/token", id_token=give)
        if grant == "enterprise"
        else WorkloadIdentity(assertion=give)
    )
    use(program, world, OAuth(grant=options, client_id="app"), ERAS[0], lambda later: None)


WRONG: list[Callable[[str], Any]] = [
    lambda secret: OAuth(client_id="me", client_secret=secret + "\n"),
    lambda secret: OAuth(client_id="me", client_secret=secret.encode()),  # type: ignore[arg-type]
    lambda secret: OAuth(client_secret=secret),
    lambda secret: OAuth(client_id="me", private_key=secret),
    lambda secret: OAuth(
        client_id="me", private_key=f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----"
    ),
    lambda secret: OAuth(client_id="me", client_secret=secret, private_key=secret),
    lambda secret: OAuth(issuer=f"https://me:{secret}@as.example"),
    lambda secret: OAuth(store=secret),  # type: ignore[arg-type]
    lambda secret: EnterpriseManaged(idp_token_endpoint=f"https://me:{secret}@idp.example", id_token="x"),
    lambda secret: EnterpriseManaged(idp_token_endpoint="https://idp.example", id_token=secret + "\n"),
    lambda secret: EnterpriseManaged(idp_token_endpoint="https://idp.example", id_token=secret, idp_client_secret="é"),
    lambda secret: WorkloadIdentity(assertion=secret),  # type: ignore[arg-type]
    lambda secret: OAuth().begin(f"http://{secret}@localhost/mcp", redirect_uri=BACK),
    lambda secret: OAuth().finish(secret, secret),
    lambda secret: OAuth().finish(BACK, secret),
    lambda secret: Client.connect("http://localhost:1/mcp", auth=secret.encode()),  # type: ignore[call-overload]
    lambda secret: Client.connect("http://localhost:1/mcp", auth=secret + "\n"),
    lambda secret: Client.connect("http://localhost:1/mcp", auth=[secret]),  # type: ignore[call-overload]
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_arguments_are_not_repeated(number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    canaries, program = Canaries(), Program()
    outcome = program.does(lambda: WRONG[number](canaries.new("assertion")))
    assert isinstance(outcome, Exception)
    assert canaries.found("\n".join(program.lines)) == []


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", [by_person_with_a_secret, by_person_with_proofs], ids=lambda flow: flow.__name__)
def test_only_the_store_keeps_them(
    world: EchoWorld, program: Program, flow: Callable[[EchoWorld], OAuth], tmp_path: Path
) -> None:
    path = tmp_path / "folder" / "tokens.json"
    oauth = flow(world)
    oauth.store = store = FileTokenStore(path)
    with Client.connect(world.resource_url, auth=oauth) as client:
        assert client.call_tool("test-tool").ok
        if world.dpop:
            for text in json.loads(path.read_text()).values():
                keep_key(world.canaries, json.loads(text).get("dpop_key") or "")
            assert world.canaries.of("private_key")
        program.sees(client, oauth, store)
    assert world.canaries.found(path.read_text())
    for file in (tmp_path / "folder").iterdir():
        if file != path:
            assert world.canaries.found(f"{file.name} {file.read_bytes()!r}") == []
    path.write_text(path.read_text()[:-3])  # a file that is no store: it is moved aside, and said so
    program.does(lambda: oauth.login(world.resource_url))
    path.chmod(0o644)
    program.does(lambda: oauth.status(world.resource_url))
    path.unlink()
    path.mkdir()
    program.does(lambda: oauth.login(world.resource_url))
    program.does(lambda: oauth.status(world.resource_url))


@pytest.mark.parametrize("flow", [by_person_with_a_secret, by_person_with_proofs], ids=lambda flow: flow.__name__)
def test_another_authorization_server_gets_nothing_of_the_first(
    world: EchoWorld, program: Program, flow: Callable[[EchoWorld], OAuth]
) -> None:
    oauth = flow(world)
    with Client.connect(world.resource_url, auth=oauth) as client:
        assert client.call_tool("test-tool").ok
        of_first = dict(world.canaries.known)
        second = world.migrate()
        assert client.call_tool("test-tool").ok
        program.sees(client, oauth)
    got = [seen for seen in world.log if seen.server == second]
    assert [seen for seen in got if seen.route == "token"]
    known, world.canaries.known = world.canaries.known, of_first
    assert [found for seen in got for found in world.canaries.found(f"{seen.url} {seen.headers} {seen.body!r}")] == []
    world.canaries.known = known


def test_an_identity_provider_and_an_authorization_server_know_nothing_of_each_other(
    world: EchoWorld, program: Program
) -> None:
    oauth = by_enterprise(world)
    id_token, (at_provider, ours) = world.canaries.of("id_token")[0], world.canaries.of("client_secret")
    use(program, world, oauth, ERAS[0], lambda later: None)
    got = {True: "", False: ""}
    for seen in world.seen("token"):
        got[seen.server == world.issuer] += f"{seen.headers} {seen.form}"
    canaries = Canaries()
    for here, secrets in ((True, (id_token, at_provider)), (False, (ours, *world.canaries.of("access_token")))):
        canaries.known = dict.fromkeys(secrets, "another's")
        assert got[here]
        assert canaries.found(got[here]) == []


def test_a_keyring_that_repeats_what_it_gets(
    world: EchoWorld, program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keyring: Any = pytest.importorskip("keyring")
    from keyring.backend import KeyringBackend

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    class Loud(KeyringBackend):
        priority = 1.0

        def get_password(self, service: str, username: str) -> str | None:
            return None

        def set_password(self, service: str, username: str, password: str) -> None:
            raise RuntimeError(f"{service} {username} {password}")

    before = keyring.get_keyring()
    keyring.set_keyring(Loud())  # type: ignore[no-untyped-call]
    try:
        use(program, world, by_person(world, store=KeyringTokenStore()), ERAS[0], lambda later: None)
    finally:
        keyring.set_keyring(before)


# --- the command ------------------------------------------------------------------------------------------------------

BROWSER = """
import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=10).read()
"""


@pytest.mark.parametrize("spoil", [None, "HTML 500", "half"])
def test_the_command_shows_the_page_and_no_more(world: EchoWorld, tmp_path: Path, spoil: str | None) -> None:
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    browser = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} %s"
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "BROWSER": browser, "PYTHONDEVMODE": "1"}
    world.registered_method = "client_secret_post"
    if spoil is not None:
        world.spoil["token"] = (ECHOES | SPOILT)[spoil]
    for action in ("login", "status", "logout"):
        ran = subprocess.run(
            [sys.executable, "-m", "snodo_client.auth", action, world.resource_url],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        page, _, rest = ran.stderr.partition("\n") if action == "login" else ("", "", ran.stderr)
        assert (action == "login") == page.startswith("Sign in at ")
        assert world.canaries.found(page, allowed=["state"]) == []
        assert world.canaries.found(ran.stdout + rest) == []
        assert (ran.returncode == 0) == (spoil is None or action == "logout"), ran.stderr
    assert world.canaries.of("code_verifier")
    stays_where_it_belongs(world)
