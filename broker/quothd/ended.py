"""How a daemon ended."""

from __future__ import annotations

from enum import IntEnum


class Ended(IntEnum):
    """How it ended, as its exit status."""

    WELL = 0
    FAILED = 1  # while it served, or at the end
    WRONG = 2  # arguments or configuration
    UNSTARTED = 3
