"""Reads of published records and of ranges through a broker: each record once, in order."""

from __future__ import annotations

import os
import platform
import random
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, SimplePeer, code_of, refused, replied
from kit.client.clients import Client, read_all
from kit.machine.processes import page_faults
from quothd.connections.connection import unwatched
from quothd.metrics.measures import Measures
from quothd.requests.pending_request import open_request
from quothd.topics.bindings import Bindings
from quothd.topics.publishing import append_publishes
from quothlog import Appended, Log
from quothwire import batch
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import (
    FETCH_BYTES_MAX,
    AdvanceTopic,
    CountTopic,
    CreateTopic,
    Fetch,
    Request,
    RollTopic,
    SplitTopic,
    TrimTopic,
)


def test_the_first_publish_makes_a_topic(client: Client, topic: str) -> None:
    """Topics are listed in order, and none has records of another. Reading makes none."""
    with refused("unknown_topic"):
        client.read(f"{topic}2")
    second = client.publish(f"{topic}2", b"two")[0]
    first = client.publish(f"{topic}1", b"one")[0]
    assert client.topics(topic)[:2] == [f"{topic}1", f"{topic}2"]
    assert client.read(f"{topic}1")[1] == [(first, b"one")]
    assert client.read(f"{topic}2")[1] == [(second, b"two")]


def test_a_cursor_below_the_oldest_record_continues_there(client: Client, fast: FastPeer, topic: str) -> None:
    """The reply has the number of records that are gone, and the end of the topic."""
    lost = [client.publish(topic, b"%d" % i)[0] for i in range(3)]
    fast.call(RollTopic(), topic)
    kept = [(client.publish(topic, value)[0], value) for value in (b"3", b"4")]
    trimmed = fast.call(TrimTopic(before=kept[0][0]), topic)
    assert (trimmed.records, trimmed.first) == (3, kept[0][0])
    info = fast.describe(topic)
    assert (info.first, info.last, info.count) == (kept[0][0], kept[1][0], 2)
    for after, gone in ((0, 3), (1, 3), (lost[0], 2), (lost[2], 0)):
        found = fast.fetch(topic, after, ordinal=3 - gone)
        assert [(one.pointer, one.value) for one in found.records] == kept
        assert (found.reply.gone, found.reply.newest, found.reply.end) == (gone, kept[1][0], 5)
    assert read_all(client, topic) == kept


def test_a_reply_is_bounded_by_bytes_max_and_by_the_broker(fast: FastPeer, topic: str) -> None:
    """At least one batch comes, so no reader stops in front of a large one."""
    for size, count, limits in ((1_000, 20, (1_100, 5_000, 12_345)), (2**20, 10, (2**32,))):
        name = f"{topic}{size}"
        for _ in range(count):
            fast.publish(name, [bytes(size)])
        for bytes_max in limits:
            answer = fast.answer_to(fast.send_fetch(name, 0, bytes_max=bytes_max))
            replied(answer)
            bound = min(bytes_max, FETCH_BYTES_MAX)
            assert bound - 2.2 * size < len(answer.payload) <= bound
        assert len(fast.read_all(name, bytes_max=1)) == count


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator has the settings")
def test_large_reads_at_once_take_their_memory_from_the_system_once(
    peers: Peers, start_broker: StartBroker
) -> None:
    """Each MiB from the system would be 256 page faults."""
    broker = start_broker()
    fast, rounds = peers.fast(broker), 10
    cursors = [0, *(fast.publish("large", [bytes(2**20)]).first for _ in range(15))]

    def read() -> None:
        answers = fast.answers_to([fast.send_fetch("large", after, bytes_max=1) for after in cursors[:-1]])
        assert {len(answer.payload) >= 2**20 for answer in answers} == {True}

    for _ in range(5):
        read()
    before = page_faults(broker.pid)
    for _ in range(rounds):
        read()
    faults = page_faults(broker.pid) - before
    assert faults < rounds * 15 * 256 / 4, faults


