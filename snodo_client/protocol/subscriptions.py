"""What a subscription asks for, what of it a server granted, and which notifications belong to it (spec:
basic/patterns/subscriptions).

`listen` opens one with a filter: an object whose members each stand for a kind of notification. The server acknowledges
the part of it that it honours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .requests import PREFIX

if TYPE_CHECKING:
    from typing import Any

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CANCELLED = "notifications/cancelled"
# In the `_meta` of every notification of a subscription: the id of the request that opened it.
SUBSCRIPTION_ID = PREFIX + "subscriptionId"

_URIS = "resourceSubscriptions"
_UPDATED = "notifications/resources/updated"
_SWITCHES = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
# What belongs to a request, and no filter of an extension brings.
_OF_REQUESTS = frozenset({ACKNOWLEDGED, CANCELLED, "notifications/progress", "notifications/message"})


def wanted(filter: object) -> dict[str, Any]:
    """The filter to send: a copy of the wire's object, or the one that a list of notification names stands for.

    Raises TypeError or ValueError for what no server could understand. Members that are not of the protocol are those
    of extensions, and are not looked at.
    """
    if isinstance(filter, Mapping):
        return _checked(filter)
    if not isinstance(filter, (list, tuple, set, frozenset)):
        raise TypeError(
            f"a filter is a mapping such as {{'toolsListChanged': True}}, or a list of notification names, "
            f"not {type(filter).__name__}"
        )
    for name in filter:
        if not isinstance(name, str):
            raise TypeError(f"the name of a notification is a string, not {type(name).__name__}")
        if name not in _SWITCHES:
            hint = f": use {{'{_URIS}': [uri]}}" if name == _UPDATED else f": choose from {', '.join(_SWITCHES)}"
            raise ValueError(f"{name!r} cannot be listened to by its name{hint}")
    return {switch: True for name, switch in _SWITCHES.items() if name in filter}


def _checked(filter: Mapping[str, Any]) -> dict[str, Any]:
    checked = dict(filter)
    for member in checked:
        _refuse_misspelt(member)
    for switch in _SWITCHES.values():
        if not isinstance(checked.get(switch, False), bool):
            raise TypeError(f"{switch} in a filter is True or False, not {type(checked[switch]).__name__}")
    if _URIS in checked:
        uris = checked[_URIS]
        if not isinstance(uris, (list, tuple)) or not all(isinstance(uri, str) for uri in uris):
            raise TypeError(f"{_URIS} in a filter is a list of URIs")
        checked[_URIS] = list(uris)
    return checked


def _refuse_misspelt(member: object) -> None:
    """What is almost a member of the protocol is none of an extension."""
    from difflib import get_close_matches

    known = (*_SWITCHES.values(), _URIS)
    close = get_close_matches(member, known, 1, 0.8) if isinstance(member, str) and member not in known else []
    if close:
        raise ValueError(f"{member!r} in a filter: did you mean {close[0]!r}?")


class Grant:
    """What of a filter a server honours. `accepted` is that part of it, in the wire's form. `surplus` names what was
    acknowledged and not asked for, or not in the form it was asked for.
    """

    __slots__ = ("_extended", "_methods", "accepted", "surplus")

    def __init__(self, asked: Mapping[str, Any], granted: Mapping[str, Any]) -> None:
        self.accepted: dict[str, Any] = {}
        self.surplus: list[str] = []
        self._methods = {
            name for name, switch in _SWITCHES.items() if asked.get(switch) and granted.get(switch) is True
        }
        self._extended = False
        for member, value in granted.items():
            if member in _SWITCHES.values():
                if value is True and asked.get(member):
                    self.accepted[member] = True
                elif value is not False:
                    self.surplus.append(member)
            elif member == _URIS:
                self._grant_uris(asked.get(_URIS, []), value)
            elif member in asked:
                self.accepted[member] = value
                self._extended = True
            else:
                self.surplus.append(member)

    def _grant_uris(self, asked: list[str], granted: object) -> None:
        uris = [uri for uri in granted if isinstance(uri, str)] if isinstance(granted, list) else []
        mine = set(asked)
        if uris and mine:
            # A server that writes a URI in another way still means one of ours: its notifications are wanted.
            self.accepted[_URIS] = [uri for uri in uris if uri in mine]
            self._methods.add(_UPDATED)
        if not isinstance(granted, list) or not mine.issuperset(uris):
            self.surplus.append(_URIS)

    def covers(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether a notification is one of those granted. The URI of an update need not be one of the filter: it may
        be of something inside that resource. What is unknown to the protocol came with an extension's member.
        """
        if method == _UPDATED and not isinstance(params.get("uri"), str):
            return False
        if method in self._methods:
            return True
        known = method in _SWITCHES or method == _UPDATED or method in _OF_REQUESTS
        return self._extended and not known


def granted(asked: Mapping[str, Any], acknowledgement: Mapping[str, Any]) -> Grant | None:
    """What the params of an acknowledgement grant of the filter; None when they say nothing that can be understood."""
    notifications = acknowledgement.get("notifications")
    return Grant(asked, notifications) if isinstance(notifications, Mapping) else None
