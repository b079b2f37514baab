"""A log of numbers for tests of forwarding, and its forwarding progress."""

from __future__ import annotations

from pathlib import Path

from quothlog import Log, LogOptions

TOPIC = "readings"


def value(number: int) -> bytes:
    """Return the value of a number."""
    return b"%d" % number


def fill(directory: Path, numbers: range, batch: int = 7, count_limit: int = 0) -> None:
    """Write numbers to an embedded log."""
    with Log.open(directory, options=LogOptions(count_limit=count_limit)) as log:
        for first in range(numbers.start, numbers.stop, batch):
            log.append([value(number) for number in range(first, min(first + batch, numbers.stop))])


def mark_of(directory: Path) -> Path:
    """The one mark that lies there."""
    (found,) = directory.glob("*.forward")
    return found
