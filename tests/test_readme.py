"""What README shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_every_block_is_python() -> None:
    assert len(BLOCKS) >= 5
    for block in BLOCKS:
        compile(block, "README.md", "exec")


def test_the_example_of_a_test_passes() -> None:
    block = next(block for block in BLOCKS if "def test_orders" in block)
    names: dict[str, Any] = {}
    exec(block, names)
    names["test_orders"]()
