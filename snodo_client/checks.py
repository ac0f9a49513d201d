"""Checks of options and keywords that more than one module makes. Each gives the value back, or raises TypeError or
ValueError with the option's name.
"""

from __future__ import annotations

from math import isnan
from typing import Any


def seconds(value: object, name: str) -> float:
    """A positive number of seconds; `math.inf` is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large: use math.inf for no limit") from None
    if isnan(number) or number <= 0:
        raise ValueError(f"{name}={number} must be more than 0 seconds")
    return number


def patience(value: object, name: str) -> float:
    """A number of seconds to wait; 0 only looks."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
        if value:
            raise ValueError(f"{name}={value} must not be negative")
        return 0.0
    return seconds(value, name)


def choice(value: Any, name: str, choices: tuple[str, ...]) -> Any:
    """One of a few texts."""
    if value not in choices:
        raise ValueError(f"{name}={value!r:.40} is not one of {', '.join(choices)}")
    return value


def count(value: object, name: str, least: int = 1) -> int:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}={value} must be at least {least}")
    return value


def callback(value: Any, name: str, what: str = "callable") -> Any:
    """Something callable, or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be {what}, not {type(value).__name__}")
    return value
