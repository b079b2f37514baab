"""A log of numbers for tests of forwarding, and its forwarding progress."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from kit.machine.commands import Ended
from quoth import Client
from quothlog import Log, LogOptions

TOPIC = "readings"


class Forward(Protocol):
    """Forwards a log until its end, to an address that a test has by default."""

    def __call__(self, *options: str, url: str = "") -> Ended:
        """Return the outcome of the command."""


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


def stored(client: Client, topic: str = TOPIC) -> list[bytes]:
    """Read all values of a topic, which must have no gap."""
    found: list[bytes] = []
    for batch in client.batches(topic, on_gap=lambda gap: pytest.fail(f"{gap}")):
        found += batch.values
    return found


def count_of(client: Client) -> int:
    """Count the records of the topic, 0 if there is none yet."""
    return client.topic(TOPIC).count if TOPIC in client.topics() else 0
