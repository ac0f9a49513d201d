"""Write docs/errors.md, the reference of the errors made on this side, from the table in `snodo_client.reasons`.

Run it after a change of the table: `python docs/make_errors.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

TARGET = Path(__file__).with_name("errors.md")

HEAD = """\
# Errors

Made by `docs/make_errors.py` from the table in `snodo_client/reasons.py`; change the table, not this page.

A failed call is an `McpError`. Its `reason` is `None` exactly when the server sent the error; then `code`, `message`
and `data` are the server's own. Every other error was made on this side, and its `reason` is one of the names below.
Branch on `reason` and `kind`: a server may send the same code with a meaning of its own. `data` is always a dict here;
it has those of the keys listed whose values are known.

| reason | code | kind | `data` keys | meaning | what to do |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    sys.path.insert(0, str(TARGET.parents[1]))
    from snodo_client.reasons import REASONS

    rows = [
        (
            f"`{name}`",
            str(row.code),
            row.kind,
            ", ".join(f"`{key}`" for key in row.data) or "none",
            row.meaning,
            row.advice,
        )
        for name, row in sorted(REASONS.items())
    ]
    return HEAD + "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


if __name__ == "__main__":
    TARGET.write_text(page())
