"""Quoth: members of one group, and a plain reader of the same topic."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from threading import Event
from typing import NamedTuple

import quoth
from quoth import NotFound
from quothbench.groups.consuming import NumberRange, RecordUnit, check_once, new_name, ranges_of
from quothbench.load.clients import Clients, Ready, elapsed
from quothbench.load.driver import VALUE
from quothbench.peers.quoth import send

RECORDS_MAX = 10_000
"""Records of a fetch of batches: the default."""
IN_FLIGHT = 100_000
"""Records that all members have at most: the limit of a broker with its defaults."""
LOOK_S = 0.005
"""Pause between two looks whether all records are finished."""


class Taken(NamedTuple):
    """The seconds in which clients have taken all records, and their processor seconds."""

    seconds: float
    cpu: float


def store(url: str, unit: RecordUnit, records: int) -> None:
    """Store the records, sent one by one, in a topic that is named after the unit in which it is read."""
    with quoth.connect(url) as client:
        send(client, unit, records)


def read(clients: Clients, url: str, unit: RecordUnit, records: int) -> Taken:
    """Read all records with one plain reader."""
    done = clients.run(_reader, (url, unit))
    check_once(chain.from_iterable(one.result for one in done), records)
    return Taken(elapsed(done), sum(one.cpu for one in done))


def consume(clients: Clients, url: str, unit: RecordUnit, records: int) -> Taken:
    """Let all clients be members of a new group, until it has finished all records.

    The deletion of the group ends its members.
    """
    stopped, watching = Event(), list[Future[float]]()
    with quoth.connect(url) as client, ThreadPoolExecutor(1) as pool:
        group = client.group(unit, new_name(), max_in_flight=IN_FLIGHT)
        group.info()

        def watch() -> None:
            watching.append(pool.submit(_finished, group, stopped))

        shares = [(url, unit, group.name, f"member {number}") for number in range(clients.count)]
        try:
            done = clients.run(_member, *shares, at_begin=watch)
        finally:
            stopped.set()
        ended = watching[0].result()
    check_once(chain.from_iterable(one.result for one in done), records)
    return Taken(ended - min(one.began for one in done), sum(one.cpu for one in done))


def _finished(group: quoth.ConsumerGroup, stopped: Event) -> float:
    """Delete a group once it has finished all records; return the monotonic time of that."""
    while group.lag().records and not stopped.wait(LOOK_S):
        pass
    ended = time.monotonic()
    group.delete()
    return ended


def _member(ready: Ready, url: str, unit: RecordUnit, name: str, member: str) -> list[NumberRange]:
    """Take records until the group is deleted; they are acknowledged when the body of the loop is left."""
    ranges: list[NumberRange] = []
    pointers: list[int] = []
    with (
        quoth.connect(url) as client,
        suppress(NotFound),
        client.group(unit, name, create=False, member=member) as group,
    ):
        ready()
        if unit is RecordUnit.SINGLE:
            for message in group:
                if message.value == VALUE:
                    pointers.append(message.pointer)
        else:
            for batch in group.batches(RECORDS_MAX):
                if unit is RecordUnit.MESSAGES:
                    _look_at(batch)
                ranges.append((batch.first, batch.last))
    return ranges or ranges_of(pointers)


def _look_at(batch: quoth.Batch) -> None:
    """Look at the value of each message."""
    seen = 0
    for message in batch:
        seen += message.value == VALUE
    assert seen == len(batch)


def _reader(ready: Ready, url: str, unit: RecordUnit) -> list[NumberRange]:
    """Read batches; return the ranges of their pointers."""
    ranges: list[NumberRange] = []
    with quoth.connect(url) as client:
        ready()
        for batch in client.batches(unit):
            if unit is not RecordUnit.BATCHES:
                _look_at(batch)
            ranges.append((batch.first, batch.last))
    return ranges
