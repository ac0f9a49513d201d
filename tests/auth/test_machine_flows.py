"""What the flows without a person check before they send anything, and what they tell the server of themselves."""

from __future__ import annotations

import json

import pytest

from snodo_client import Client, McpError
from snodo_client.auth import EnterpriseManaged, OAuth
from snodo_client.auth.clients import ClientIdentity
from snodo_client.auth.grants import enterprise
from support.oauth_flows import metadata, run
from support.oauth_server import OAuthWorld

IDP = "https://idp.example/token"
PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"


@pytest.mark.parametrize(
    ("oauth", "extension"),
    [
        (
            OAuth(grant="client_credentials", client_id="job", client_secret="secret-of-the-job"),
            "io.modelcontextprotocol/oauth-client-credentials",
        ),
        (
            OAuth(grant=EnterpriseManaged(idp_token_endpoint=IDP, id_token="id"), client_id="app"),
            "io.modelcontextprotocol/enterprise-managed-authorization",
        ),
        (OAuth(sign_in="never"), None),
    ],
)
def test_the_extension_in_use_is_declared(oauth: OAuth, extension: str | None) -> None:
    with OAuthWorld() as world:
        with pytest.raises(McpError):  # nobody is known there: what was asked is enough
            Client.connect(world.resource_url, auth=oauth, client_capabilities={"extensions": {"com.example/x": {}}})
        body = json.loads(world.seen("mcp")[0].body)
    declared = body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    assert declared == {"com.example/x": {}} | ({extension: {}} if extension else {})


def test_an_enterprise_is_not_asked_for_a_server_that_takes_no_grants_of_one() -> None:
    options = EnterpriseManaged(idp_token_endpoint=IDP, id_token="id")
    server = metadata(authorization_grant_profiles_supported=["urn:example:another"])
    with pytest.raises(McpError) as caught:
        run(enterprise(options, server, ClientIdentity("app"), resource=None, scope=None, now=0.0), [])
    assert "takes no grants of identity providers" in caught.value.message
    fitting = metadata(authorization_grant_profiles_supported=[PROFILE])
    sent = next(enterprise(options, fitting, ClientIdentity("app"), resource=None, scope=None, now=0.0))
    assert sent.endpoint.url == IDP


def test_a_key_of_another_kind_than_the_server_takes_signs_nothing() -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    client = ClientIdentity("job", private_key=pem.decode())
    assert client.method_at(metadata()) == "private_key_jwt"
    server = metadata(token_endpoint_auth_signing_alg_values_supported=["RS256"])
    with pytest.raises(McpError) as caught:
        client.method_at(server)
    assert "takes assertions signed with RS256, not ES256" in caught.value.message
