"""The version of this library, in a module of its own so that packaging can read it without importing anything."""

from __future__ import annotations

__version__ = "0.1.0"
