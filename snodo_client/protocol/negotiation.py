"""Which protocol version to speak, as a generator: it yields what to send and where, is told what came of it, and
returns the verdict.

`engine.opening` drives it and waits; nothing here does. What an error says of its sender is read in `refusals` (spec:
basic/versioning; 2025-11-25: basic/lifecycle).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import McpError, Ok, local_error
from ..reasons import UNSUPPORTED_VERSION
from . import refusals, versions
from .agreement import Agreement, discovered, initialized
from .requests import Request

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Literal

    from ..outcome import Outcome
    from .requests import Identity

CHOSEN = "chosen by protocol="
DISCOVER, INITIALIZE = "server/discover", "initialize"
NOT_ANSWERED = f"{DISCOVER} was not answered"


class Step:
    """What to do next: send `request` and wait for the answer; without one, wait on for what was sent before.

    `where` to send it: on the "same" link, on a "fresh" one, or by the transport that came "before" this one. `beside`:
    what was sent before may still be answered instead. `brief`: the answer has `probe_timeout` seconds, not all that is
    left.
    """

    __slots__ = ("beside", "brief", "request", "where")

    def __init__(
        self,
        request: Request | None,
        where: Literal["same", "fresh", "before"] = "same",
        *,
        beside: bool = False,
        brief: bool = False,
    ) -> None:
        self.request = request
        self.where = where
        self.beside = beside
        self.brief = brief


class Answer:
    """What came of a step: the `outcome` of the request with this `method`. `ended`: the link is gone, after sending
    the request was at least begun.
    """

    __slots__ = ("ended", "method", "outcome")

    def __init__(self, method: str, outcome: Outcome, *, ended: bool = False) -> None:
        self.method = method
        self.outcome = outcome
        self.ended = ended


class Negotiation:
    """One try to agree. `allowed` versions, newest first; `eras` the transport carries; `server` is what errors call
    the other side, and may change on the way; `remembered` an agreement of an earlier time.

    `silence_is_legacy` as in the transport's traits; `has_before`: there is an older transport to fall back on.
    """

    def __init__(
        self,
        allowed: Sequence[str],
        eras: Sequence[str],
        identity: Identity,
        server: str,
        *,
        silence_is_legacy: bool = False,
        has_before: bool = False,
        remembered: Agreement | None = None,
    ) -> None:
        self.server = server
        self._allowed = [version for version in allowed if versions.era(version) in eras]
        self._wanted = list(allowed)
        self._modern = [version for version in self._allowed if version in versions.MODERN]
        self._legacy = [version for version in self._allowed if version in versions.LEGACY]
        self._identity = identity
        self._silence_is_legacy = silence_is_legacy
        self._has_before = has_before
        self._remembered = remembered if remembered is not None and remembered.version in self._allowed else None
        self._steps: list[dict[str, str]] = []
        self._fresh = False  # the link was replaced: there is no third one

    def run(self) -> Generator[Step, Answer, Agreement | McpError]:
        if not self._allowed:
            return self._incompatible(None, "this connection carries none of the versions asked for")
        pinned = all(version in versions.MODERN for version in self._wanted)
        if pinned:
            return self._agreed(Agreement(self._modern[0], why=CHOSEN))
        if self._remembered is not None and self._remembered.era == "modern":
            return self._remembered.again()
        if not self._modern:
            newer = any(version in versions.MODERN for version in self._wanted)
            verdict = yield from self._initialize("this connection carries nothing newer" if newer else CHOSEN)
            return self._with_both_sides(verdict)
        if self._remembered is not None:
            agreement = yield from self._initialize("remembered")
            if not isinstance(agreement, McpError) or not refusals.speaks_for_another_era(agreement):
                return agreement
        return (yield from self._probe())

    # -- the probe

    def _probe(self) -> Generator[Step, Answer, Agreement | McpError]:
        version, refused = self._modern[0], set[str]()
        while True:
            answer = yield from self._ask(Step(Request(DISCOVER).copy(version=version), brief=True))
            outcome = answer.outcome
            if not isinstance(outcome, McpError):
                return (yield from self._discovered(outcome, version))
            if outcome.reason is None and outcome.code == UNSUPPORTED_VERSION:
                other = refusals.another_version(outcome, self._modern, refused)
                if other is None:
                    return (yield from self._refused_version(outcome))
                refused.add(other)
                version = other
                continue
            if answer.ended and self._silence_is_legacy:
                return (yield from self._respawned(outcome))
            if outcome.reason == "timeout" and self._silence_is_legacy and self._legacy:
                return (yield from self._after_silence(outcome))
            if not refusals.legacy_signal(outcome) and not refusals.only_the_probe_is_refused(outcome):
                return outcome
            if not self._legacy:
                return self._unknown_server(outcome)
            return (yield from self._initialize(f"server/discover was answered by {refusals.shown(outcome)}", outcome))

    def _discovered(self, outcome: Outcome, asked: str) -> Generator[Step, Answer, Agreement | McpError]:
        if not isinstance(outcome, Ok):
            return local_error("invalid_result", f"{self.server} answered {DISCOVER} by asking for input")
        supported = outcome.value.get("supportedVersions")
        if not isinstance(supported, list) or not all(isinstance(version, str) for version in supported):
            return local_error(
                "invalid_result", f"{self.server} answered {DISCOVER} without a list of supportedVersions"
            )
        version = versions.mutual(self._modern, supported)
        if version is not None:
            return self._agreed(discovered(outcome.value, version, f"{DISCOVER}, asked with {asked}, lists it"))
        if versions.mutual(self._legacy, supported) is None:
            return self._incompatible(supported, f"{self.server} lists no version this client speaks")
        return (yield from self._initialize(f"{DISCOVER} lists older versions only", outcome, supported=supported))

    def _refused_version(self, refusal: McpError) -> Generator[Step, Answer, Agreement | McpError]:
        if not self._names_older_only(refusal):
            return refusals.no_version_left(refusal, self._allowed, self.server)
        why = f"{DISCOVER} was refused, older versions are named"
        return (yield from self._initialize(why, refusal, supported=refusals.supported(refusal)))

    def _names_older_only(self, refusal: McpError) -> bool:
        supported = refusals.supported(refusal)
        return versions.mutual(self._modern, supported) is None and versions.mutual(self._legacy, supported) is not None

    def _after_silence(self, silence: McpError) -> Generator[Step, Answer, Agreement | McpError]:
        """Nobody answers. It may be an old server, or a new one that takes long to start: both questions are open now,
        and the first answer that tells decides.
        """
        step = Step(self._identity.initialize(self._legacy[0]), beside=True, brief=True)
        errors = {DISCOVER: silence}
        refused: set[str] = set()
        while True:
            answer = yield from self._ask(step)
            outcome, step = answer.outcome, Step(None)
            if answer.ended:
                return (yield from self._respawned(outcome))
            if not isinstance(outcome, McpError):
                if answer.method == INITIALIZE:
                    return self._initialized(outcome, NOT_ANSWERED)
                return (yield from self._discovered(outcome, self._modern[0]))
            if answer.method == INITIALIZE and outcome.reason is not None:
                if INITIALIZE not in errors:
                    return _both_unanswered(outcome)
                return (yield from self._refused_beside(errors))
            if answer.method == DISCOVER and not refusals.legacy_signal(outcome):
                if outcome.reason is not None or outcome.code != UNSUPPORTED_VERSION:
                    return outcome
                version = refusals.another_version(outcome, self._modern, refused)
                if version is not None:
                    refused.add(version)
                    step = Step(Request(DISCOVER).copy(version=version), beside=True, brief=True)
                    continue
                if not self._names_older_only(outcome):
                    return refusals.no_version_left(outcome, self._allowed, self.server)
            errors[answer.method] = outcome
            if INITIALIZE in errors and errors[DISCOVER] is not silence:
                return (yield from self._refused_beside(errors))

    def _refused_beside(self, errors: dict[str, McpError]) -> Generator[Step, Answer, Agreement | McpError]:
        """The handshake was refused, and no more is to be expected of the probe."""
        refusal, probed = errors[INITIALIZE], errors[DISCOVER]
        named = refusals.supported(refusal)
        if versions.mutual(self._legacy, named) in (None, self._legacy[0]):
            return self._unknown_server(refusal, probed)
        return (yield from self._initialize(NOT_ANSWERED, probed, supported=named))

    def _respawned(self, end: Outcome) -> Generator[Step, Answer, Agreement | McpError]:
        """The server ended at the probe, as some old ones do: once more, without it."""
        assert isinstance(end, McpError)
        if self._fresh or not self._legacy:
            return end
        return (yield from self._initialize("it ended at server/discover", end, fresh=True))

    # -- the handshake of the legacy era

    def _initialize(
        self, why: str, probed: Outcome | None = None, *, supported: object = None, fresh: bool = False
    ) -> Generator[Step, Answer, Agreement | McpError]:
        version = versions.mutual(self._legacy, supported) or self._legacy[0]
        if fresh:
            self._fresh = True
        answer = yield from self._ask(Step(self._identity.initialize(version), "fresh" if fresh else "same"))
        outcome = answer.outcome
        other = versions.mutual(self._legacy, refusals.supported(outcome)) if isinstance(outcome, McpError) else None
        if isinstance(outcome, McpError) and outcome.reason is None and other not in (None, version):
            answer = yield from self._ask(Step(self._identity.initialize(str(other))))
            outcome = answer.outcome
        if not isinstance(outcome, McpError):
            return self._initialized(outcome, why)
        if answer.ended and self._silence_is_legacy:
            if self._fresh:
                return _exited_twice(outcome)
            if probed is not None:
                return (yield from self._respawned(outcome))
        if probed is not None and self._has_before and refusals.may_be_sse(outcome):
            return (yield from self._before(outcome, why, probed))
        if probed is None or not refusals.speaks_for_another_era(outcome):
            return outcome
        return self._unknown_server(outcome, probed)

    def _before(self, refusal: McpError, why: str, probed: Outcome) -> Generator[Step, Answer, Agreement | McpError]:
        """The last resort over HTTP: the transport of 2024-11-05."""
        answer = yield from self._ask(Step(self._identity.initialize(self._legacy[0]), "before"))
        outcome = answer.outcome
        if isinstance(outcome, McpError):
            return self._unknown_server(refusal, probed, f"; nor does it serve HTTP+SSE ({refusals.shown(outcome)})")
        return self._initialized(outcome, f"{why}, initialize by {refusals.shown(refusal)}, HTTP+SSE is served")

    def _initialized(self, outcome: Outcome, why: str) -> Agreement | McpError:
        if not isinstance(outcome, Ok):
            return local_error("invalid_result", f"{self.server} answered {INITIALIZE} by asking for input")
        version = outcome.value.get("protocolVersion")
        if not isinstance(version, str) or not isinstance(outcome.value.get("capabilities"), dict):
            text = f"{self.server} answered {INITIALIZE} without a protocolVersion and capabilities"
            return local_error("invalid_result", text)
        if version not in self._legacy:
            return self._incompatible([version], f"{self.server} answered {INITIALIZE} with {version[:32]!r}")
        return self._agreed(initialized(outcome.value, version, f"{why}; {INITIALIZE} agreed on it"))

    # -- what is recorded, and the ends

    def _ask(self, step: Step) -> Generator[Step, Answer, Answer]:
        request = step.request
        if request is not None:
            version = request.params.get("protocolVersion", request.version)
            where = {"same": "", "fresh": " on a new link", "before": " over HTTP+SSE"}[step.where]
            self._steps.append({"sent": f"{request.method} ({version}){where}", "received": "nothing"})
        answer = yield step
        for record in reversed(self._steps):
            if record["sent"].startswith(answer.method):
                record["received"] = refusals.shown(answer.outcome)
                break
        return answer

    def _agreed(self, agreement: Agreement) -> Agreement:
        agreement.steps = self._steps
        agreement.pinned = len(self._wanted) == 1
        return agreement

    def _with_both_sides(self, verdict: Agreement | McpError) -> Agreement | McpError:
        """A refusal of all that may be spoken, when the server names what it speaks instead, names both."""
        if not isinstance(verdict, McpError) or verdict.reason is not None:
            return verdict
        supported = refusals.supported(verdict)
        if verdict.code != UNSUPPORTED_VERSION and not refusals.named(supported):
            return verdict
        why = f"{self.server} refused {INITIALIZE} with {refusals.shown(verdict)} ({verdict.message[:300]})"
        return refusals.incompatible(self._allowed, supported, why, cause=verdict)

    def _unknown_server(self, refusal: McpError, probed: Outcome | None = None, more: str = "") -> McpError:
        """The error for what may be a server of another era, and may as well be none at all, or none at this place."""
        said = refusal.message
        if refusal.reason is None:
            method = DISCOVER if probed is None else INITIALIZE
            said = f"{self.server} refused {method} with {refusals.shown(refusal)} ({said[:300]})"
        if probed is not None:
            text = f" ({probed.message[:300]})" if isinstance(probed, McpError) and probed.reason is None else ""
            more = f"; before that, {DISCOVER}: {refusals.shown(probed)}{text}{more}"
        oldest, newest = self._allowed[-1], self._allowed[0]
        speaks = newest if oldest == newest else f"{oldest} to {newest}"
        details = refusal.data if isinstance(refusal.data, dict) and refusal.reason is not None else {}
        return local_error(
            "incompatible_versions",
            f"{said}{more}; it may be no MCP server, or one that speaks none of {speaks}, as this client does",
            data={
                **details,
                "requested": list(self._allowed),
                "supported": refusals.named(refusals.supported(refusal)),
            },
            cause=refusal,
        )

    def _incompatible(self, supported: object, why: str) -> McpError:
        return refusals.incompatible(self._allowed or self._wanted, supported, why)


def _both_unanswered(error: McpError) -> McpError:
    """The error of the handshake, which says of a timeout that the probe was not answered either."""
    if error.reason != "timeout":
        return error
    text = f"{DISCOVER} was not answered, and {error.message}"
    return McpError(error.code, text, kind=error.kind, reason=error.reason, data=error.data, cause=error.cause)


def _exited_twice(end: McpError) -> McpError:
    """The error of a server that ended at the probe, and again without it."""
    text = f"exited twice, at server/discover and, started again, at initialize: {end.message}"
    return McpError(end.code, text, kind=end.kind, reason=end.reason, data=end.data, cause=end.cause)
