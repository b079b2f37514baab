"""RabbitMQ: consumers of one quorum queue, which acknowledge all that has arrived at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from quothbench.groups.consuming import (
    ConsumerPeer,
    ConsumerWay,
    RecordUnit,
    Share,
    new_name,
    ranges_of,
    seconds_of,
)
from quothbench.load.clients import Clients, Ready
from quothbench.load.driver import VALUE
from quothbench.peers.rabbitmq import RABBITMQ, node, versions
from quothbench.peers.work import foreign, python_library
from quothwire.errors import error

RECORDS = 40_000
"""They are published anew for each measurement: a queue forgets what was acknowledged."""
PREFETCH = (100, 1_000, 10_000)
ACKS_OF_PREFETCH = 4
"""Acks for each time as many records as are fetched ahead, so that further ones are always on their way."""
IDLE_S = 0.5
IDLE_ROUNDS = 2
"""A member has finished once so many waits have brought nothing, and nothing is left in the queue."""
PUBLISH_S = 120.0
PAUSE_S = 0.02

_NUMBER_BYTES = 8
_QUORUM = {"x-queue-type": "quorum"}


@contextmanager
def _serving(directory: Path) -> Iterator[int]:
    """Run a node; yield its port for AMQP."""
    with node(directory) as (amqp, _):
        yield amqp


@contextmanager
def _channel(port: int) -> Iterator[tuple[Any, Any]]:
    """Open a connection, and a channel of it."""
    with foreign("rabbitmq"):
        import pika

        with closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))) as connection:
            yield connection, connection.channel()


def _consume(clients: Clients, port: int, records: int, prefetch: int) -> float:
    queue = new_name()
    with _channel(port) as (_, channel):
        _publish(channel, queue, records)
        done = clients.run(_member, (port, queue, prefetch))
        left = channel.queue_delete(queue).method.message_count
    if left:
        raise error("internal", f"rabbitmq: {left:,} records are not acknowledged")
    return seconds_of(done, records)


def _publish(channel: Any, queue: str, records: int) -> None:
    """Make a queue, and wait until it has all records. Raises ``timed_out``."""
    channel.queue_declare(queue, durable=True, arguments=_QUORUM)
    for number in range(records):
        channel.basic_publish("", queue, number.to_bytes(_NUMBER_BYTES) + VALUE[_NUMBER_BYTES:])
    until = time.monotonic() + PUBLISH_S
    while _waiting(channel, queue) < records:
        if time.monotonic() > until:
            raise error("timed_out", f"rabbitmq: not all of {records:,} records are in the queue")
        time.sleep(PAUSE_S)


def _waiting(channel: Any, queue: str) -> int:
    """Return the number of messages in a queue that were not delivered."""
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def _member(ready: Ready, port: int, queue: str, prefetch: int) -> Share:
    """Take records until none comes, and acknowledge them."""
    numbers: list[int] = []
    every = max(1, prefetch // ACKS_OF_PREFETCH)
    acked = tag = 0
    ended = 0.0

    def take(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        nonlocal tag
        numbers.append(int.from_bytes(body[:_NUMBER_BYTES]))
        tag = method.delivery_tag
        if tag - acked >= every:
            acknowledge()

    def acknowledge() -> None:
        nonlocal acked, ended
        channel.basic_ack(tag, multiple=True)
        acked, ended = tag, time.monotonic()

    with _channel(port) as (connection, channel):
        channel.basic_qos(prefetch_count=prefetch)
        ready()
        ended = time.monotonic()
        channel.basic_consume(queue, take)
        idle = 0
        while idle < IDLE_ROUNDS:
            before = len(numbers)
            connection.process_data_events(IDLE_S)
            if tag > acked:
                acknowledge()
            idle = idle + 1 if len(numbers) == before and not _waiting(channel, queue) else 0
    return Share(ranges_of(numbers), ended)


RABBITMQ_CONSUMERS = ConsumerPeer(
    RABBITMQ._replace(
        promise="confirmed: a quorum queue of one node has it on its disk",
        library=partial(python_library, "pika"),
        versions=partial(versions, "pika"),
        serving=_serving,
        store=lambda _port: None,
    ),
    [ConsumerWay(f"prefetch {size:,}", RecordUnit.MESSAGES, RECORDS, _consume, (size,)) for size in PREFETCH],
)
