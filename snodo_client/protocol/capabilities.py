"""What a client may declare in the older revisions: each knows less than the one after it (2025-11-25: basic/lifecycle;
changelogs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ELICITATION_SINCE = "2025-06-18"
# Of elicitation by URL, of lists in forms, and of tools and several blocks in sampling.
MODES_SINCE = "2025-11-25"
AUDIO_SINCE = "2025-03-26"


def known(capabilities: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The client capabilities as this version knows them; all of them while none is agreed on (an empty version)."""
    if not version or version >= MODES_SINCE:
        return dict(capabilities)
    kept = {name: value for name, value in capabilities.items() if name != "elicitation"}
    if "sampling" in kept:
        kept["sampling"] = {}
    elicitation = capabilities.get("elicitation")
    if version >= ELICITATION_SINCE and elicitation is not None and (not elicitation or "form" in elicitation):
        kept["elicitation"] = {}
    return kept
