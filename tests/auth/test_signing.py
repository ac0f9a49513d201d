"""Keys and client assertions, verified with the primitives instead of the library that signs."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, rsa, utils, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from snodo_client.auth.signing import ALGORITHMS, LIFETIME, LONGEST_KEY, check_key, client_assertion

ROOT = Path(__file__).parents[2]
NOW = 1_790_000_000.75

KEYS: dict[str, Any] = {
    "P-256": ec.generate_private_key(ec.SECP256R1()),
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "P-521": ec.generate_private_key(ec.SECP521R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    "RSA": rsa.generate_private_key(65537, 2048),
}
PAIRS = [(kind, algorithm) for kind, algorithms in ALGORITHMS.items() for algorithm in algorithms]
HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8, password: bytes | None = None) -> str:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    text: bytes = key.private_bytes(Encoding.PEM, form, encryption)
    return text.decode()


PEMS = {kind: pem(key) for kind, key in KEYS.items()}


def decoded(part: str) -> bytes:
    assert "=" not in part
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def verified(jwt: str, key: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the claims of a JWT. Raises InvalidSignature."""
    head, body, signature = jwt.split(".")
    header = json.loads(decoded(head))
    algorithm, message, public, raw = header["alg"], f"{head}.{body}".encode(), key.public_key(), decoded(signature)
    if algorithm == "EdDSA":
        public.verify(raw, message)
    elif algorithm.startswith("ES"):
        size = (public.key_size + 7) // 8
        assert len(raw) == 2 * size
        der = utils.encode_dss_signature(int.from_bytes(raw[:size], "big"), int.from_bytes(raw[size:], "big"))
        public.verify(der, message, ec.ECDSA(HASHES[algorithm[2:]]))
    elif algorithm.startswith("PS"):
        digest = HASHES[algorithm[2:]]
        public.verify(raw, message, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
    else:
        public.verify(raw, message, padding.PKCS1v15(), HASHES[algorithm[2:]])
    return header, json.loads(decoded(body))


def refusal(private_key: Any, algorithm: Any = None) -> str:
    """What the ValueError says, which holds nothing of the key, nor does any error it came from."""
    with pytest.raises(ValueError, match=r"^(private_key|signing_algorithm=)") as caught:
        check_key(private_key, algorithm)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    said = str(caught.value)
    text = private_key if isinstance(private_key, str) else private_key.decode("latin-1")
    assert [line for line in text.splitlines() if len(line) > 8 and "-----" not in line and line in said] == []
    return said


@pytest.mark.parametrize(("kind", "algorithm"), PAIRS)
def test_an_assertion_verifies_with_the_public_key(kind: str, algorithm: str) -> None:
    jwt = client_assertion(PEMS[kind], algorithm, "client-1", "https://as.example", NOW)
    header, claims = verified(jwt, KEYS[kind])
    assert header == {"typ": "JWT", "alg": algorithm}
    assert len(claims.pop("jti")) >= 16
    assert claims == {
        "iss": "client-1",
        "sub": "client-1",
        "aud": "https://as.example",
        "iat": 1_790_000_000,
        "exp": 1_790_000_000 + LIFETIME,
    }
    assert LIFETIME <= 300


@pytest.mark.parametrize("kind", list(ALGORITHMS))
def test_a_signature_is_of_this_key_and_of_these_claims(kind: str) -> None:
    one, other = (client_assertion(PEMS[kind], None, name, "https://as.example", NOW) for name in ("one", "other"))
    head, _, signature = one.split(".")
    with pytest.raises(InvalidSignature):
        verified(".".join([head, other.split(".")[1], signature]), KEYS[kind])


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [("P-256", "ES256"), ("P-384", "ES384"), ("P-521", "ES512"), ("Ed25519", "EdDSA"), ("RSA", "RS256")],
)
def test_the_default_algorithm_is_that_of_the_kind(kind: str, algorithm: str) -> None:
    assert check_key(PEMS[kind]) == algorithm
    header, _ = verified(client_assertion(PEMS[kind], None, "c", "a", NOW), KEYS[kind])
    assert header["alg"] == algorithm


def test_no_two_assertions_are_the_same() -> None:
    made = [client_assertion(PEMS["Ed25519"], None, "c", "a", NOW) for _ in range(50)]
    assert len({verified(jwt, KEYS["Ed25519"])[1]["jti"] for jwt in made}) == 50


@settings(max_examples=50, deadline=None)
@given(st.text(), st.text(), st.floats(0, 1e11))
def test_claims_arrive_as_they_were_given(client_id: str, audience: str, now: float) -> None:
    _, claims = verified(client_assertion(PEMS["P-256"], "ES256", client_id, audience, now), KEYS["P-256"])
    assert (claims["iss"], claims["sub"], claims["aud"]) == (client_id, client_id, audience)
    assert now - 1 < claims["iat"] <= now
    assert claims["exp"] - claims["iat"] == LIFETIME


