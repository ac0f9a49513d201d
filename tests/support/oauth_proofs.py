"""What a server checks of the JWTs that clients send it: DPoP proofs and client assertions.

PyJWT and cryptography are imported when one arrives: a test without them needs neither.
"""

from __future__ import annotations

import hashlib
import json
import time
from base64 import urlsafe_b64encode
from typing import Any

SKEW = 300  # seconds
_MEMBERS = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}


class BadProof(Exception):
    """Why it is refused, in words."""


class UseNonce(Exception):
    """There is no nonce in the proof, or not the one of now."""


def digest(text: str) -> str:
    """As in `ath`, `jkt` and the S256 of PKCE."""
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def thumbprint(jwk: dict[str, Any]) -> str:
    """RFC 7638."""
    members = {name: jwk[name] for name in _MEMBERS[jwk["kty"]]}
    return digest(json.dumps(members, separators=(",", ":"), sort_keys=True))


def dpop(proof: str, method: str, url: str, seen: set[str], *, nonce: str | None, token: str | None = None) -> str:
    """The thumbprint of the key of a DPoP proof (RFC 9449, section 4.3). Its `jti` joins *seen*."""
    import jwt

    try:
        header = jwt.get_unverified_header(proof)
        jwk = header["jwk"]
        if header.get("typ") != "dpop+jwt" or "d" in jwk or "k" in jwk:
            raise BadProof("the header is not that of a proof")
        if header["alg"] not in ("ES256", "ES384", "EdDSA", "RS256", "PS256"):
            raise BadProof(f"alg {header['alg']}")
        key = jwt.PyJWK(jwk, algorithm=header["alg"]).key
        required = ["jti", "htm", "htu", "iat"]
        options: Any = {"require": required, "verify_aud": False}
        claims = jwt.decode(proof, key, algorithms=[header["alg"]], options=options)
    except (jwt.PyJWTError, KeyError, TypeError) as error:
        raise BadProof(f"no proof: {error!r}") from None
    if (claims["htm"], claims["htu"]) != (method, url.partition("?")[0]):
        raise BadProof(f"for {claims['htm']} {claims['htu']}, not {method} {url}")
    if abs(claims["iat"] - time.time()) > SKEW:
        raise BadProof("iat is not now")
    if nonce is not None and claims.get("nonce") != nonce:
        raise UseNonce
    if claims["jti"] in seen:
        raise BadProof("replayed")
    seen.add(claims["jti"])
    if token is not None and claims.get("ath") != digest(token):
        raise BadProof("ath is not that of the token")
    return thumbprint(jwk)


def assertion(text: str, key: str, audience: str, seen: set[str]) -> str:
    """The client id that a client assertion is for (RFC 7523, section 3); *key* is the public key (PEM)."""
    import jwt

    try:
        alg = jwt.get_unverified_header(text)["alg"]
        if alg.startswith("HS") or alg == "none":
            raise BadProof(f"alg {alg}")
        required: Any = {"require": ["iss", "sub", "aud", "exp", "jti"]}
        claims = jwt.decode(text, key, algorithms=[alg], audience=audience, options=required)
    except (jwt.PyJWTError, KeyError, TypeError) as error:
        raise BadProof(f"no assertion: {error!r}") from None
    if claims["iss"] != claims["sub"]:
        raise BadProof("iss and sub differ")
    if claims["jti"] in seen:
        raise BadProof("replayed")
    seen.add(claims["jti"])
    return str(claims["sub"])


def subject(text: str) -> str | None:
    """Whom a client assertion names, before anything of it is checked."""
    import jwt

    try:
        return str(jwt.decode(text, options={"verify_signature": False}).get("sub"))
    except jwt.PyJWTError:
        return None
