"""Proofs of possession, verified as a server would, and the nonces of servers."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import threading
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

from snodo_client.auth.dpop import ALGORITHM, MAX_NONCE, MAX_SERVERS, Nonces, ProofKey
from support.oauth_proofs import thumbprint

NOW = 1_790_000_000.75
URL = "https://mcp.example/mcp"
KEY = ProofKey.new()

# RFC 9449: the proof of figure 1, the key in it, and the token of figure 12 with its hash.
RFC_PROOF = (
    "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQy"
    "VVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiIt"
    "QndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjYyNjE2"
    "fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg"
)
RFC_THUMBPRINT = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
RFC_TOKEN = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
RFC_ATH = "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"


def decoded(part: str) -> bytes:
    assert "=" not in part
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def verified(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the claims of a proof that its own key has signed. Raises InvalidSignature."""
    head, body, signature = proof.split(".")
    header = json.loads(decoded(head))
    assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
    jwk = header["jwk"]
    assert (jwk["kty"], jwk["crv"]) == ("EC", "P-256")
    x, y, raw = decoded(jwk["x"]), decoded(jwk["y"]), decoded(signature)
    assert (len(x), len(y), len(raw)) == (32, 32, 64)
    numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), ec.SECP256R1())
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    numbers.public_key().verify(der, f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    return header, json.loads(decoded(body))


def pem(key: Any) -> str:
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


def key_with(private: int) -> ProofKey:
    return ProofKey(ec.derive_private_key(private, ec.SECP256R1()))


def test_the_check_of_these_tests_takes_the_proof_of_the_specification_and_no_other() -> None:
    header, claims = verified(RFC_PROOF)
    assert claims["htu"] == "https://server.example.com/token"
    assert thumbprint(header["jwk"]) == RFC_THUMBPRINT
    with pytest.raises(InvalidSignature):
        verified(RFC_PROOF.replace("2-GxA6", "2-GxA7"))


def test_a_proof_for_a_token_request() -> None:
    header, claims = verified(KEY.proof("POST", "https://as.example/token", NOW))
    assert header.keys() == {"typ", "alg", "jwk"}
    assert header["jwk"].keys() == {"kty", "crv", "x", "y"}
    assert len(decoded(claims.pop("jti"))) >= 12
    assert claims == {"htm": "POST", "htu": "https://as.example/token", "iat": 1_790_000_000}


def test_a_proof_for_a_request_with_a_token_and_a_nonce() -> None:
    _, claims = verified(KEY.proof("GET", URL, NOW, token=RFC_TOKEN, nonce="eyJ7S_zG"))
    assert claims.keys() == {"jti", "htm", "htu", "iat", "ath", "nonce"}
    assert (claims["htm"], claims["htu"], claims["ath"], claims["nonce"]) == ("GET", URL, RFC_ATH, "eyJ7S_zG")


@pytest.mark.parametrize("rest", ["?a=b", "#f", "?a=b#f", "#f?a=b", "?", "#"])
def test_only_the_url_up_to_its_path_is_signed(rest: str) -> None:
    assert verified(KEY.proof("POST", URL + rest, NOW))[1]["htu"] == URL


def test_no_two_proofs_are_the_same() -> None:
    made = [verified(KEY.proof("POST", URL, NOW, token="t"))[1]["jti"] for _ in range(50)]
    assert len(set(made)) == 50


def test_a_proof_of_another_key_has_another_thumbprint() -> None:
    jwks = [verified(key.proof("POST", URL, NOW))[0]["jwk"] for key in (KEY, KEY, ProofKey.new())]
    assert thumbprint(jwks[0]) == thumbprint(jwks[1]) != thumbprint(jwks[2])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**256 - 2**225))
def test_any_key_is_written_in_full_width(private: int) -> None:
    verified(key_with(private).proof("POST", URL, NOW))


def test_a_coordinate_with_leading_zeros_keeps_them() -> None:
    found = [n for n in range(1, 3000) if public_number(n) < 1 << 248]
    assert found  # one in 256 of these keys
    header, _ = verified(key_with(found[0]).proof("POST", URL, NOW))
    assert decoded(header["jwk"]["x"])[0] == 0


def public_number(private: int) -> int:
    return ec.derive_private_key(private, ec.SECP256R1()).public_key().public_numbers().x


_QUOTED = st.text(st.characters(codec="ascii", exclude_characters='"\\', min_codepoint=0x21, max_codepoint=0x7E))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.text(st.characters(exclude_characters="?#", exclude_categories=["Cs"])),
    st.none() | st.text(),
    st.none() | _QUOTED,
    st.floats(0, 1e11),
)
def test_claims_arrive_as_they_were_given(
    method: str, path: str, token: str | None, nonce: str | None, now: float
) -> None:
    _, claims = verified(KEY.proof(method, URL + path, now, token=token, nonce=nonce))
    assert (claims["htm"], claims["htu"], claims.get("nonce")) == (method, URL + path, nonce)
    assert now - 1 < claims["iat"] <= now
    expected = token and sha256(token.encode()).digest()
    assert ("ath" in claims) is (token is not None)
    if expected:
        assert decoded(claims["ath"]) == expected


def test_a_token_that_no_header_can_hold_is_hashed_all_the_same() -> None:
    assert len(decoded(verified(KEY.proof("POST", URL, NOW, token="\ud800"))[1]["ath"])) == 32


