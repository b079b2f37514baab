"""Transactions through a broker, whole or not at all, and batches of producers, stored once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, hibernate, refused, replied
from kit.broker.transactions import Job, part_of, staged
from kit.disk.logs import encoded
from kit.scale import times
from quothlog.producers import RESULTS_MAX
from quothwire import batch
from quothwire.batch import Flag
from quothwire.protocol.messages import (
    AbortTransaction,
    CreateTopic,
    GetTransaction,
    Publish,
    Published,
    PublishStaged,
    Request,
    Stage,
)
from quothwire.protocol.transaction import StagedPart, encode_parts, producer_of

SMALL = [[[b"%d.%d" % (part, number)] for number in range(3)] for part in range(4)]
LARGE = [[[b"%d.%d" % (part, number) + b"-" * 500_000] for number in range(4)] for part in range(4)]
"""8 MiB: twice what is appended."""

Parts = list[list[list[bytes]]]
Restart = Callable[[FastPeer], FastPeer]


def values_of(parts: Parts) -> list[bytes]:
    return [value for part in parts for values in part for value in values]


def stage_all(job: Job, version: int, parts: Parts) -> list[StagedPart]:
    return [job.stage(version, part, batches) for part, batches in enumerate(parts)]


def stop(broker: BrokerProcess) -> None:
    """Restart a broker cleanly."""
    assert broker.terminate() == 0
    broker.restart()


def kill(broker: BrokerProcess) -> None:
    """Restart a broker after a crash."""
    broker.kill()
    broker.restart()


@pytest.fixture(params=[lambda _broker: None, stop, kill], ids=["no restart", "stop", "kill"])
def restart(request: pytest.FixtureRequest, broker: BrokerProcess, peers: Peers) -> Restart:
    """Restart the broker of a peer, or do not; the test runs once for each way.

    Returns another peer: a request of the first one might be lost, on the connection that has ended.
    """

    def restart(fast: FastPeer) -> FastPeer:
        fast.close()
        request.param(broker)
        return peers.fast(broker)

    return restart


@pytest.mark.parametrize(
    ("parts", "durability"), [(SMALL, "written"), (LARGE, "synced")], ids=["appended", "segments"]
)
def test_a_published_transaction_is_stored_in_order_and_once(
    broker: BrokerProcess, peers: Peers, topic: str, parts: Parts, restart: Restart, durability: str
) -> None:
    """A repeated publish has the same pointers, also after a restart or a crash."""
    fast = peers.fast(broker)
    fast.call(CreateTopic({"durability": durability}), topic)
    fast.publish(topic, [b"before"])
    job = Job(fast, topic)
    named = stage_all(job, 5, parts)
    job.stage(5, 2, [[b"of a task that died"]], attempt=99)
    assert fast.values(topic) == [b"before"]
    job.peer = restart(job.peer)
    published = job.publish(5, named[::-1])
    job.peer = fast = restart(job.peer)
    again = job.publish(5, named[:1])
    count = len(values_of(parts))
    assert (published.count, published.durability, published.duplicate) == (count, "synced", False)
    assert (again.first, again.last, again.count) == (published.first, published.last, published.count)
    assert again.duplicate
    found = fast.read_all(topic)[1:]
    assert [record.value for record in found] == values_of(parts[::-1])
    assert [record.pointer for record in found] == list(range(published.first, published.last + 1))
    standing = job.standing(5)
    assert (standing.state, standing.first, standing.last, standing.count) == (
        "published", published.first, published.last, published.count
    )  # fmt: skip
    assert fast.describe(topic).counters["staged_bytes"] == 0
    assert list(broker.topics_directory.glob("*/*.staged")) == []


def test_a_part_is_staged_through_a_restart(fast: FastPeer, topic: str, restart: Restart) -> None:
    """Acknowledged batches are there, and a batch that is sent again is stored once."""
    job = Job(fast, topic)
    job.stage(1, 0, SMALL[0][:2])
    job.peer = restart(job.peer)
    job.stage(1, 0, SMALL[0])
    standing = job.standing(1)
    assert (standing.state, standing.parts, standing.batches, standing.records) == ("staged", 1, 3, 3)
    assert standing.newest_version == -1
    assert job.publish(1, [part_of(0, 7, SMALL[0])]).count == 3


def test_an_abort_returns_the_removed_batches_records_and_bytes(fast: FastPeer, topic: str) -> None:
    """A second one removes nothing, and a published transaction stays. To publish no parts is an abort."""
    job = Job(fast, topic)
    named = stage_all(job, 1, SMALL)
    removed = job.abort(1)
    assert (removed.state, removed.parts, removed.batches, removed.records) == ("unknown", 4, 12, 12)
    assert (job.abort(1).parts, job.standing(1).state) == (0, "unknown")
    with refused("not_staged"):
        job.publish(1, named)
    stage_all(job, 1, SMALL)
    reply = job.publish(1, [])
    assert (reply.first, reply.last, reply.count, reply.duplicate) == (0, 0, 0, False)
    assert job.standing(1).state == "unknown"
    assert fast.describe(topic).counters["staged_bytes"] == 0
    job.publish(1, stage_all(job, 1, SMALL))
    assert (job.abort(1).state, len(fast.values(topic))) == ("published", 12)


# -- errors ------------------------------------------------------------------------------------------


REFUSED: list[tuple[Request, bytes | None, str]] = [
    (Publish(), staged([b"x"], 1), "bad_batch"),
    (
        Publish(),
        batch.encode([b"x"], producer=producer_of("loader"), sequence=2, flags=int(Flag.TRANSACTION)),
        "bad_batch",
    ),
    (Stage("loader", 1, 0, 7, 0), None, "bad_batch"),
    (Stage("loader", 1, 0, 7, 0), b"\0" * 64, "bad_batch"),
    (Stage("loader", 1, 0, 7, 0), batch.encode([b"x"]), "bad_batch"),
    (Stage("loader", 1, 0, 7, 0), staged([b"x"], 2), "bad_batch"),
    (Stage("loader", 1, 0, 7, 0), staged([b"x"], 1, "another"), "bad_batch"),
    (Stage("loader", 1, 0, 7, 0), staged([b"x"], 1)[:-1] + b"\1", "bad_batch"),
    (Stage("loader", 1, 0, 7, 0), staged([b"x"], 1) * 2, "bad_batch"),
    (Stage("loader", 1, 0, 7, 0), staged([b"x"], 1, headers=[b"\xc1"]), "bad_batch"),
    (Stage("loader", 1, 0, 7, 1), staged([b"x"], 1), "out_of_sequence"),
    (Stage("", 1, 0, 7, 0), staged([b"x"], 1), "bad_request"),
    (Stage("x" * 201, 1, 0, 7, 0), staged([b"x"], 1, "x" * 201), "bad_request"),
    (PublishStaged("loader", 1, 1), None, "bad_request"),
    (PublishStaged("loader", 1, 2), encode_parts([StagedPart(0, 7, 1, 1)]), "bad_request"),
    (PublishStaged("loader", 1, 1), encode_parts([StagedPart(0, 7, 1, 1)]) + b"x", "bad_request"),
    (PublishStaged("loader", 1, 1), encode_parts([StagedPart(3, 7, 1, 1)]), "not_staged"),
    (PublishStaged("loader", 1, 1), encode_parts([StagedPart(0, 8, 1, 1)]), "not_staged"),
    (PublishStaged("loader", 1, 2), encode_parts([StagedPart(0, 7, 1, 1)]) * 2, "bad_request"),
    (PublishStaged("", 1, 0), None, "bad_request"),
    (AbortTransaction("", 1), None, "bad_request"),
    (GetTransaction("", 1), None, "bad_request"),
    (AbortTransaction("loader", 1), b"payload", "bad_request"),
]


def test_a_refused_request_changes_nothing(fast: FastPeer, topic: str) -> None:
    """Each error has its code, before and after a part is staged, which can be published."""
    fast.publish(topic, [b"before"])
    job = Job(fast, topic)
    for stage in (None, lambda: job.stage(1, 1, [[b"ours"]])):
        part = stage() if stage is not None else None
        for request, payload, code in REFUSED:
            assert code_of(fast.request(request, topic, payload)) == code, request
    assert part is not None
    assert (job.standing(1).parts, job.standing(1).batches) == (1, 1)
    job.publish(1, [part])
    assert fast.values(topic) == [b"before", b"ours"]


def test_a_version_below_the_newest_is_refused(fast: FastPeer, topic: str) -> None:
    """A producer with the id of the application has a sequence of its own."""
    job = Job(fast, topic)
    late = job.stage(3, 0, [[b"late"]])
    fast.publish(topic, [b"1"], producer=producer_of("loader"), sequence=1)
    job.publish(5, [job.stage(5, 0, [[b"five"]])])
    fast.publish(topic, [b"2"], producer=producer_of("loader"), sequence=2)
    with refused("forgotten_sequence"):
        job.publish(3, [late])
    with refused("forgotten_sequence"):
        job.stage(4, 0, [[b"four"]])
    with refused("already_published"):
        job.stage(5, 0, [[b"again"]], attempt=8)
    with refused("forgotten_sequence"):
        job.standing(4)
    assert job.abort(3).batches == 1
    assert fast.values(topic) == [b"1", b"five", b"2"]


# -- producers ----------------------------------------------------------------------------------------------

ALICE = 2**64 - 1


def test_a_repeated_publish_gets_its_first_pointers(fast: FastPeer, topic: str, restart: Restart) -> None:
    """The reply is marked as a duplicate, and nothing is stored again."""
    ways = {f"{topic}-dense": (1, False), f"{topic}-sparse": (10, True)}
    sent: dict[tuple[str, bytes], Published] = {}
    for name, (step, sparse) in ways.items():
        for i in range(5):
            raw = encoded([b"%d" % i, b"x"], ALICE, 1 + i * step, sparse=sparse, start=sparse and i == 0)
            sent[name, raw] = fast.call(Publish(), name, raw)
            assert not sent[name, raw].duplicate
    fast = restart(fast)
    for (name, raw), first in sent.items():
        again = fast.call(Publish(), name, raw)
        assert (again.first, again.last, again.count, again.duplicate) == (first.first, first.last, 2, True)
    for name, (step, sparse) in ways.items():
        new = fast.publish(name, [b"new"], producer=ALICE, sequence=1 + 5 * step, sparse=sparse)
        assert not new.duplicate
        assert len(fast.read_all(name)) == 11


def test_a_pipeline_with_a_gap_is_stored_in_order_when_it_is_sent_again(fast: FastPeer, topic: str) -> None:
    """All batches behind the gap are refused."""
    raws = [encoded([b"%d" % i], ALICE, i) for i in range(1, 31)]
    without = [raw for i, raw in enumerate(raws, 1) if i != 5]
    asked = [fast.send(Publish(), topic, raw) for raw in without]
    codes = [code_of(answer) for answer in fast.answers_to(asked)]
    assert codes == [""] * 4 + ["out_of_sequence"] * 25
    asked = [fast.send(Publish(), topic, raw) for raw in raws]
    replies = [replied(answer) for answer in fast.answers_to(asked)]
    assert [one.duplicate for one in replies] == [True] * 4 + [False] * 26
    assert fast.values(topic) == [b"%d" % i for i in range(1, 31)]


def test_a_sequence_with_other_bytes_is_refused(fast: FastPeer, topic: str) -> None:
    """As are unknown producers and those without a sequence, each with its code."""
    fast.publish(topic, [b"one"], producer=ALICE, sequence=1)
    for code, producer, sequence in (
        ("sequence_reused", ALICE, 1),
        ("unknown_producer", 7, 2),
        ("bad_batch", 0, 1),
        ("bad_batch", 1, 0),
    ):
        with refused(code):
            fast.publish(topic, [b"two"], producer=producer, sequence=sequence)
    assert fast.values(topic) == [b"one"]


def test_a_pipeline_through_crashes_or_restarts_is_stored_once(
    start_broker: StartBroker, peers: Peers, rng: random.Random
) -> None:
    """Acknowledged batches are there, the others are sent again."""
    broker = start_broker()
    fast = peers.fast(broker)
    count = times(600, 20_000)
    raws = {i: encoded([b"%d %d" % (i, j) for j in range(3)], ALICE, i) for i in range(1, count + 1)}
    acknowledged: dict[int, Published] = {}
    sequence = 1
    ends: list[Callable[[], object]] = [broker.kill, broker.terminate] * 2
    while sequence <= count:
        window = range(sequence, min(sequence + RESULTS_MAX, count + 1))
        asked = {fast.send(Publish(), "t", raws[i]): i for i in window}
        if ends and rng.random() < 0.5:
            for _ in range(rng.randrange(min(20, len(window)))):
                answer = fast.receive()
                if not code_of(answer):
                    acknowledged[asked[answer.correlation]] = replied(answer)
            ends.pop()()
            fast.close()
            broker.restart()
            fast = peers.fast(broker)
            sequence = max(acknowledged, default=0) + 1
            continue
        for correlation, i in asked.items():
            acknowledged[i] = replied(fast.answer_to(correlation))
        sequence = window[-1] + 1
    records = fast.read_all("t")
    assert [record.value for record in records] == [
        b"%d %d" % (i, j) for i in range(1, count + 1) for j in range(3)
    ]
    places = {record.pointer: record.value for record in records}
    assert all(places[reply.first] == b"%d 0" % i for i, reply in acknowledged.items())


def test_a_hibernating_topic_remembers_its_producers(start_broker: StartBroker, peers: Peers) -> None:
    fast = peers.fast(start_broker(worker_timeout=0.05))
    for i in (1, 2):
        reply = fast.publish("t", [b"%d" % i], producer=ALICE, sequence=i)
        hibernate(fast)
        again = fast.publish("t", [b"%d" % i], producer=ALICE, sequence=i)
        assert (again.first, again.duplicate) == (reply.first, True)
