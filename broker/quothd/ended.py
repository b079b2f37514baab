"""How a daemon ended."""

from __future__ import annotations

from enum import IntEnum


class Ended(IntEnum):
    """How it ended, as its exit status: well, while serving, by wrong arguments, before it could start."""

    WELL = 0
    FAILED = 1
    WRONG = 2
    UNSTARTED = 3
