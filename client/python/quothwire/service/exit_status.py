"""The exit statuses of the processes that serve."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of a daemon."""

    STOPPED = 0
    FAILED = 1  # while it served, or when it stopped
    WRONG = 2  # arguments or configuration
    NOT_STARTED = 3
