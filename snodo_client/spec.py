"""How to connect, as a value: it can be kept in a module, handed to another process, and connects where it is used.

A client belongs to the process that made it; a `ConnectSpec` belongs to none. It holds no connection, lock or thread,
only the checked arguments of `Client.connect`. The clients that `ConnectSpec.client` shares are kept here, by process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, overload

from . import options as _options
from . import targets
from .client import Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self, Unpack

    from .option_types import AnyOptions, CommonOptions, HttpOptions, StdioOptions, WebSocketOptions
    from .targets import AnyTarget, HttpTarget, SseTarget, StdioTarget, WebSocketTarget
    from .transports.base import Transport

# A server that dies whenever it is started gets a new client no more often than this.
AGAIN_SECONDS = 1.0


class ConnectSpec:
    """A target and the options for it, as `Client.connect` takes them, checked now and connected later.

    Raises ValueError or TypeError for wrong arguments; nothing is opened. A transport itself is no target here, for it
    connects once: give what makes one. Specs with equal arguments are equal, and so are copies of one.

    A spec can be pickled when its parts can: functions must be defined at the top level of a module. The pickle holds
    what the options hold, tokens and environment too: send it only where they may go. `repr` does not show them.
    """

    __slots__ = ("_connection", "_name", "_options", "_origin", "_target")

    @overload
    def __init__(self, target: StdioTarget, **options: Unpack[StdioOptions]) -> None: ...
    @overload
    def __init__(self, target: HttpTarget, **options: Unpack[HttpOptions]) -> None: ...
    @overload
    def __init__(self, target: SseTarget, **options: Unpack[HttpOptions]) -> None: ...
    @overload
    def __init__(self, target: WebSocketTarget, **options: Unpack[WebSocketOptions]) -> None: ...
    @overload
    def __init__(self, target: Callable[[], Transport], **options: Unpack[CommonOptions]) -> None: ...
    @overload
    def __init__(self, target: AnyTarget, **options: Unpack[AnyOptions]) -> None: ...
    def __init__(self, target: Any, **options: Any) -> None:
        connection, make = targets.maker(target)
        if connection == "custom" and hasattr(target, "exchange") and not isinstance(target, type):
            raise TypeError("a transport can be connected once, and only here: give a callable that makes one")
        common, own = _options.split(options, connection)
        if connection == "custom":
            self._name = getattr(target, "__qualname__", type(target).__qualname__)
        else:
            transport = make(own)
            _options.check_eras(common, transport.traits.eras, connection)
            self._name = repr(transport)
        self._connection = connection
        self._target = _frozen(target)
        self._options: dict[str, Any] = _frozen(options)
        self._origin = os.urandom(12)  # copies know each other by it, also where an option cannot be compared

    def connect(self, **overrides: Any) -> Client:
        """A client of one's own: `Client.connect` with the arguments of this spec, and `overrides` in place of some."""
        return Client.connect(self._target, **{**self._options, **overrides})

    def client(self) -> Client:
        """The client that all of this process share: made on first use, in the background (`wait=False`), so that only
        calls can fail. After a fork, and in any other process, it is another one.

        Make a spec once, in a module, not for each request: its client lives as long as the process.

        It is closed when the interpreter exits. When it was closed, or its server is lost for good, the next `client()`
        gives a new one; after a loss no more than one in a second. From any thread.
        """
        with _lock:
            shared = _shared.setdefault(self, Shared())
        return shared.client(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConnectSpec):
            return NotImplemented
        same = self._connection == other._connection and self._target == other._target
        return self._origin == other._origin or (same and self._options == other._options)

    def __hash__(self) -> int:
        return hash((self._connection, self._name))

    def __repr__(self) -> str:
        return f"ConnectSpec({', '.join([self._name, *(f'{name}=...' for name in self._options)])})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        _check_picklable("the target", self._target)
        for name, value in self._options.items():
            _check_picklable(f"{name}=", value)
        return _restored, (self._connection, self._target, self._options, self._name, self._origin)


def _restored(connection: str, target: Any, options: dict[str, Any], name: str, origin: bytes) -> ConnectSpec:
    spec = ConnectSpec.__new__(ConnectSpec)
    spec._connection, spec._target, spec._options, spec._name, spec._origin = connection, target, options, name, origin
    return spec


def _frozen(value: Any) -> Any:
    """A copy that no later change of the caller's containers reaches."""
    if isinstance(value, Mapping):
        return {name: _frozen(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_frozen, value))
    return value


def _check_picklable(what: str, value: Any) -> None:
    """Raises TypeError, naming the part; without the text of the cause, which may show an object with a secret."""
    import pickle

    try:
        pickle.dumps(value)
    except Exception:
        if isinstance(value, dict):
            for name, part in value.items():
                _check_picklable(f"{what.rstrip('=')}[{name!r}]", part)
        if not _others_pickle():
            raise TypeError(
                f"{what} of a ConnectSpec cannot be pickled, it is a {type(value).__name__}: "
                "use plain values, and functions defined at the top level of a module"
            ) from None


def _others_pickle() -> bool:
    """Whether there is a pickler in this program that can do more than Python's: Dask, Ray and joblib bring one."""
    import sys

    return any(name.rpartition(".")[2] in ("cloudpickle", "dill") for name in list(sys.modules))


class Shared:
    """The client of one spec in this process; `made` is the last one, None before the first."""

    __slots__ = ("_again", "_lock", "made")

    def __init__(self) -> None:
        self.made: Client | None = None
        self._again = 0.0  # when a lost one may be replaced
        self._lock = RLock()  # guards making one

    def client(self, spec: ConnectSpec) -> Client:
        client = self.made
        if client is not None and not client._session.closed:
            return client
        with self._lock:
            client = self.made
            if client is None or self._may_replace(client):
                client = self.made = spec.connect(wait=False)
                self._again = monotonic() + AGAIN_SECONDS
            return client

    def _may_replace(self, client: Client) -> bool:
        session = client._session
        return session.connection.closed or (session.closed and monotonic() >= self._again)


_lock = RLock()  # guards the table; clients are made outside it
_shared: dict[ConnectSpec, Shared] = {}


def _forked() -> None:
    """In the child of a fork: those clients are the parent's, and a thread that is not here may hold the lock."""
    global _lock, _shared
    _lock, _shared = RLock(), {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
