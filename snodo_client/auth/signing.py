"""Private keys, and the assertions that a client signs with them instead of sending a secret (RFC 7523).

PyJWT makes the signatures and `cryptography` reads the keys: they are imported by the first call here. PyJWT would take
any key for any algorithm its family has, and a short RSA key with a warning, so what fits is decided here, when an
option is checked and not in the middle of a flow. Authlib and joserfc were weighed: they do no more of this, and one of
them brings an OAuth client of its own. No text of a key, and no error of a library that has seen one, leaves this
module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checks import choice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    Key: TypeAlias = EllipticCurvePrivateKey | Ed25519PrivateKey | RSAPrivateKey

LIFETIME = 300  # seconds an assertion is good for
LONGEST_KEY = 65536  # characters; an RSA key of 16384 bits has 13000
SHORTEST_RSA = 2048  # bits (RFC 7518, section 3.3)

# What a key of each kind can sign, its default first (RFC 7518, section 3.1; RFC 8037).
ALGORITHMS = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
}
_CURVES = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
_ALL = tuple(algorithm for algorithms in ALGORITHMS.values() for algorithm in algorithms)


def require(why: str) -> None:
    """Raises ValueError, with how to install them, when PyJWT and cryptography are not there. `why` is who asks, such
    as an option: "private_key".
    """
    try:
        from jwt.algorithms import has_crypto  # there is another package that is imported as `jwt`, without this
    except ImportError:
        has_crypto = False
    if not has_crypto:
        raise ValueError(f"{why} needs PyJWT and cryptography: pip install 'snodo_client[oauth]'")


def check_key(private_key: str | bytes, algorithm: str | None = None) -> str:
    """The algorithm that this key signs with: the given one, or the default of its kind.

    `private_key` is the text of an unencrypted PEM file. ES256, ES384 and ES512 go with P-256, P-384 and P-521, EdDSA
    with Ed25519, and RS256 (the default), RS384, RS512, PS256, PS384 and PS512 with RSA of 2048 bits or more.

    Raises TypeError, or ValueError for a key that cannot be read or used, for an algorithm that does not go with it
    ("none" and those with a shared secret never do), and when a package is missing.
    """
    return _checked(private_key, algorithm)[1]


def client_assertion(
    private_key: str | bytes,
    algorithm: str | None,
    client_id: str,
    audience: str,
    now: float,
) -> str:
    """The JWT by which a client shows who it is (private_key_jwt): from and about `client_id`, for `audience`, which is
    the authorization server. `now` is in seconds since 1970; the JWT is good for 300 more, and never the same twice.

    Raises what `check_key` raises. spec: extensions/auth/oauth-client-credentials
    """
    key, algorithm = _checked(private_key, algorithm)
    issued = int(now)
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": issued,
        "exp": issued + LIFETIME,
        "jti": unique(),
    }
    return signed(key, algorithm, claims, {})


def signed(key: Key, algorithm: str, claims: dict[str, object], header: Mapping[str, object]) -> str:
    """A JWT in its compact form. `header` is what it has besides `alg`; `typ` is JWT unless given."""
    import jwt

    return jwt.encode(claims, key, algorithm, {**header})


def unique() -> str:
    """A `jti`: 128 random bits, as text."""
    from secrets import token_urlsafe

    return token_urlsafe(16)


def load_key(private_key: str | bytes) -> tuple[Key, str]:
    """The key in the text of a PEM file, and its kind, one of `ALGORITHMS`. Raises as `check_key` does."""
    if not isinstance(private_key, (str, bytes)):
        raise TypeError(f"private_key must be the text of a PEM file, not {type(private_key).__name__}")
    require("private_key")
    # Not strict: an encoding error would hold the text.
    data = private_key.encode("utf-8", "replace") if isinstance(private_key, str) else private_key
    if len(data) > LONGEST_KEY:
        raise ValueError(f"private_key is longer than {LONGEST_KEY} bytes")
    key = _read(data)
    if isinstance(key, str):  # here, where no other error is being handled: it would be shown, or kept, with this one
        raise ValueError(f"private_key {key}")
    return key


def _checked(private_key: str | bytes, algorithm: str | None) -> tuple[Key, str]:
    if algorithm is not None:
        choice(algorithm, "signing_algorithm", _ALL)
    key, kind = load_key(private_key)
    fitting = ALGORITHMS[kind]
    if algorithm is None:
        return key, fitting[0]
    if algorithm not in fitting:
        raise ValueError(
            f"signing_algorithm={algorithm!r} does not go with a private_key of {kind}: {', '.join(fitting)}"
        )
    return key, algorithm


def _read(data: bytes) -> tuple[Key, str] | str:
    """The key and its kind, or in words what is wrong with the text."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(data, None)
    except TypeError:
        return "is protected by a password: give it decrypted (openssl pkey -in FILE)"
    except (ValueError, UnsupportedAlgorithm):
        return _unreadable(data)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        kind = _CURVES.get(key.curve.name)
        return (key, kind) if kind else f"is on the curve {key.curve.name}: P-256, P-384 or P-521 is needed"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key, "Ed25519"
    if isinstance(key, rsa.RSAPrivateKey):
        bits = key.key_size
        return (key, "RSA") if bits >= SHORTEST_RSA else f"has {bits} bits: RSA needs {SHORTEST_RSA} or more"
    return "is of no kind that signs here: EC, Ed25519 or RSA is needed"


def _unreadable(data: bytes) -> str:
    if b"-----BEGIN " not in data:
        return "must be the text of a PEM file (-----BEGIN PRIVATE KEY-----), not its name"
    if b"OPENSSH PRIVATE KEY" in data:
        return "is in the format of OpenSSH, not PEM (ssh-keygen -p -m PEM -f FILE)"
    if b"PRIVATE KEY" not in data:
        return "is a public key or a certificate"
    if b"\n" not in data.strip():
        return "has lost its line breaks, as in an environment variable"
    return "cannot be read as a private key in PEM form"