def test_the_key_comes_back_from_its_pem() -> None:
    back = ProofKey.load(KEY.pem)
    assert back.pem == KEY.pem
    jwks = [verified(key.proof("POST", URL, NOW))[0]["jwk"] for key in (KEY, back)]
    assert thumbprint(jwks[0]) == thumbprint(jwks[1])
    assert KEY.pem.startswith("-----BEGIN PRIVATE KEY-----\n")


@pytest.mark.parametrize(
    "kept",
    [
        "",
        "nothing",
        KEY.pem[:-60],
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(ec.generate_private_key(ec.SECP256K1())),
        pem(rsa.generate_private_key(65537, 2048)),
    ],
    ids=["empty", "word", "cut", "P-384", "secp256k1", "RSA"],
)
def test_what_is_no_such_key_is_not_loaded(kept: str) -> None:
    with pytest.raises(ValueError, match="key") as caught:
        ProofKey.load(kept)
    assert "MI" not in str(caught.value)


def test_a_key_is_neither_shown_nor_pickled_nor_copied() -> None:
    loaded: Any = load_pem_private_key(KEY.pem.encode(), None)
    private = loaded.private_numbers().private_value
    for shown in (repr(KEY), str(KEY), f"{[KEY]}"):
        assert "ProofKey ES256" in shown
        assert str(private) not in shown
        assert f"{private:x}" not in shown
        assert KEY.pem.splitlines()[1] not in shown
    assert not hasattr(KEY, "__dict__")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="not pickled or copied"):
            pickle.dumps(KEY, protocol)
    for copying in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled or copied"):
            copying(KEY)


def test_the_proof_holds_nothing_of_the_private_key() -> None:
    loaded: Any = load_pem_private_key(KEY.pem.encode(), None)
    secret = loaded.private_numbers().private_value.to_bytes(32, "big")
    proof = KEY.proof("POST", URL, NOW, token="token-canary")
    assert all(secret not in decoded(part) for part in proof.split("."))
    assert b"token-canary" not in b"".join(decoded(part) for part in proof.split("."))


def test_threads_share_a_key() -> None:
    proofs: list[str] = []
    threads = [
        threading.Thread(target=lambda: proofs.extend(KEY.proof("POST", URL, NOW) for _ in range(20))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({verified(proof)[1]["jti"] for proof in proofs}) == 160


def test_the_algorithm_is_the_one_a_server_lists() -> None:
    assert verified(KEY.proof("POST", URL, NOW))[0]["alg"] == ALGORITHM


def test_the_newest_nonce_of_each_origin() -> None:
    nonces = Nonces()
    assert nonces.newest("https://a.example") is None
    assert nonces.heard("https://a.example", "one")
    assert nonces.heard("https://b.example", "other")
    assert nonces.heard("https://a.example", "two")
    assert nonces.newest("https://a.example") == "two"
    assert nonces.newest("https://b.example") == "other"
    assert "two" not in repr(nonces)


@pytest.mark.parametrize(
    "wrong",
    [None, "", "a b", "a, b", 'a"b', "a\\b", "a\x7f", "a\n", "\n", "é", "a\x00", "x" * (MAX_NONCE + 1)],
)
def test_what_is_no_nonce_changes_nothing(wrong: str | None) -> None:
    nonces = Nonces()
    assert not nonces.heard(URL, wrong)
    assert nonces.newest(URL) is None
    assert nonces.heard(URL, "good")
    assert not nonces.heard(URL, wrong)
    assert nonces.newest(URL) == "good"


def test_the_longest_nonce_and_every_permitted_character() -> None:
    nonces = Nonces()
    for nonce in ("x" * MAX_NONCE, "".join(chr(n) for n in range(0x21, 0x7F) if chr(n) not in '"\\')):
        assert nonces.heard(URL, nonce)
        assert nonces.newest(URL) == nonce


def test_the_servers_heard_of_longest_ago_are_forgotten() -> None:
    nonces = Nonces()
    origins = [f"https://{number}.example" for number in range(MAX_SERVERS)]
    for origin in origins:
        nonces.heard(origin, "n")
    nonces.heard(origins[0], "again")
    nonces.heard("https://new.example", "n")
    assert nonces.newest(origins[0]) == "again"
    assert nonces.newest(origins[1]) is None
    assert [origin for origin in origins[2:] if nonces.newest(origin) != "n"] == []


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Threads that take turns so often that what is not locked shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hurried_threads")
def test_a_nonce_once_heard_is_there_for_every_thread() -> None:
    nonces = Nonces()
    nonces.heard(URL, "0")
    missing: list[str] = []
    done = threading.Event()

    def listen() -> None:
        while not done.is_set():
            if nonces.newest(URL) is None:
                missing.append("gone")

    def hear(name: str) -> None:
        for number in range(3000):
            nonces.heard(URL, f"{name}{number}")
            nonces.heard(f"https://{name}{number % 20}.example", "n")

    listener = threading.Thread(target=listen)
    speakers = [threading.Thread(target=hear, args=(name,)) for name in "ab"]
    for thread in (listener, *speakers):
        thread.start()
    for thread in speakers:
        thread.join(60)
    done.set()
    listener.join(60)
    assert missing == []
    assert nonces.newest(URL) in ("a2999", "b2999")
