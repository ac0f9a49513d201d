"""How `auth=` gets into a request, and what follows when a server refuses it: the two moments of a signature.

Both are inside the exchange, so nothing of requests has a say in them: not netrc, redirects or response hooks. What is
sent again after a refusal was not run: the server said so. An authenticator is asked in the thread of the exchange, in
its time; what it raises is told by the name of the exception only, for what it says may be a secret.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Protocol

from .. import checks
from ..engine.flight import Flight
from ..outcome import McpError, local_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ..engine.call import Call
    from ..protocol.challenges import Challenge
    from .http_adapter import Outgoing
    from .http_options import HttpOptions

REFUSALS = (401, 403)
_TOKEN = re.compile(r"[\x21-\x7e]+")


class Signature(Protocol):
    """The credential of one exchange. `renews`: whether a refusal says that another credential was looked for in vain,
    rather than that the given one is no good.
    """

    renews: bool

    def apply(self, outgoing: Outgoing) -> None:
        """Put the credential into a request that is about to be sent. Raises McpError when there can be none."""

    def heard(self, headers: Mapping[str, str]) -> None:
        """The head of the answer is there, whatever it is."""

    def answers(self, status: int, found: Sequence[Challenge]) -> bool:
        """Whether there may be a better credential after such a refusal. Nothing is asked for it yet."""

    def renew(self) -> bool:
        """Get the better credential. True when the request is to be sent again with it; False for the refusal. Raises
        McpError when the way to it failed.
        """


class Signer(Protocol):
    """What makes the signatures for one endpoint."""

    def begin(self, call: Call | None) -> Signature:
        """For one exchange of the call; None for one that is never sent, and for which nothing is to be waited for."""


class TokenProvider(Protocol):
    """Gives the bearer tokens of a server: one of your own, for `auth=`. Called from any thread; None for no token."""

    def token(self) -> str | None:
        """The token to send now. Called for each request."""

    def refresh(self, challenge: Challenge | None) -> str | None:
        """Another token, after the server refused the one that `token` gives: with 401, or with 403 and the error
        "insufficient_scope". Called by one thread at a time; the others wait for what it gives.
        """


def signer(auth: Any, options: HttpOptions) -> Signer | None:
    """What signs for `auth`: None where nothing does, and for a token, which is a header like others. Raises TypeError
    for what is neither a token, a callable, a provider, an authenticator nor `OAuth`.
    """
    if auth is None or isinstance(auth, str):
        return None
    if isinstance(auth, type):
        raise TypeError(f"auth must be an instance, not the class {auth.__name__}")
    for_server = getattr(auth, "for_server", None)
    if callable(for_server):
        made: Signer = for_server(options)
        return made
    if callable(getattr(auth, "token", None)) and callable(getattr(auth, "refresh", None)):
        return _Provider(auth)
    checks.callback(auth, "auth", "a token, a callable, a token provider, a requests authenticator or OAuth")
    return _Authenticator(auth) if _takes_a_request(auth) else _Tokens(auth)


def _takes_a_request(auth: Any) -> bool:
    """Whether a callable is called with the request, as requests does, rather than without arguments."""
    known = sys.modules.get("requests.auth")  # who has one has imported it
    if known is not None and isinstance(auth, known.AuthBase):
        return True
    from inspect import signature

    try:
        parameters = signature(auth)
    except (TypeError, ValueError):  # of some builtins it cannot be told
        return False
    try:
        parameters.bind()
    except TypeError:
        return True
    return False


class _Final:
    """A signature for which every refusal is final."""

    __slots__ = ()

    renews = False

    def heard(self, headers: Mapping[str, str]) -> None:
        pass

    def answers(self, status: int, found: Sequence[Challenge]) -> bool:
        return False

    def renew(self) -> bool:
        return False


class _Authenticator(_Final):
    """A requests authenticator: of what it does to a request, only the headers it sets count."""

    __slots__ = ("_auth",)

    def __init__(self, auth: Any) -> None:
        self._auth = auth

    def begin(self, call: Call | None) -> _Authenticator:
        return self

    def apply(self, outgoing: Outgoing) -> None:
        from requests import PreparedRequest
        from requests.structures import CaseInsensitiveDict

        request = PreparedRequest()
        request.method, request.url, request.body = outgoing.method, outgoing.url, outgoing.body
        request.headers = CaseInsensitiveDict(outgoing.headers)
        made: dict[str, Any] = _asked(lambda: dict((self._auth(request) or request).headers))
        added = {name: value for name, value in made.items() if outgoing.headers.get(name) != value}
        if not all(isinstance(name, str) and isinstance(value, str) for name, value in added.items()):
            raise local_error("transport_failure", "auth= set a header that is not text")
        outgoing.headers = made  # type: ignore[assignment]
        outgoing.secret.update(added)


class _Tokens:
    """A callable that gives the token for each request."""

    __slots__ = ("_give",)

    def __init__(self, give: Callable[[], object]) -> None:
        self._give = give

    def begin(self, call: Call | None) -> _Asked:
        return _Asked(self._give, None, None, call)


class _Provider:
    """A token provider, asked for another token by one thread at a time."""

    __slots__ = ("_flight", "_provider")

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider
        self._flight: Flight[tuple[str | None]] = Flight("renewing the token")

    def begin(self, call: Call | None) -> _Asked:
        return _Asked(self._provider.token, self._provider.refresh, self._flight, call)


class _Asked:
    """The signature of a callable or a provider: at most two tokens are tried."""

    __slots__ = ("_call", "_challenge", "_flight", "_given", "_refresh", "_sent", "_token", "_tried")

    renews = False

    def __init__(
        self,
        token: Callable[[], object],
        refresh: Callable[[Challenge | None], object] | None,
        flight: Flight[tuple[str | None]] | None,
        call: Call | None,
    ) -> None:
        self._token, self._refresh, self._flight, self._call = token, refresh, flight, call
        self._sent: str | None = None
        self._given: str | None = None  # by the refresh
        self._tried = False
        self._challenge: Challenge | None = None

    def apply(self, outgoing: Outgoing) -> None:
        self._sent = token = self._given or _checked(_asked(self._token))
        if token is not None:
            outgoing.headers["Authorization"] = outgoing.secret["Authorization"] = f"Bearer {token}"

    def heard(self, headers: Mapping[str, str]) -> None:
        pass

    def answers(self, status: int, found: Sequence[Challenge]) -> bool:
        from ..protocol.challenges import chosen

        self._challenge = chosen(found)
        scope = self._challenge is not None and self._challenge.error == "insufficient_scope"
        return not self._tried and (status == 401 or (scope and self._refresh is not None))

    def renew(self) -> bool:
        self._tried = True
        if self._refresh is None or self._flight is None or self._call is None:
            self._given = _checked(_asked(self._token))
        else:
            renewed = self._flight.run(lambda _: self._renewed(), self._call.deadline, self._call.unsettled)
            if isinstance(renewed, McpError):
                raise renewed
            self._given = renewed[0]
        return self._given is not None and self._given != self._sent

    def _renewed(self) -> tuple[str | None] | McpError:
        """The token that another thread got meanwhile, else the one of a refresh."""
        assert self._refresh is not None
        refresh = self._refresh
        try:
            current = _checked(_asked(self._token))
            if current is not None and current != self._sent:
                return (current,)
            return (_checked(_asked(lambda: refresh(self._challenge))),)
        except McpError as error:
            return error.with_traceback(None)


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as raised:
        problem = f"auth= raised {type(raised).__name__}"
    raise local_error("transport_failure", problem)


def _checked(token: object) -> str | None:
    if token is None:
        return None
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        what = f"{type(token).__name__}, not a token"
        if isinstance(token, str):
            what = "a token that cannot be sent: it is empty, or has spaces, line ends or other than ASCII in it"
        raise local_error("transport_failure", f"auth= gave {what}")
    return token