def test_batches_of_many_writers_stay_whole_while_the_topic_rolls(
    peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Each in its writer's order. A reader that is always at the end reads every record once."""
    writers, roller, reader = [peers.fast(broker) for _ in range(4)], peers.fast(broker), peers.fast(broker)
    roller.call(CreateTopic({"count_limit": 25}), topic)
    asked: dict[int, list[int]] = {}
    for number in range(50):
        for row, writer in enumerate(writers):
            values = [b"%d %d %d" % (row, number, i) for i in range(7)]
            asked.setdefault(row, []).append(writer.send_publish(topic, values))
    rolls = [roller.send(RollTopic(), topic) for _ in range(60)]
    found: dict[int, bytes] = {}
    after = 0
    while len(found) < 4 * 50 * 7:
        records = reader.fetch(topic, after, wait_ms=5_000, records_max=30).records
        assert records, f"nothing came after {len(found)} records"
        found.update((record.pointer, record.value) for record in records)
        after = records[-1].pointer
    for answer in roller.answers_to(rolls):
        replied(answer)
    for row, writer in enumerate(writers):
        for number, answer in enumerate(writer.answers_to(asked[row])):
            first = replied(answer).first
            assert [found[first + i] for i in range(7)] == [b"%d %d %d" % (row, number, i) for i in range(7)]
        own = [value for value in found.values() if value.startswith(b"%d " % row)]
        assert own == [b"%d %d %d" % (row, number, i) for number in range(50) for i in range(7)]


def test_simple_publishes_of_one_burst_keep_their_order(
    broker: BrokerProcess, simple: SimplePeer, fast: FastPeer, topic: str
) -> None:
    """Each reply has the pointers of its own values, also where the broker makes one batch of many."""
    simple.topics()  # so that it is connected
    broker.freeze()
    for i in range(500):
        simple.send("publish", topic, *[b"%d %d" % (i, j) for j in range(1 + i % 3)])
    os.kill(broker.pid, signal.SIGCONT)
    expected: dict[int, bytes] = {}
    for i in range(500):
        status, first, last = simple.receive()
        assert status == b"ok"
        for j, pointer in enumerate(range(int(first), int(last) + 1)):
            expected[pointer] = b"%d %d" % (i, j)
    assert read_all(simple, topic, limit=10_000) == list(expected.items())
    assert fast.fetch(topic).batches < 100, "every single record became a batch"


def test_a_burst_of_simple_publishes_that_exceeds_a_batch_becomes_several(tmp_path: Path) -> None:
    """Two with half of the publishes each for too many values; one for each publish for too many bytes."""
    burst = [
        open_request([b"client", b"", b"publish", b"t", *[b"x"] * 10_000], unwatched()) for _ in range(11)
    ]
    large = [
        open_request([b"client", b"", b"publish", b"t", bytes(9 * 2**20)], unwatched()) for _ in range(2)
    ]
    with Log.open(tmp_path / "t") as log:
        bindings = Bindings(log, log.transactions())
        outcomes = [outcome for _, outcome, _ in append_publishes(log.appender, burst, bindings, Measures())]
        assert [one.count for one in outcomes if isinstance(one, Appended)] == [10_000] * 11
        assert log.end_ordinal == 110_000
        found = log.fetch(0)
        assert found is not None
        stored = batch.split(found.data, log.log_id)
        assert [batch.parse_header(raw, log.log_id).records for raw in stored] == [50_000, 60_000]
        outcomes = [outcome for _, outcome, _ in append_publishes(log.appender, large, bindings, Measures())]
        assert [one.count for one in outcomes if isinstance(one, Appended)] == [1, 1]


# -- ranges -------------------------------------------------------------------------------------------------


def filled(fast: FastPeer, topic: str) -> list[int]:
    """Batches of 1 to 5 records in three sealed segments and the active one; all their pointers."""
    pointers: list[int] = []
    for row in range(4):
        for count in (1, 5, 2):
            done = fast.publish(topic, [b"x"] * count)
            pointers += range(done.first, done.last + 1)
        if row < 3:
            fast.call(RollTopic(), topic)
    return pointers


def test_a_range_is_counted_advanced_over_and_split(fast: FastPeer, topic: str, rng: random.Random) -> None:
    pointers = filled(fast, topic)
    for _ in range(20):
        low, high = sorted(rng.sample(range(len(pointers)), 2))
        after, until = pointers[low], pointers[high]
        counted = fast.call(CountTopic(after, until), topic)
        assert (counted.records, counted.first, counted.last) == (high - low, pointers[low + 1], until)
        assert fast.call(AdvanceTopic(after, high - low), topic).until == until
        parts = fast.call(SplitTopic(after, until, 3), topic).bounds
        assert sum(records for _, _, records, _ in parts) == high - low
        assert (parts[0][0], parts[-1][1]) == (after, until)
        assert all(one[1] == other[0] for one, other in pairwise(parts))
    whole = fast.call(CountTopic(), topic)
    assert (whole.records, whole.newest, whole.end, whole.gone) == (32, pointers[-1], 32, 0)
    assert whole.bytes == fast.call(AdvanceTopic(), topic).bytes
    assert whole.log == fast.describe(topic).log


NO_RANGES: dict[str, list[Request]] = {
    "bad_request": [
        CountTopic(6, 5), SplitTopic(6, 5, 1), SplitTopic(0, 5, 0), CountTopic(6, 0), SplitTopic(0, 5, -1),
        AdvanceTopic(0, 0, 1), AdvanceTopic(0, 1, 0), CountTopic(-1), Fetch(6, until=5),
        SplitTopic(0, 5, True), AdvanceTopic(0, True), Fetch(0, until=-1), TrimTopic(-1),
        Fetch(6, wait_ms=60_000, until=5),
    ],
    "too_large": [SplitTopic(0, 5, 10_001), AdvanceTopic(0, 2**63, 1)],
    "bad_pointer": [AdvanceTopic(POINTER_MAX + 1), CountTopic(0, POINTER_MAX + 1), TrimTopic(2**56)],
}  # fmt: skip


def test_an_invalid_range_is_refused(fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"x"])
    for code, requests in NO_RANGES.items():
        for request in requests:
            assert code_of(fast.request(request, topic)) == code, request
    assert fast.call(CountTopic(), topic).records == 1


