"""Consuming: the records that members share, each once, and the time until all are acknowledged."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import chain, pairwise
from typing import Any, NamedTuple

from quothbench.load.clients import ClientResult, Clients
from quothbench.peers.work import Peer
from quothwire.errors import error

NumberRange = tuple[int, int]
"""The first and the last number of consecutive records. A record has one number in all measurements."""


class Share(NamedTuple):
    """The records of one member. ended: the monotonic time of its last ack."""

    ranges: list[NumberRange]
    ended: float


class RecordUnit(StrEnum):
    """A member takes records in these units."""

    BATCHES = "batches"
    MESSAGES = "messages"
    """Those of batches: the value of each is looked at, and a batch is acknowledged."""
    SINGLE = "single messages"
    """The value of each is looked at, and each is acknowledged."""


class ConsumerWay(NamedTuple):
    """A way to share records.

    unit: that of Quoth's members beside this way. consume: lets the clients do it as members. It gets them,
    the address of the server, the number of records and the arguments; it returns the seconds from the
    beginning until all records are acknowledged.
    """

    name: str
    unit: RecordUnit
    records: int
    consume: Callable[..., float]
    arguments: tuple[Any, ...] = ()

    def measure(self, clients: Clients, address: object) -> float:
        """Consume once; return records a second."""
        return self.records / self.consume(clients, address, self.records, *self.arguments)


class ConsumerPeer(NamedTuple):
    """A system, without its own ways, and the ways of its consumers."""

    peer: Peer
    ways: Sequence[ConsumerWay]


def new_name() -> str:
    """Return the name of another group or queue."""
    return f"measured-{secrets.token_hex(4)}"


def ranges_of(numbers: Iterable[int]) -> list[NumberRange]:
    """Return the ranges of numbers in the order of their receipt."""
    ranges: list[NumberRange] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def check_once(ranges: Iterable[NumberRange], records: int) -> None:
    """Check that members have so many records, and none of them twice. Raises `BrokerFailure`."""
    ascending = sorted(ranges)
    counted = sum(last - first + 1 for first, last in ascending)
    repeated = sum(former[1] >= following[0] for former, following in pairwise(ascending))
    if counted != records or repeated:
        text = f"members have got {counted:,} records instead of {records:,}, and {repeated} ranges overlap"
        raise error("internal", text, "each record should be delivered once")


def seconds_of(done: Sequence[ClientResult], records: int) -> float:
    """Return the seconds from the first beginning to the last ack. Raises as `check_once` does."""
    check_once(chain.from_iterable(one.result.ranges for one in done), records)
    return float(max(one.result.ended for one in done) - min(one.began for one in done))