@pytest.mark.parametrize("kind", ["P-256", "RSA"])
def test_the_forms_that_tools_write_are_read(kind: str) -> None:
    traditional = pem(KEYS[kind], PrivateFormat.TraditionalOpenSSL)
    assert "PRIVATE KEY" in traditional
    for text in (traditional, PEMS[kind].replace("\n", "\r\n"), f"a note, é\n{PEMS[kind]}", PEMS[kind].strip()):
        assert check_key(text) == check_key(text.encode()) == ALGORITHMS[kind][0]


@pytest.mark.parametrize("kind", list(ALGORITHMS))
@pytest.mark.parametrize(
    "algorithm", ["none", "None", "", "HS256", "HS384", "HS512", "ES256K", "ES521", "RS1", "rs256"]
)
def test_secrets_no_signature_and_unknown_algorithms_are_refused(kind: str, algorithm: str) -> None:
    assert "signing_algorithm" in refusal(PEMS[kind], algorithm)


@pytest.mark.parametrize("kind", list(ALGORITHMS))
def test_algorithms_of_other_keys_are_refused(kind: str) -> None:
    for algorithm in {algorithm for _, algorithm in PAIRS} - set(ALGORITHMS[kind]):
        assert kind in refusal(PEMS[kind], algorithm)
        with pytest.raises(ValueError, match="does not go with"):
            client_assertion(PEMS[kind], algorithm, "c", "a", NOW)


@pytest.mark.parametrize("kind", list(ALGORITHMS))
def test_a_key_with_a_password_is_named_as_one(kind: str) -> None:
    forms = [PrivateFormat.PKCS8] + ([] if kind == "Ed25519" else [PrivateFormat.TraditionalOpenSSL])
    for form in forms:
        assert "password" in refusal(pem(KEYS[kind], form, b"correct horse"))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (pem(rsa.generate_private_key(65537, 1024)), "1024 bits"),
        (pem(ec.generate_private_key(ec.SECP256K1())), "secp256k1"),
        (pem(ec.generate_private_key(ec.SECP224R1())), "secp224r1"),
        (pem(x25519.X25519PrivateKey.generate()), "no kind"),
        (pem(ed448.Ed448PrivateKey.generate()), "no kind"),
        (pem(dsa.generate_private_key(2048)), "no kind"),
        (pem(KEYS["P-256"], PrivateFormat.OpenSSH), "OpenSSH"),
        (
            KEYS["P-256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
            "public key",
        ),
        ("/etc/keys/client.pem", "not its name"),
        ("", "not its name"),
        (PEMS["RSA"].replace("\n", "\\n"), "line breaks"),
        (PEMS["RSA"][:-300], "cannot be read"),
        (PEMS["RSA"].replace("A", "\ud800", 3), "cannot be read"),
        (PEMS["P-256"] + " " * LONGEST_KEY, "longer than"),
    ],
    ids=lambda value: value if len(value) < 20 else "pem",
)
def test_what_is_no_usable_key_is_refused_in_words(key: str, said: str) -> None:
    assert said in refusal(key)


@pytest.mark.parametrize("wrong", [None, 5, Path("key.pem"), KEYS["P-256"], ["-----BEGIN PRIVATE KEY-----"]])
def test_a_key_is_text(wrong: Any) -> None:
    with pytest.raises(TypeError, match="private_key must be the text of a PEM file"):
        check_key(wrong)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(PEMS)), st.integers(0, 2000), st.integers(0, 60), st.text(max_size=20))
def test_a_damaged_key_is_refused_or_read_and_nothing_else(kind: str, start: int, length: int, put: str) -> None:
    text = PEMS[kind]
    damaged = text[:start] + put + text[start + length :]
    try:
        assert check_key(damaged) in ALGORITHMS[kind]
    except ValueError as error:
        refused = error
    else:
        return
    assert str(refused).startswith("private_key ")
    assert refused.__context__ is None


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_refused(data: bytes, framed: bool) -> None:
    if framed:
        data = b"-----BEGIN PRIVATE KEY-----\n" + data + b"\n-----END PRIVATE KEY-----\n"
    with pytest.raises(ValueError, match=r"^private_key "):
        check_key(data)


@pytest.mark.parametrize("missing", ["jwt", "cryptography"])
def test_without_the_packages_the_error_says_what_to_install(missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from snodo_client.auth import dpop, signing
for use in (lambda: signing.require("private_key"), lambda: signing.check_key("x"), dpop.ProofKey.new):
    try:
        use()
    except ValueError as error:
        print(error)
"""
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    needs = "needs PyJWT and cryptography: pip install 'snodo_client[oauth]'"
    assert printed.stdout.splitlines() == [f"private_key {needs}", f"private_key {needs}", f"DPoP {needs}"]


def test_another_package_of_that_name_does_not_pass_for_pyjwt(tmp_path: Path) -> None:
    (tmp_path / "jwt").mkdir()
    (tmp_path / "jwt" / "__init__.py").write_text("class JWT: pass\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r});from snodo_client.auth.signing import require; require('x')"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ValueError: x needs PyJWT and cryptography" in ended.stderr


def test_importing_the_modules_imports_no_package() -> None:
    program = (
        "import sys; import snodo_client.auth.dpop, snodo_client.auth.signing;"
        "print(sorted({'jwt', 'cryptography', 'requests'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"
