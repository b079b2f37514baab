"""Quoth: members of one group, and a plain reader of the same topic."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from threading import Event

import quoth
from quoth import NotFound
from quothbench.groups.consuming import NumberRange, check_once, new_name
from quothbench.load.clients import Clients, Ready, elapsed
from quothbench.peers.quoth import send

TOPIC = "shared"
IN_FLIGHT = 100_000
"""Records that all members have at most: the limit of a broker with its defaults."""
LOOK_S = 0.005
"""Pause between two looks whether all records are finished."""


def store(url: str, records: int) -> None:
    """Store the records, sent one by one."""
    with quoth.connect(url) as client:
        send(client, TOPIC, records)


def read(clients: Clients, url: str, records: int) -> float:
    """Read all batches with one plain reader; return the seconds."""
    done = clients.run(_reader, (url,))
    check_once(chain.from_iterable(one.result for one in done), records)
    return elapsed(done)


def consume(clients: Clients, url: str, records: int, records_max: int) -> float:
    """Let all clients be members of a new group; return the seconds until it has finished all records.

    records_max: of a fetch. The deletion of the group ends its members.
    """
    stopped, watching = Event(), list[Future[float]]()
    with quoth.connect(url) as client, ThreadPoolExecutor(1) as pool:
        group = client.group(TOPIC, new_name(), max_in_flight=IN_FLIGHT)
        group.info()

        def watch() -> None:
            watching.append(pool.submit(_finished, group, stopped))

        shares = [(url, group.name, f"member {number}", records_max) for number in range(clients.count)]
        try:
            done = clients.run(_member, *shares, at_begin=watch)
        finally:
            stopped.set()
        ended = watching[0].result()
    check_once(chain.from_iterable(one.result for one in done), records)
    return ended - min(one.began for one in done)


def _finished(group: quoth.ConsumerGroup, stopped: Event) -> float:
    """Delete a group once it has finished all records; return the monotonic time of that."""
    while group.lag().records and not stopped.wait(LOOK_S):
        pass
    ended = time.monotonic()
    group.delete()
    return ended


def _member(ready: Ready, url: str, name: str, member: str, records_max: int) -> list[NumberRange]:
    """Take batches until the group is deleted; each is acknowledged when its body is left."""
    ranges: list[NumberRange] = []
    with (
        quoth.connect(url) as client,
        suppress(NotFound),
        client.group(TOPIC, name, create=False, member=member) as group,
    ):
        ready()
        for batch in group.batches(records_max):
            ranges.append((batch.first, batch.last))
    return ranges


def _reader(ready: Ready, url: str) -> list[NumberRange]:
    with quoth.connect(url) as client:
        ready()
        return [(batch.first, batch.last) for batch in client.batches(TOPIC)]
