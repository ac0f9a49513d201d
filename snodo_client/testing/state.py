"""The `requestState` of an input round: the answers so far, signed, so that the server keeps nothing between attempts.

The signature also covers the request and the principal, and the state expires: replayed elsewhere, or later, it is
refused (spec: basic/patterns/mrtr, server requirements).
"""

from __future__ import annotations

import json
import os
import time
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import Any

LIFETIME = 3600.0  # seconds


class Sealer:
    """Makes and opens states with a random key of its own."""

    __slots__ = ("_key",)

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def seal(self, answers: dict[str, Any], attempts: int, subject: Any) -> str:
        """A state with `answers` and the number of `attempts` made, valid only for `subject` (any JSON value)."""
        body = json.dumps([answers, attempts, time.time() + LIFETIME], separators=(",", ":")).encode()
        return b2a_base64(self._sign(body, subject) + body, newline=False).decode("ascii")

    def open(self, state: str, subject: Any) -> tuple[dict[str, Any], int]:
        """The answers and the number of attempts; ValueError for one that is not ours, not for `subject`, or old."""
        import hmac

        try:
            sealed = a2b_base64(state.encode("ascii"), strict_mode=True)
        except (Base64Error, UnicodeEncodeError):
            raise ValueError("not a state of this server") from None
        signature, body = sealed[:32], sealed[32:]
        if not hmac.compare_digest(signature, self._sign(body, subject)):
            raise ValueError("not a state of this server and request")
        answers, attempts, expires = json.loads(body)
        if time.time() > expires:
            raise ValueError("the state has expired")
        return answers, attempts

    def _sign(self, body: bytes, subject: Any) -> bytes:
        import hmac

        bound = json.dumps(subject, sort_keys=True, separators=(",", ":")).encode()
        return hmac.digest(self._key, len(bound).to_bytes(8, "big") + bound + body, "sha256")
