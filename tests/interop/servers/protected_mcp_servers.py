"""MCP servers behind a token, made of what two SDKs have for that, each with one tool that tells whose token it got.

``python protected_mcp_servers.py KIND PORT``, and for the first three also ``ISSUER SCOPE...``: who issues the tokens,
and what they have to allow. The first two ask the issuer about every token (RFC 7662), and every one has to be for the
address of the server, ``http://127.0.0.1:PORT/mcp``. Runs in the environment of the ``modern`` peers.

``mcp``          the official SDK: every 401 has an `error`, and no challenge names a scope
``fastmcp``      FastMCP: a first 401 without an `error`, challenges that name the scopes
``fastmcp-jwt``  FastMCP that checks the signatures of tokens by the keys of the issuer
``fastmcp-own``  FastMCP as its own authorization server, which asks nobody: registration, then at once a code
``mcp-own``      the same behind the official SDK, as it was at 2025-03-26: no metadata of the resource
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider, TokenVerifier
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier
from fastmcp.server.auth.providers.jwt import JWTVerifier
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from pydantic import AnyHttpUrl, ConfigDict, TypeAdapter
from starlette.applications import Starlette

SCOPES = ["tools"]
EXACTLY = TypeAdapter(AnyHttpUrl, config=ConfigDict(url_preserve_empty_path=True))  # else an issuer gets another slash


def caller() -> dict[str, Any]:
    """The client that the token of this request was issued to, and what it allows."""
    token = get_access_token()
    assert token is not None
    return {"client": token.client_id, "scopes": sorted(token.scopes), "user": (token.claims or {}).get("username")}


def verifier(issuer: str, audience: str, *, jwt: bool = False) -> TokenVerifier:
    if jwt:
        return JWTVerifier(jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=audience)
    return IntrospectionTokenVerifier(
        introspection_url=f"{issuer}/introspect/",
        client_id="resource-server",
        client_secret="resource server secret",
        audience=audience,
    )


def in_memory(origin: str) -> InMemoryOAuthProvider:
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES)
    return InMemoryOAuthProvider(base_url=origin, required_scopes=SCOPES, client_registration_options=registration)


def with_mcp(**options: Any) -> Starlette:
    server = MCPServer("protected", version="1.0.0", log_level="CRITICAL", **options)
    server.tool()(caller)
    return server.streamable_http_app()


def with_fastmcp(auth: Any) -> Starlette:
    server: FastMCP = FastMCP("protected", version="1.0.0", auth=auth)
    server.tool(caller)
    return server.http_app()


def make_app(kind: str, port: int, issuer: str, scopes: list[str]) -> Starlette:
    """The ASGI application of a kind of server."""
    origin = f"http://127.0.0.1:{port}"
    url = f"{origin}/mcp"
    match kind:
        case "mcp":
            settings = AuthSettings(
                issuer_url=AnyHttpUrl(issuer),
                resource_server_url=AnyHttpUrl(url),
                required_scopes=scopes,
                validate_token_resource=False,  # the verifier does
            )
            return with_mcp(token_verifier=verifier(issuer, url), auth=settings)
        case "fastmcp" | "fastmcp-jwt":
            asked = {"scopes_supported": scopes, "challenge_scopes": scopes, "required_scopes": scopes}
            checks = verifier(issuer, url, jwt=kind == "fastmcp-jwt")
            return with_fastmcp(RemoteAuthProvider(checks, [EXACTLY.validate_python(issuer)], origin, **asked))
        case "fastmcp-own":
            return with_fastmcp(in_memory(origin))
        case "mcp-own":
            provider = in_memory(origin)
            settings = AuthSettings.model_validate(
                {
                    "issuer_url": origin,
                    "resource_server_url": None,
                    "required_scopes": SCOPES,
                    "client_registration_options": provider.client_registration_options,
                }
            )
            return with_mcp(auth_server_provider=provider, auth=settings)
        case _:
            sys.exit("usage: protected_mcp_servers.py KIND PORT [ISSUER SCOPE...]")


if __name__ == "__main__":
    kind, port, issuer, *scopes = [*sys.argv[1:], ""]
    app = make_app(kind, int(port), issuer, list(filter(None, scopes)))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
