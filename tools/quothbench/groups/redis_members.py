"""Redis Streams: consumers of one group, each of which reads a page and acknowledges it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from quothbench.groups.consuming import ConsumerPeer, ConsumerWay, NumberRange, Share, new_name, seconds_of
from quothbench.load.clients import Clients, Ready
from quothbench.load.driver import VALUE
from quothbench.peers.redis import PIPELINES, REDIS, connected

STORED = 300_000
PAGES = (100, 1_000, 10_000)

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


def _consume(clients: Clients, port: int, records: int, page: int) -> float:
    name = new_name()
    with connected(port) as connection:
        connection.xgroup_create(_STREAM, name, 0)
        shares = [(port, name, f"member-{number}", page) for number in range(clients.count)]
        done = clients.run(_member, *shares)
        assert not connection.xpending(_STREAM, name)["pending"], "all are acknowledged"
        connection.xgroup_destroy(_STREAM, name)
    return seconds_of(done, records)


def _member(ready: Ready, port: int, group: str, member: str, page: int) -> Share:
    """Read and acknowledge pages until there are no more records."""
    ranges: list[NumberRange] = []
    with connected(port) as connection:
        read = partial(connection.xreadgroup, group, member, {_STREAM: ">"}, count=page)
        acknowledge = partial(connection.xack, _STREAM, group)
        ready()
        ended = time.monotonic()
        while found := read():
            ((_, entries),) = found
            ids = [name for name, _ in entries]
            acknowledge(*ids)
            ended = time.monotonic()
            ranges += _ranges(ids)
    return Share(ranges, ended)


def _ranges(ids: list[bytes]) -> Iterator[NumberRange]:
    """Yield the numbers of records from their ids, which are consecutive in one page, or all of them."""
    first, last = (int(name.partition(b"-")[0]) for name in (ids[0], ids[-1]))
    if last - first + 1 == len(ids):
        yield first, last
    else:
        yield from ((number, number) for number in (int(name.partition(b"-")[0]) for name in ids))


REDIS_CONSUMERS = ConsumerPeer(
    REDIS._replace(store=_store),
    [ConsumerWay(f"XREADGROUP COUNT {page:,}, XACK", STORED, _consume, (page,)) for page in PAGES],
)
