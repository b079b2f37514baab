"""Damaged bytes on the disk: every record that is whole is read, what is lost is told once and exactly.

Whatever reads, whatever is damaged and wherever it lies: no wrong record, no record twice, no endless loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from kit.brokers import BrokerProcess, StartBroker
from kit.damage import Stored, flip, stored_batches, zero
from kit.effort import times
from kit.peers import refused
from quoth import Client, Gap, Message
from quothwire import batch
from quothwire.batch import HEADER_BYTES

Connect = Callable[..., Client]

SEGMENTS, BATCHES, RECORDS = 3, 4, 3


class Topic(NamedTuple):
    """A topic on the disk of a broker that is not running, and every record that was published to it."""

    broker: BrokerProcess
    messages: list[Message]
    batches: list[Stored]

    def records_of(self, number: int) -> list[Message]:
        """The records of one batch."""
        return self.messages[number * RECORDS : (number + 1) * RECORDS]

    def without(self, *numbers: int) -> list[Message]:
        """The records of all batches but some."""
        return [message for row, message in enumerate(self.messages) if row // RECORDS not in numbers]


@pytest.fixture(params=["killed", "terminated"])
def stored(request: pytest.FixtureRequest, start_broker: StartBroker, connect: Connect) -> Topic:
    """Twelve batches of three records in three segments, two of them sealed; the broker does not run."""
    broker = start_broker()
    client = connect(broker)
    log_id = client.create_topic("t", count_limit=BATCHES * RECORDS).log
    for number in range(SEGMENTS * BATCHES):
        client.publish("t", [b"%d.%d" % (number, row) for row in range(RECORDS)])
    messages = client.read("t")
    assert client.topic("t").segments == SEGMENTS
    if request.param == "killed":
        broker.kill()
    else:
        assert broker.terminate() == 0
    return Topic(broker, messages, stored_batches(broker.topics_directory, log_id))


# -- what reads: each returns the records and what it was told ----------------------------------------------

Told = tuple[list[Message], list[Gap]]


def by_read(client: Client, count: int) -> Told:
    gaps: list[Gap] = []
    return client.read("t", on_gap=gaps.append), gaps


def by_portions(client: Client, count: int) -> Told:
    """Two records at a time: each portion begins at a cursor whose ordinal nobody knows."""
    gaps: list[Gap] = []
    found: list[Message] = []
    while portion := client.read("t", after=found[-1].pointer if found else 0, limit=2, on_gap=gaps.append):
        found += portion
    return found, gaps


def by_batches(client: Client, count: int) -> Told:
    gaps: list[Gap] = []
    return [message for one in client.batches("t", on_gap=gaps.append) for message in one.messages()], gaps


def by_tail(client: Client, count: int) -> Told:
    gaps: list[Gap] = []
    return list(islice(client.tail("t", after=0, on_gap=gaps.append), count)), gaps


WAYS = {"read": by_read, "portions": by_portions, "batches": by_batches, "tail": by_tail}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

# -- what is damaged ----------------------------------------------------------------------------------------

Harm = Callable[[Stored], None]


def in_header(one: Stored) -> None:
    flip(one.path, one.start + 17)


def in_magic(one: Stored) -> None:
    flip(one.path, one.start)


def in_length(one: Stored) -> None:
    flip(one.path, one.start + 10)


def in_body(one: Stored) -> None:
    flip(one.path, one.end - 9)


def in_offsets(one: Stored) -> None:
    flip(one.path, one.start + HEADER_BYTES + 1)


def all_zero(one: Stored) -> None:
    zero(one.path, one.start, one.end)


HARMS: list[Harm] = [in_header, in_magic, in_length, in_body, in_offsets, all_zero]
every_harm = pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)


@every_way
@every_harm
@pytest.mark.parametrize("number", [0, 2, 3, 4, 8, 9], ids=lambda number: f"batch {number}")
def test_one_damaged_batch_is_one_gap(
    stored: Topic, connect: Connect, way: Callable[[Client, int], Told], harm: Harm, number: int
) -> None:
    """The first of all, the middle and the last one of a sealed segment, the first of one, and in the active."""
    harm(stored.batches[number])
    client = connect(stored.broker.restart())
    intact = stored.without(number)
    found, gaps = way(client, len(intact))
    assert found == intact
    (gap,) = gaps
    lost = stored.records_of(number)
    before = stored.messages[number * RECORDS - 1].pointer if number else 0
    following = stored.messages[(number + 1) * RECORDS].pointer
    assert (gap.topic, gap.reason) == ("t", "damaged")
    assert gap.after == before
    assert lost[-1].pointer < gap.next <= following
    assert gap.records == RECORDS or (gap.records == -1 and way is by_portions)
