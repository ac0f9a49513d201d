"""The `requestState` of an input round: what an attempt leaves for the next, signed, so that the server keeps nothing.

The signature also covers the request and the principal, and the state expires: replayed elsewhere, or later, it is
refused (spec: basic/patterns/mrtr, server requirements). A state that a test has chosen itself can carry nothing: what
belongs to it is kept here.
"""

from __future__ import annotations

import json
import os
import time
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict
from typing import Any

LIFETIME = 3600.0  # seconds
_CHOSEN = 1000  # states of tests' own choice that are kept; then the oldest is forgotten


class Sealer:
    """Makes and opens states with a random key of its own."""

    __slots__ = ("_chosen", "_key")

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._chosen: OrderedDict[str, str] = OrderedDict()

    def seal(self, held: Any, subject: Any) -> str:
        """A state that holds a value, valid only for `subject`; both are any JSON value."""
        body = json.dumps([held, time.time() + LIFETIME], separators=(",", ":")).encode()
        return b2a_base64(self._sign(body, subject) + body, newline=False).decode("ascii")

    def choose(self, state: str, held: Any, subject: Any) -> str:
        """The same for a state whose text is given."""
        if len(self._chosen) >= _CHOSEN:
            self._chosen.popitem(last=False)
        self._chosen[state] = self.seal(held, subject)
        return state

    def open(self, state: str, subject: Any) -> Any:
        """What a state holds; ValueError for one that is not ours, not for `subject`, or old."""
        import hmac

        try:
            sealed = a2b_base64(self._chosen.get(state, state).encode("ascii"), strict_mode=True)
        except (Base64Error, UnicodeEncodeError):
            raise ValueError("not a state of this server") from None
        signature, body = sealed[:32], sealed[32:]
        if not hmac.compare_digest(signature, self._sign(body, subject)):
            raise ValueError("not a state of this server and request")
        held, expires = json.loads(body)
        if time.time() > expires:
            raise ValueError("the state has expired")
        return held

    def _sign(self, body: bytes, subject: Any) -> bytes:
        import hmac

        bound = json.dumps(subject, sort_keys=True, separators=(",", ":")).encode()
        return hmac.digest(self._key, len(bound).to_bytes(8, "big") + bound + body, "sha256")
