"""The facade: `Client`. It checks arguments, builds requests and delegates; protocol, threads and time live in the
rooms below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, overload

from . import checks, targets, tasks
from . import options as _options
from .calls import CANCEL_REASON, ToolCall, cancel_arguments
from .engine.deadline import Deadline
from .engine.session import CLOSE_SECONDS, Session
from .engine.wishes import PLAIN, Wishes
from .outcome import McpError, Ok, Page
from .protocol import requests, subscriptions, tool_headers
from .protocol.agreement import Agreement
from .protocol.requests import Request
from .subscription import subscription
from .tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from types import TracebackType
    from typing import Any, Literal, NoReturn, Self, Unpack

    from .changes import Event
    from .engine.cancelling import CancelReport
    from .engine.roots import Roots
    from .option_types import (
        AnyOptions,
        CallOptions,
        CommonOptions,
        DirectOptions,
        HttpOptions,
        InputCallOptions,
        StdioOptions,
        ToolCallOptions,
        WebSocketOptions,
    )
    from .outcome import Outcome
    from .subscription import Subscription
    from .targets import AnyTarget, CustomTarget, HttpTarget, SseTarget, StdioTarget, WebSocketTarget
    from .transports.base import Transport

    Object = dict[str, Any]
    Kind = Literal["tools", "resources", "resource_templates", "prompts", "tasks"]

MAX_TOTAL_TIMEOUT = 600.0


class Client:
    """One MCP server, called with plain blocking methods that return values: `Ok`, `InputRequired` or `McpError`.

    Make one with `Client.connect` or `Client.direct`. It may be shared by any number of threads; `close()` it, or use
    it in a `with` statement.
    """

    def __init__(self, transport: Transport, options: _options.Options) -> None:
        self._options = options
        self._session = Session(
            transport,
            options.identity,
            options.allowed,
            probe_timeout=options.probe_timeout,
            max_pages=options.max_pages,
            remembered=options.remembered,
            handlers=options.handlers,
            on_log=options.on_log,
            on_notification=options.on_notification,
            on_event=options.on_event,
            on_list_changed=options.on_list_changed,
            max_input_rounds=options.max_input_rounds,
            cache=options.cache,
            validate=options.validate,
        )
        if not options.wait:
            self._session.begin(Deadline(options.timeout))
            return
        ready = None
        try:
            ready = self._session.ready(Deadline(options.timeout))
        finally:
            if ready is None or isinstance(ready, McpError):
                self.close()
        if isinstance(ready, McpError):
            raise ready

    @overload
    @classmethod
    def connect(cls, target: StdioTarget, **options: Unpack[StdioOptions]) -> Self: ...
    @overload
    @classmethod
    def connect(cls, target: HttpTarget, **options: Unpack[HttpOptions]) -> Self: ...
    @overload
    @classmethod
    def connect(cls, target: SseTarget, **options: Unpack[HttpOptions]) -> Self: ...
    @overload
    @classmethod
    def connect(cls, target: WebSocketTarget, **options: Unpack[WebSocketOptions]) -> Self: ...
    @overload
    @classmethod
    def connect(cls, target: CustomTarget, **options: Unpack[CommonOptions]) -> Self: ...
    @overload
    @classmethod
    def connect(cls, target: AnyTarget, **options: Unpack[AnyOptions]) -> Self: ...
    @classmethod
    def connect(cls, target: Any, **options: Any) -> Self:
        """Connect to a server.

        `target` is `("stdio", command, [arguments])`, `("http", url)` or just the URL; for servers of older revisions
        also `("sse", url)` or `("websocket", url)`; or a `Transport`, or a callable that makes one. The options are
        described in `snodo_client.option_types`. Raises McpError when the server cannot be reached or shares no version
        (with `wait=False` calls return that instead), ValueError or TypeError for wrong arguments, before anything is
        opened.
        """
        connection, make = targets.maker(target)
        common, own = _options.split(options, connection)
        transport = make(own)
        _options.check_eras(common, transport.traits.eras, connection)
        del target, options, own, make  # a traceback with locals would show headers, tokens and environment
        return cls(transport, common)

    @classmethod
    def direct(cls, server: Any, **options: Unpack[DirectOptions]) -> Self:
        """A client of a server in this process: a callable `handle(message, context) -> message`, or an `mcp` / FastMCP
        server object.
        """
        from .transports import direct, sdk

        common, own = _options.split(options, "direct")
        if sdk.is_server(server):
            return cls(sdk.SdkTransport(server, **own), common)
        return cls(direct.DirectTransport(server, **own), common)

    # -- what was agreed

    @property
    def server_info(self) -> Object | None:
        """The server's name and version as it gave them, for display only. None when it was not asked (a pinned
        2026-07-28).
        """
        agreement = self._session.agreement
        return agreement.server_info if agreement else None

    @property
    def server_capabilities(self) -> Object | None:
        """The capabilities object the server gave. None when it was not asked (a pinned 2026-07-28)."""
        agreement = self._session.agreement
        return agreement.capabilities if agreement else None

    @property
    def instructions(self) -> str | None:
        """What the server says of how to use it, for a model or a person; None when it said nothing."""
        agreement = self._session.agreement
        return agreement.instructions if agreement else None

    @property
    def protocol_info(self) -> Object:
        """What was preferred and agreed, and why. JSON can carry it, and `remembered=` takes it for another connect.

        preference, pinned; status: "connecting", "ready", "failed" or "closed"; era, version; probed: the method asked
        first; steps: what was sent and what came back; why; server_versions, server_info, server_capabilities,
        instructions; error: why there is no agreement.
        """
        session = self._session
        agreement, error = session.agreement, session.connection.error
        status = "closed" if session.closed else "failed" if error else "ready" if agreement else "connecting"
        return {
            "preference": self._options.preference,
            "status": status,
            **(agreement or Agreement("")).told(),
            "error": error.message if error else None,
        }

    def await_ready(self, timeout: float | None = None) -> Ok[Object] | McpError:
        """Wait until a version is agreed on; `Ok(protocol_info)`. Only a client made with `wait=False` is not ready at
        once.
        """
        ready = self._session.ready(self._deadline({"timeout": timeout}))
        if isinstance(ready, McpError):
            return ready
        return Ok(self.protocol_info) if ready.lost is None else ready.lost.copy()

    # -- calls

    def discover(self, **options: Unpack[CallOptions]) -> Ok[Object] | McpError:
        """`server/discover`: the server's versions, capabilities and instructions (spec: server/discover)."""
        return self._call("server/discover", None, _options.call_options(options))  # type: ignore[return-value]

    def list_tools(self, **options: Unpack[CallOptions]) -> Ok[list[Object]] | McpError:
        """Every tool definition, over all pages. Over HTTP, tools with an invalid `x-mcp-header` annotation are left
        out, with a warning.
        """
        return self._list("tools", _options.call_options(options))

    def list_resources(self, **options: Unpack[CallOptions]) -> Ok[list[Object]] | McpError:
        """Every resource, over all pages."""
        return self._list("resources", _options.call_options(options))

    def list_resource_templates(self, **options: Unpack[CallOptions]) -> Ok[list[Object]] | McpError:
        """Every resource template, over all pages."""
        return self._list("resource_templates", _options.call_options(options))

    def list_prompts(self, **options: Unpack[CallOptions]) -> Ok[list[Object]] | McpError:
        """Every prompt, over all pages."""
        return self._list("prompts", _options.call_options(options))

    def list_page(self, kind: Kind, cursor: str | None = None, **options: Unpack[CallOptions]) -> Ok[Page] | McpError:
        """One page of "tools", "resources", "resource_templates", "prompts" or "tasks"; `cursor` is the `next_cursor`
        of the page before.
        """
        if kind not in requests.LISTS:
            raise ValueError(f"{kind!r} is no list: choose one of {', '.join(requests.LISTS)}")
        given = _options.call_options(options)
        request = self._request(requests.LISTS[kind][0], requests.list_params(cursor), given)
        deadline, wishes = self._deadline(given), self._wishes(given)
        page = self._session.lists.page(kind, request, deadline, given.get("progress"), wishes)
        return page if isinstance(page, McpError) else Ok(page)

    def call_tool(
        self, tool: str | Object, arguments: Object | None = None, **options: Unpack[ToolCallOptions]
    ) -> Outcome:
        """Call a tool by name, or by its definition from `list_tools`, which spares a round trip where a tool mirrors
        arguments in headers, or is to run as a task.
        """
        params = requests.call_tool_params(tool, arguments)
        given = _options.tool_options(options)
        if given.get("task") in (None, False):
            request = self._tool_request(params, given, tool)
            wishes = self._wishes(given, tool)
            return self._session.call(request, self._deadline(given), given.get("progress"), wishes)
        params["task"] = requests.task_params(given["task"])
        if not isinstance(tool, str) and not tasks.allows_task(tool):
            raise ValueError(f"the definition of {tool['name']!r} does not allow task=")
        request = self._request("tools/call", params, given)
        return tasks.begin(self._session, request, tool, self._deadline(given), given.get("progress"))

    def start_tool_call(
        self, tool: str | Object, arguments: Object | None = None, **options: Unpack[InputCallOptions]
    ) -> ToolCall:
        """Begin a tool call and give back its handle at once; it has the keywords of `call_tool` but `task`. The
        timeout counts from now. Progress and handlers run on the thread of the call.
        """
        given = _options.input_options(options)
        request = self._tool_request(requests.call_tool_params(tool, arguments), given, tool)
        progress = given.get("progress")
        session = self._session
        call = session.prepare(request, self._deadline(given), progress)
        handle = ToolCall(session, call)
        handle.start(lambda: session.run(call, progress, self._wishes(given, tool)))
        return handle

    def cancel_all(self, reason: str = CANCEL_REASON, notification_timeout: float = 1.0) -> list[CancelReport]:
        """Cancel every call of this client that is not over, in whatever thread, as `ToolCall.cancel` does; the time is
        for all of them. Subscriptions go on.
        """
        return self._session.cancel_all(*cancel_arguments(reason, notification_timeout))

    @property
    def tasks(self) -> Tasks:
        """Calls made with `task=`, of servers of revision 2025-11-25."""
        return Tasks(self._call, self._list)

    def read_resource(self, uri: str, **options: Unpack[InputCallOptions]) -> Outcome:
        """`resources/read`: the result has `contents`, each with `text` or base64 `blob`."""
        return self._call("resources/read", requests.read_resource_params(uri), _options.input_options(options))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[InputCallOptions]
    ) -> Outcome:
        """`prompts/get`: the result has `messages`. Arguments are strings."""
        return self._call("prompts/get", requests.get_prompt_params(name, arguments), _options.input_options(options))

    def complete(
        self,
        ref: str | Object,
        argument: Mapping[str, str],
        context: Object | None = None,
        **options: Unpack[CallOptions],
    ) -> Ok[Object] | McpError:
        """`completion/complete`: suggestions for `argument` (`{"name": ..., "value": typed so far}`) of a prompt or
        resource template.
        """
        params = requests.complete_params(ref, argument, context)
        return self._call("completion/complete", params, _options.call_options(options))  # type: ignore[return-value]

    def request(self, method: str, params: Object | None = None, **options: Unpack[InputCallOptions]) -> Outcome:
        """Any other request, such as one of an extension. The result is given as sent."""
        if not isinstance(method, str):
            raise TypeError(f"method must be a string, not {type(method).__name__}")
        if method == "subscriptions/listen":
            raise ValueError("subscriptions/listen has no single answer: use client.listen()")
        if method == "initialize":
            raise ValueError("initialize is sent when the client connects: see client.server_info and protocol_info")
        if method.startswith("notifications/"):
            raise ValueError(f"{method} is a notification: use client.notify()")
        return self._call(method, params, _options.input_options(options))

    def ping(self, **options: Unpack[CallOptions]) -> Ok[Object] | McpError:
        """Whether the server answers: `Ok({})`. Revision 2026-07-28 has no ping ("unsupported_operation")."""
        outcome = self._call("ping", None, _options.call_options(options))
        return outcome if isinstance(outcome, McpError) else Ok({})

    def set_log_level(self, level: str, **options: Unpack[CallOptions]) -> Ok[Object] | McpError:
        """The least severe log messages the server is to send from now on: `Ok({})`. In revision 2026-07-28 each call
        says that for itself, by `log_level=` ("unsupported_operation").
        """
        params = {"level": requests.checked_log_level(level)}
        outcome = self._call("logging/setLevel", params, _options.call_options(options))
        return outcome if isinstance(outcome, McpError) else Ok({})

    def subscribe_resource(self, uri: str, **options: Unpack[CallOptions]) -> Ok[Object] | McpError:
        """Have `on_notification` told when a resource changes ("notifications/resources/updated"). Revision 2026-07-28
        has `listen` for it ("unsupported_operation").
        """
        params = requests.read_resource_params(uri)
        return self._call("resources/subscribe", params, _options.call_options(options))  # type: ignore[return-value]

    def unsubscribe_resource(self, uri: str, **options: Unpack[CallOptions]) -> Ok[Object] | McpError:
        """End what `subscribe_resource` began."""
        params = requests.read_resource_params(uri)
        return self._call("resources/unsubscribe", params, _options.call_options(options))  # type: ignore[return-value]

    def listen(
        self,
        filter: Mapping[str, Any] | Sequence[str],
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        callback: Callable[[Event], object] | None = None,
        buffer: int = 1000,
        meta: Mapping[str, Any] | None = None,
    ) -> Subscription | McpError:
        """Subscribe to changes (spec: basic/patterns/subscriptions): gives a `Subscription` once the server has
        acknowledged it, within `timeout`; it lives on until somebody ends it.

        `filter` is the wire's object, such as `{"toolsListChanged": True, "resourceSubscriptions": [uri]}`, or a list
        of names such as `["notifications/tools/list_changed"]`. `idle_timeout`: end it when for so many seconds nothing
        came, over HTTP not even a comment. `callback` is called with each event on a thread of its own; without it,
        iterate. At most `buffer` events wait; then the oldest are dropped and counted. Before 2026-07-28 changes reach
        `on_notification` instead ("unsupported_operation").
        """
        params = {"notifications": subscriptions.wanted(filter)}
        checks.callback(callback, "callback")
        listening = self._session.listen(
            self._request(subscriptions.LISTEN, params, {"meta": meta}),
            timeout=self._options.timeout if timeout is None else checks.seconds(timeout, "timeout"),
            idle_timeout=None if idle_timeout is None else checks.seconds(idle_timeout, "idle_timeout"),
            buffer=checks.count(buffer, "buffer"),
        )
        return listening if isinstance(listening, McpError) else subscription(listening, callback)

    # -- roots: the folders a server may ask for

    def add_root(self, uri: str | PathLike[str], name: str | None = None) -> Ok[Object]:
        """Offer a folder or file: a `file://` URI, or a `pathlib.Path`. Servers that were told so by
        `client_capabilities=["roots"]` may ask for all of them, and are told of changes. Raises ValueError for other
        text, and where roots were not declared, or `handlers["roots"]` answers.
        """
        return self._roots_changed(self._roots.add(uri, name))

    def remove_root(self, uri: str | PathLike[str]) -> Ok[Object]:
        """Offer it no longer."""
        return self._roots_changed(self._roots.remove(uri))

    def clear_roots(self) -> Ok[Object]:
        """Offer none."""
        return self._roots_changed(self._roots.clear())

    def list_roots(self) -> Ok[list[Object]]:
        """What is offered: objects with a `uri`, maybe a `name`."""
        return Ok(self._options.roots.listed())

    def notify(
        self, method: str, params: Object | None = None, *, timeout: float | None = None
    ) -> Ok[Object] | McpError:
        """Send a notification. `Ok({})` means the transport took it; servers do not answer notifications."""
        if not isinstance(method, str) or not method.startswith("notifications/"):
            raise ValueError(
                f"{method!r} is no notification: their names start with 'notifications/'; use client.request()"
            )
        if method == "notifications/initialized":
            raise ValueError("notifications/initialized is sent when the client connects, where there is a handshake")
        given = dict(requests.checked_object(params, "params"))
        return self._session.notify(method, given, self._deadline({"timeout": timeout}))  # type: ignore[return-value]

    # -- the end

    def close(self) -> None:
        """End every call with a "closed" error and let go of the connection. Bounded, idempotent, from any thread."""
        self._session.close(Deadline(CLOSE_SECONDS))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client belongs to its process: send a ConnectSpec, which connects where it is used")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self.protocol_info
        return f"<Client of {self._session.name}, {info['status']}{', ' + info['version'] if info['version'] else ''}>"

    # -- inside

    def _call(self, method: str, params: Object | None, options: Mapping[str, Any]) -> Outcome:
        request = self._request(method, params, options)
        deadline = self._deadline(options)
        return self._session.call(request, deadline, options.get("progress"), self._wishes(options))

    @staticmethod
    def _wishes(options: Mapping[str, Any], tool: str | Object = "") -> Wishes:
        definition = None if isinstance(tool, str) else tool
        if not options and definition is None:
            return PLAIN
        return Wishes(options.get("answer_input"), options.get("cache", "use"), definition)

    def _tool_request(self, params: Object, options: Mapping[str, Any], tool: str | Object) -> Request:
        request = self._request("tools/call", params, options)
        if isinstance(tool, str) or not self._session.connection.mirrors:
            return request
        annotations = tool_headers.scan(tool.get("inputSchema"))
        if isinstance(annotations, str):
            raise ValueError(f"the definition of {tool['name']!r} cannot be used over HTTP: {annotations}")
        return request.copy(annotations=annotations)

    def _request(self, method: str, params: Object | None, options: Mapping[str, Any]) -> Request:
        if not options:
            return Request(method, params)
        if "input_responses" in options or "request_state" in options:
            answers = requests.retry_params(options.get("input_responses"), options.get("request_state"))
            params = {**requests.checked_object(params, "params"), **answers}
        request = Request(method, params, meta=options.get("meta"), log_level=options.get("log_level"))
        wanted = checks.callback(options.get("progress"), "progress") or options.get("reset_timeout_on_progress")
        if wanted and "progressToken" in request.meta:
            raise ValueError("progress= and reset_timeout_on_progress= bring a progressToken of their own")
        return request

    def _deadline(self, options: Mapping[str, Any]) -> Deadline:
        if not options:
            return Deadline(self._options.timeout)
        timeout = options.get("timeout")
        timeout = self._options.timeout if timeout is None else checks.seconds(timeout, "timeout")
        if "max_total_timeout" in options or "reset_timeout_on_progress" in options:
            total = options.get("max_total_timeout")
            total = MAX_TOTAL_TIMEOUT if total is None else checks.seconds(total, "max_total_timeout")
            return Deadline(timeout, total if options.get("reset_timeout_on_progress") else None)
        return Deadline(timeout)

    @property
    def _roots(self) -> Roots:
        if "roots" not in self._options.identity.capabilities:
            raise ValueError('roots were not declared: connect with client_capabilities=["roots"]')
        if self._options.handlers.has("roots"):
            raise ValueError('handlers["roots"] gives the roots of this client: none can be added')
        return self._options.roots

    def _roots_changed(self, changed: bool) -> Ok[Object]:
        if changed:
            self._session.roots_changed()
        return Ok({})

    def _list(self, kind: Kind, options: Mapping[str, Any]) -> Ok[list[Object]] | McpError:
        request = self._request(requests.LISTS[kind][0], None, options)
        deadline, wishes = self._deadline(options), self._wishes(options)
        items = self._session.lists.whole(kind, request, deadline, options.get("progress"), wishes)
        return items if isinstance(items, McpError) else Ok(items)
