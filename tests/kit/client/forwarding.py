"""A log of numbers for tests of forwarding, and its forwarding progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.machine.commands import Command, Ended
from quoth import Client
from quothlog import Log, LogOptions


class Forwarding:
    """An embedded log of numbers and the topic to which `quoth forward` carries it, named as its folder."""

    def __init__(self, command: Command, client: Client, log: Path) -> None:
        self.command = command
        self.client = client
        self.log = log
        self.topic = log.name

    def __call__(self, *options: str, url: str = "") -> Ended:
        """Forward the log until its end; returns the outcome of the command."""
        return self.command("forward", str(self.log), url or self.client.url, "--once", *options)

    def count(self, *options: str, url: str = "") -> int:
        """Forward the log until its end, silently; returns the number of records that were sent."""
        result = self(*options, "--format", "raw", url=url)
        assert (result.status, result.err) == (0, ""), result
        return int(result.out)

    def fill(self, *numbers: int, batch: int = 5, count_limit: int = 0) -> None:
        values = [value(number) for number in range(*numbers)]
        with Log.open(self.log, options=LogOptions(count_limit=count_limit)) as log:
            for first in range(0, len(values), batch):
                log.append(values[first : first + batch])

    @property
    def mark(self) -> Path:
        """The one mark that lies beside the log."""
        (found,) = self.log.glob("*.forward")
        return found

    @property
    def stored(self) -> list[bytes]:
        return [one.value for one in self.client.read(self.topic, limit=100_000)]


def value(number: int) -> bytes:
    return b"%d" % number


def values(*numbers: int) -> list[bytes]:
    return [value(number) for number in range(*numbers)]


def stored(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for batch in client.batches(topic, on_gap=lambda gap: pytest.fail(f"{gap}")):
        found += batch.values
    return found


def count_of(client: Client, topic: str) -> int:
    """Count the records of a topic, 0 if there is none yet."""
    return client.topic(topic).count if topic in client.topics() else 0
