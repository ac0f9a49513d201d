"""Sending through a `requests.Session` of the caller, with its adapters, hooks, certificates, proxies and cookies.

What such a session does with a socket cannot be interrupted, so each exchange runs on a thread of its own, and the
caller's wait ends on time whether that thread does or not; its socket may live on for a while. Answers are read by the
same code as ours.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from requests import HTTPError, Request
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy

from ..engine import threads
from ..engine.deadline import LONGEST_WAIT
from ..engine.mailbox import Empty, Mailbox
from ..outcome import McpError, local_error
from .http_faults import FAULTS, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from requests import PreparedRequest, Session

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from .http_adapter import Outgoing

    Message = dict[str, Any]


class SessionSlots:
    """In the place of slots of our own: leases that send through the session."""

    def __init__(self, session: Session, what: str, connect_timeout: float | None) -> None:
        self.session = session
        self.what = what
        self.connect_timeout = connect_timeout
        self.closed = False
        self._leases: set[SessionLease] = set()
        self.feeds: set[Mailbox[Any]] = set()  # what callers wait for, and threads fill
        _all.add(self)

    def lease(self, call: Call, **_: Any) -> SessionLease:
        lease = SessionLease(call, self)
        self._leases.add(lease)
        return lease

    def give_back(self, lease: SessionLease) -> None:
        self._leases.discard(lease)

    def wake(self, call: Call) -> None:
        """Wake the thread of the call, as far as its socket can be reached."""
        for lease in list(self._leases):
            if lease.call is call:
                lease.kill()

    def close(self) -> None:
        """End every exchange. The session is the caller's, and stays open."""
        self.closed = True
        for lease in list(self._leases):
            lease.call.wake()

    def forked(self) -> None:
        """In the child of a fork: the connections that the session holds open are the parent's."""
        self._leases = set()  # or an exchange that ends here would shut one down
        for feed in self.feeds:
            feed.put(None)  # the thread that feeds it is not here
        for adapter in {id(each): each for each in self.session.adapters.values()}.values():
            if isinstance(adapter, HTTPAdapter):
                # The old ones are kept: emptying them takes locks, which a thread that is not here may hold.
                _of_parents.append((adapter.poolmanager, adapter.proxy_manager))
                adapter.__setstate__(adapter.__getstate__())  # makes new ones, as in another process


_all: WeakSet[SessionSlots] = WeakSet()
_of_parents: list[Any] = []


def _forked() -> None:
    for slots in _all:
        slots.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class SessionLease:
    reusable = True

    def __init__(self, call: Call, slots: SessionSlots) -> None:
        self.call = call
        self.slots = slots
        self._raw: Any = None
        self._outgoing: Any = None

    def begin(self) -> None:
        self.check()

    def check(self) -> None:
        self.call.check()
        if self.slots.closed:
            raise local_error("closed", f"the connection to {self.slots.what} was closed on this side")

    def send(self, outgoing: Outgoing, **_: Any) -> Any:
        session, call, self._outgoing = self.slots.session, self.call, outgoing
        response: Any
        read = call.deadline.left() if call.deadline.max_total is None else min(call.deadline.max_total, LONGEST_WAIT)
        connect = min(call.deadline.left(), self.slots.connect_timeout or LONGEST_WAIT)
        call.sending()
        try:
            prepared = self._prepared(outgoing)
            settings = session.merge_environment_settings(prepared.url, {}, True, None, None)
            outgoing.proxy = select_proxy(prepared.url, settings["proxies"]) or ""
            timeout = (max(connect, 0.001), max(read, 0.001))
            response = session.send(prepared, allow_redirects=False, timeout=timeout, **settings)
        except HTTPError as refused:  # a hook that calls raise_for_status(): we look at the body first
            response = refused.response
        except ValueError:
            self.check()
            error = local_error("transport_failure", "the session refuses to send the request")
            response = None
        except FAULTS as fault:
            error = self.fault(fault)
            response = None
        if response is None:
            if error.reason == "unreachable":
                call.delivery = "not_sent"
            raise error
        self._raw = response.raw
        call.delivery = "accepted"
        self.check()
        return self._raw

    def _prepared(self, outgoing: Outgoing) -> Any:
        """The request with what the session adds to it."""
        session, headers = self.slots.session, outgoing.headers
        # An authenticator that does nothing keeps netrc out.
        auth = _nothing if "Authorization" in headers or session.auth is None else session.auth
        request = Request(outgoing.method, outgoing.url, headers=headers, data=outgoing.body, auth=auth)
        prepared: Any = session.prepare_request(request)
        prepared.register_hook("response", _without_location)
        added = {name: value for name, value in prepared.headers.items() if headers.get(name) != value}
        outgoing.secret.update({name: value for name, value in added.items() if isinstance(value, str)})
        return prepared

    def fault(self, fault: BaseException) -> McpError:
        self.check()
        return error_of(fault, self.slots.what, True, self._outgoing.masking())

    def hurry(self, limit: Deadline) -> None:
        """Nothing: the caller does not wait for this thread."""

    def kill(self) -> None:
        """Wake the thread, where the session's urllib3 can."""
        try:
            self._raw.shutdown()
        except (AttributeError, ValueError, RuntimeError, OSError):
            return

    def release(self, clean: bool) -> None:
        self.slots.give_back(self)
        if self._raw is not None and not clean:
            self._raw.close()


def relay(call: Call, slots: SessionSlots, messages: Iterator[Message]) -> Iterator[Message]:
    """Run *messages* on a thread and yield what it yields, for as long as the call lasts."""
    feed: Mailbox[Message | BaseException | None] = Mailbox()

    def wake() -> None:
        feed.put(None)
        slots.wake(call)

    call.wake = wake
    slots.feeds.add(feed)
    try:
        threads.start("snodo-http-session", _run, messages, feed.put)
        while True:
            try:
                item = feed.get(call.deadline)
            except Empty:
                call.check()
                continue
            if isinstance(item, dict):
                yield item
                continue
            call.check()
            if isinstance(item, BaseException):
                raise item
            if slots.closed:
                raise local_error("closed", f"the connection to {slots.what} was closed on this side")
            return
    finally:
        slots.feeds.discard(feed)
        slots.wake(call)


def _run(messages: Iterator[Message], put: Callable[[Message | BaseException | None], None]) -> None:
    try:
        for message in messages:
            put(message)
    except BaseException as error:
        error.__traceback__ = None
        put(error)
    else:
        put(None)


def _nothing(request: PreparedRequest) -> PreparedRequest:
    return request


def _without_location(response: Any, **_: Any) -> None:
    """requests would read the whole body of a redirect even when told not to follow it."""
    response.headers.pop("location", None)
