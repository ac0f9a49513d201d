"""Proofs that a token is used by whom it was given to (RFC 9449, DPoP): the key, the proofs, the servers' nonces.

Each request carries a proof of its own, signed with a key that the authorization server binds the token to, so a stolen
token alone is worth nothing. When to send one is decided elsewhere. PyJWT signs, `cryptography` makes the key, both
imported by the first call; there is no package for proofs that does not bring its own HTTP client. The key is always
P-256 for ES256, which is what servers that know DPoP accept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import signing

if TYPE_CHECKING:
    from typing import NoReturn

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM = "ES256"
MAX_SERVERS = 64  # whose nonces are remembered
MAX_NONCE = 1024  # characters

_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 9449, section 8.1


class ProofKey:
    """A key pair whose public half goes into every proof. It may be used by many threads at once.

    It is kept as its `pem`, by who may keep secrets: it has no readable repr, and is neither pickled nor copied.
    """

    __slots__ = ("_jwk", "_key")

    def __init__(self, key: EllipticCurvePrivateKey) -> None:
        numbers = key.public_key().public_numbers()
        self._key = key
        self._jwk = {
            "kty": "EC",
            "crv": "P-256",
            "x": _base64url(numbers.x.to_bytes(32, "big")),
            "y": _base64url(numbers.y.to_bytes(32, "big")),
        }

    @classmethod
    def new(cls) -> ProofKey:
        """A fresh key. Raises ValueError when PyJWT and cryptography are not installed."""
        signing.require("DPoP")
        from cryptography.hazmat.primitives.asymmetric import ec

        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def load(cls, pem: str) -> ProofKey:
        """The key that was kept as `pem`. Raises ValueError for any other text, and when a package is missing."""
        signing.require("DPoP")
        from cryptography.hazmat.primitives.asymmetric import ec

        key, kind = signing.load_key(pem)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or kind != "P-256":
            raise ValueError(f"a key for DPoP is P-256, not {kind}")
        return cls(key)

    @property
    def pem(self) -> str:
        """The private key as PKCS #8 in PEM form. It is a secret, and not encrypted."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")

    def proof(self, method: str, url: str, now: float, *, token: str | None = None, nonce: str | None = None) -> str:
        """The value of a `DPoP` header for one request; a request that is sent again needs another.

        `method` and `url` are those of the request line; what follows the path of the URL is not signed. `now` is in
        seconds since 1970. `token` is the access token that goes with it, None for the request that asks for one.
        `nonce` is the newest that this server gave.
        """
        claims: dict[str, object] = {
            "jti": signing.unique(),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(now),
        }
        if token is not None:
            claims["ath"] = _digest(token)
        if nonce is not None:
            claims["nonce"] = nonce
        return signing.signed(self._key, ALGORITHM, claims, {"typ": "dpop+jwt", "jwk": self._jwk})

    def __repr__(self) -> str:
        return f"<ProofKey {ALGORITHM}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ProofKey is a secret: it is kept as its .pem, and not pickled or copied")


class Nonces:
    """The newest nonce of each server, by its origin. A server that issues tokens and one that takes them have nonces
    of their own, also at the same origin: each side of a flow keeps its `Nonces`.
    """

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        # In the order heard: the oldest goes first. Replaced, never changed, so that no lock is needed, which a fork
        # could leave locked; a nonce that gets lost in between is asked for again.
        self._newest: dict[str, str] = {}

    def newest(self, origin: str) -> str | None:
        """What the next proof for this server has to hold; None when it never asked for anything."""
        return self._newest.get(origin)

    def heard(self, origin: str, nonce: str | None) -> bool:
        """Keep the `DPoP-Nonce` of an answer, of any status. Whether it can be used: one that is missing, too long or
        not made of the permitted characters is not, and the last one stays.
        """
        if nonce is None or len(nonce) > MAX_NONCE or not _NONCE.fullmatch(nonce):
            return False
        newest = {known: value for known, value in self._newest.items() if known != origin}
        if len(newest) == MAX_SERVERS:
            del newest[next(iter(newest))]
        self._newest = {**newest, origin: nonce}
        return True

    def __repr__(self) -> str:
        return f"<Nonces of {len(self._newest)} servers>"


def _digest(text: str) -> str:
    from hashlib import sha256

    # Tokens and keys are ASCII; what is not is answered by the server, and is no reason to raise here.
    return _base64url(sha256(text.encode("utf-8", "surrogatepass")).digest())


def _base64url(data: bytes) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
