"""Redis Streams: consumers of one group, each of which reads a page and acknowledges it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from quothbench.groups.consuming import (
    ConsumerPeer,
    ConsumerWay,
    NumberRange,
    RecordUnit,
    Share,
    new_name,
    ranges_of,
    seconds_of,
)
from quothbench.load.clients import Clients, Ready
from quothbench.load.driver import VALUE
from quothbench.peers.redis import PIPELINES, REDIS, connected

STORED = 300_000
PAGES = {
    RecordUnit.BATCHES: (100, 1_000, 10_000),
    RecordUnit.MESSAGES: (100, 1_000, 10_000),
    RecordUnit.SINGLE: (1_000,),
}
"""Sizes of the pages that are read beside each unit of Quoth's members."""

_STREAM = "shared"


def _store(port: int, records: int = STORED) -> None:
    """Store the records, with the numbers from 1 on as ids."""
    with connected(port) as connection:
        pipeline = connection.pipeline(transaction=False)
        for number in range(1, records + 1):
            pipeline.xadd(_STREAM, {b"v": VALUE}, id=number)
            if number % PIPELINES[0] == 0:
                pipeline.execute()
        pipeline.execute()


def _consume(clients: Clients, port: int, records: int, page: int, look: bool) -> float:
    """Let all clients be consumers of a new group. look: at the value of each message."""
    name = new_name()
    with connected(port) as connection:
        connection.xgroup_create(_STREAM, name, 0)
        shares = [(port, name, f"member-{number}", page, look) for number in range(clients.count)]
        done = clients.run(_member, *shares)
        assert not connection.xpending(_STREAM, name)["pending"], "all are acknowledged"
        connection.xgroup_destroy(_STREAM, name)
    return seconds_of(done, records)


def _member(ready: Ready, port: int, group: str, member: str, page: int, look: bool) -> Share:
    """Read and acknowledge pages until there are no more records."""
    ranges: list[NumberRange] = []
    seen = 0
    with connected(port) as connection:
        read = partial(connection.xreadgroup, group, member, {_STREAM: ">"}, count=page)
        acknowledge = partial(connection.xack, _STREAM, group)
        ready()
        ended = time.monotonic()
        while found := read():
            ((_, entries),) = found
            if look:
                for _, fields in entries:
                    seen += fields[b"v"] == VALUE
            ids = [name for name, _ in entries]
            acknowledge(*ids)
            ended = time.monotonic()
            ranges += _ranges(ids)
    assert not look or seen == sum(last - first + 1 for first, last in ranges)
    return Share(ranges, ended)


def _ranges(ids: Sequence[bytes]) -> list[NumberRange]:
    """Return the numbers of the records with some ids, which normally follow each other in one page."""
    first, last = map(_number, (ids[0], ids[-1]))
    return [(first, last)] if last - first + 1 == len(ids) else ranges_of(map(_number, ids))


def _number(name: bytes) -> int:
    return int(name.partition(b"-")[0])


REDIS_CONSUMERS = ConsumerPeer(
    REDIS._replace(store=_store),
    [
        ConsumerWay(f"COUNT {page:,}", unit, STORED, _consume, (page, unit is not RecordUnit.BATCHES))
        for unit, pages in PAGES.items()
        for page in pages
    ],
)