@pytest.mark.parametrize("bytes_max", [1, 200, 2**20])
def test_a_fetch_ends_with_the_batch_in_which_its_range_ends(
    fast: FastPeer, topic: str, rng: random.Random, bytes_max: int
) -> None:
    """A reader whose `next` has reached the end has read the range."""
    pointers = filled(fast, topic)
    for _ in range(20):
        low, high = sorted(rng.sample(range(len(pointers)), 2))
        after, until = pointers[low], pointers[high]
        found: list[int] = []
        following = after
        while following < until:
            part = fast.fetch(topic, following, until=until, bytes_max=bytes_max)
            assert part.records, "a request for nothing"
            found += [record.pointer for record in part.records]
            following = part.reply.next
        assert [one for one in found if one <= until] == pointers[low + 1 : high + 1]
        assert len([one for one in found if one > until]) < 5, "a batch behind the end"


def test_a_range_without_records_is_read_at_once(fast: FastPeer, topic: str) -> None:
    """The cursor ends between two records, or the topic was trimmed: the reply counts what is gone."""
    pointers = filled(fast, topic)
    found = fast.fetch(topic, 0, until=pointers[1] - 1)
    assert ([one.pointer for one in found.records], found.reply.next) == ([pointers[0]], pointers[1] - 1)
    fast.call(TrimTopic(pointers[-1] + 1), topic)
    for more in ({}, {"wait_ms": 60_000}):
        assert fast.fetch(topic, pointers[3], until=pointers[8], **more).reply.next == pointers[8]
    fast.publish(topic, [b"x"])
    for more in ({}, {"wait_ms": 60_000}):
        found = fast.fetch(topic, pointers[3], until=pointers[8], **more)
        assert (found.records, found.reply.next) == ([], pointers[8])
        assert found.reply.gone > 0
    reply = fast.call(AdvanceTopic(pointers[3], 10), topic)
    assert (reply.gone, reply.records, reply.after) == (32, 1, pointers[-1])
    assert fast.call(CountTopic(pointers[3], pointers[8]), topic).records == 0
    assert fast.call(SplitTopic(pointers[3], pointers[8], 4), topic).bounds == []
