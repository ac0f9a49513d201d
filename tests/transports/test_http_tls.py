"""Whom TLS connections trust, and what their errors say."""

from __future__ import annotations

import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from snodo_client.outcome import McpError
from support.http_calls import Deaf, call_tool, connect, error_of, opened, text_of
from support.scripted_http import ScriptedServer, each_request, event, result

ANSWERS = each_request(lambda peer, request: peer.answer(request))


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(ca: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture(autouse=True)
def no_bundles_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def context_for(ca: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture
def server(ca: trustme.CA) -> Iterator[ScriptedServer]:
    with ScriptedServer(ANSWERS, context=context_for(ca, "localhost", "127.0.0.1"), name="localhost") as running:
        yield running


def test_a_bundle_is_trusted_and_connections_are_kept(server: ScriptedServer, bundle: str) -> None:
    with connect(server.url, verify=bundle) as client:
        assert [text_of(client.call_tool("test")) for _ in range(10)] == ["ok"] * 10
    assert server.connections == 1


def test_a_path_object_and_a_folder_will_do(server: ScriptedServer, bundle: str, tmp_path: Path) -> None:
    assert text_of(call_tool(server.url, verify=Path(bundle))) == "ok"
    folder = tmp_path / "certs"
    folder.mkdir()
    digest = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", bundle], capture_output=True, text=True)
    if digest.returncode == 0:
        (folder / f"{digest.stdout.strip()}.0").write_bytes(Path(bundle).read_bytes())
        assert text_of(call_tool(server.url, verify=folder)) == "ok"


def test_an_unknown_authority_is_refused(server: ScriptedServer) -> None:
    error = error_of(server.url)
    assert (error.reason, error.kind) == ("tls", "transport")
    assert "certificate" in error.message
    assert "verify=" in error.message


def test_the_store_of_the_system_is_the_default(server: ScriptedServer, bundle: str, tmp_path: Path) -> None:
    """In a process of its own: OpenSSL reads SSL_CERT_FILE as the place of that store."""
    program = (
        "import sys; from snodo_client import Client\n"
        "with Client.connect(sys.argv[1], protocol='2026-07-28') as client:\n"
        "    outcome = client.call_tool('test'); print(type(outcome).__name__, getattr(outcome, 'reason', None))"
    )

    def run(**variables: str) -> str:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | variables
        command = [sys.executable, "-c", program, server.url]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(SSL_CERT_FILE=bundle) == "Ok None"
    assert run(REQUESTS_CA_BUNDLE=bundle) == "Ok None"
    assert run(SSL_CERT_FILE=str(empty / "none.pem"), SSL_CERT_DIR=str(empty)) == "McpError tls"


def test_a_system_without_a_store_falls_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from snodo_client.transports import http_trust

    class Paths:
        openssl_cafile_env, openssl_capath_env, capath = "SSL_CERT_FILE", "SSL_CERT_DIR", None

    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: bare)
    monkeypatch.setattr(ssl, "get_default_verify_paths", Paths)
    assert http_trust.trust(True, None) is bare
    assert bare.cert_store_stats()["x509_ca"] > 50


def test_nobody_is_verified_when_the_caller_says_so(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    with connect(server.url, verify=False) as client:
        assert [text_of(client.call_tool("test")) for _ in range(3)] == ["ok"] * 3
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [f"{server.url}: certificates are not verified (verify=False)"]


def test_verify_false_is_not_overruled_by_the_environment(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "nowhere.pem"))
    assert text_of(call_tool(server.url, verify=False)) == "ok"
    with pytest.raises(McpError) as caught:
        call_tool(server.url)
    assert caught.value.reason == "tls"
    assert "nowhere.pem" in caught.value.message


def test_the_host_name_counts(ca: trustme.CA, bundle: str) -> None:
    with ScriptedServer(ANSWERS, context=context_for(ca, "other.example"), name="localhost") as server:
        error = error_of(server.url, verify=bundle)
    assert error.reason == "tls"
    assert "localhost" in error.message


def test_a_file_that_is_no_bundle_is_told_when_opening(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("nonsense")
    from snodo_client.engine.deadline import Deadline
    from snodo_client.transports.http import HttpTransport

    for options in ({"verify": str(path)}, {"cert": str(path)}):
        with pytest.raises(McpError) as caught:
            HttpTransport("https://example.com/mcp", **options).open(Deaf(), Deadline(1))  # type: ignore[arg-type]
        assert caught.value.reason == "tls"
        assert str(path) in caught.value.message
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_certificate(
    ca: trustme.CA, bundle: str, tmp_path: Path, apart: bool, version: ssl.TLSVersion
) -> None:
    context = context_for(ca, "localhost")
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    mine = ca.issue_cert("me@example.com")
    whole, cert, key = (str(tmp_path / name) for name in ("whole.pem", "cert.pem", "key.pem"))
    mine.private_key_and_cert_chain_pem.write_to_path(whole)
    mine.cert_chain_pems[0].write_to_path(cert)
    mine.private_key_pem.write_to_path(key)
    with ScriptedServer(ANSWERS, context=context, name="localhost") as server:
        assert text_of(call_tool(server.url, verify=bundle, cert=(cert, key) if apart else whole)) == "ok"
        assert error_of(server.url, verify=bundle).reason in ("tls", "closed")


def test_streams_over_tls_end_and_are_cut_like_any_other(ca: trustme.CA, bundle: str) -> None:
    def reply(peer, request) -> None:  # type: ignore[no-untyped-def]
        peer.start_sse()
        if request.message["params"]["arguments"]:
            peer.drip(b"1\r\n:\r\n" * 100, 0.02)
        peer.chunk(event(result(request)))
        peer.end()

    with (
        ScriptedServer(each_request(reply), context=context_for(ca, "localhost"), name="localhost") as server,
        connect(server.url, verify=bundle) as client,
    ):
        assert [text_of(client.call_tool("test")) for _ in range(20)] == ["ok"] * 20
        assert server.connections == 1
        outcome = client.call_tool("test", {"slow": True}, timeout=0.3)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert text_of(client.call_tool("test")) == "ok"


def test_plain_http_where_tls_is_expected_and_the_other_way(ca: trustme.CA, bundle: str) -> None:
    with ScriptedServer(lambda peer: peer.receive() and peer.respond("400 Bad Request")) as plain_server:
        assert error_of(plain_server.url.replace("http:", "https:")).reason == "tls"
    with ScriptedServer(ANSWERS, context=context_for(ca, "localhost"), name="localhost") as tls_server:
        error = error_of(tls_server.url.replace("https:", "http:"))
        assert error.reason in ("closed", "malformed")


def test_plain_http_needs_no_trust() -> None:
    with ScriptedServer(ANSWERS) as server, opened(server.url, verify=False) as transport:
        assert transport._link is not None
