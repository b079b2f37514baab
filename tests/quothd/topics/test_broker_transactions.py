"""Transactions through a broker: many clients stage, one publishes, all or nothing, once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from kit.broker.brokers import BrokerProcess, Restart, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, refused, replied
from kit.broker.transactions import Job, part_of, staged
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import Conflict, QuothError
from quothwire.protocol.messages import (
    AbortTransaction,
    CreateTopic,
    DeleteTopic,
    Fetch,
    GetTransaction,
    Publish,
    PublishStaged,
    RollTopic,
    Stage,
    UpdateTopic,
)
from quothwire.protocol.operations import Request
from quothwire.protocol.transaction import StagedPart, encode_parts, producer_of

MIB = 2**20
SMALL = [[[b"%d.%d" % (part, number)] for number in range(3)] for part in range(4)]
LARGE = [[[b"%d.%d" % (part, number) + b"-" * 500_000] for number in range(4)] for part in range(4)]
"""8 MiB: twice what is appended."""

sizes = pytest.mark.parametrize("parts", [SMALL, LARGE], ids=["appended", "segments"])
Parts = list[list[list[bytes]]]


def values_of(parts: Parts) -> list[bytes]:
    return [value for part in parts for values in part for value in values]


def stage_all(job: Job, version: int, parts: Parts) -> list[StagedPart]:
    return [job.stage(version, part, batches) for part, batches in enumerate(parts)]


def stored(fast: FastPeer, topic: str) -> list[bytes]:
    return [record.value for record in fast.read_all(topic)]


# -- all or nothing, once -----------------------------------------------------------------------------------


@sizes
@pytest.mark.parametrize("durability", ["written", "synced"])
def test_a_published_transaction_is_stored_in_order_and_once(
    broker: BrokerProcess, fast: FastPeer, topic: str, parts: Parts, restart: Restart, durability: str
) -> None:
    """A repeated publish has the same pointers, also after a restart or a crash."""
    fast.call(CreateTopic({"durability": durability}), topic)
    fast.publish(topic, [b"before"])
    job = Job(fast, topic)
    named = stage_all(job, 5, parts)
    job.stage(5, 2, [[b"of a task that died"]], attempt=99)
    assert stored(fast, topic) == [b"before"]
    restart(broker)
    published = job.publish(5, named[::-1])
    restart(broker)
    again = job.publish(5, named[:1])
    assert (published.count, published.durability, published.duplicate) == (
        len(values_of(parts)),
        "synced",
        False,
    )
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


@sizes
def test_a_transaction_is_reported_as_published_after_its_fsync(
    fast: FastPeer, topic: str, parts: Parts
) -> None:
    """A request meanwhile has the state before, or waits: no answer overtakes that of the publish."""
    job = Job(fast, topic)
    published = job.send_publish(1, stage_all(job, 1, parts))
    for version in (1, 2) * 20:
        fast.send(GetTransaction(job.application, version), topic)
    while (answer := fast.receive()).correlation != published:
        standing = replied(answer)
        assert (standing.state == "published", standing.newest_version) == (False, -1)
        fast.send(GetTransaction(job.application, 1), topic)
    assert (replied(answer).count, job.standing(1).state) == (len(values_of(parts)), "published")
    assert job.standing(2).newest_version == 1


@sizes
def test_publishes_of_one_transaction_at_once_have_the_same_reply(
    fast: FastPeer, topic: str, parts: Parts
) -> None:
    """The others wait for the first one. Other transactions come after it."""
    job, other = Job(fast, topic), Job(fast, topic, "another")
    named, others = stage_all(job, 1, parts), [other.stage(7, 0, [[b"other"]])]
    asked = [job.send_publish(1, named) for _ in range(5)]
    after = other.send_publish(7, others)
    aborted = fast.send(AbortTransaction("loader", 1), topic)
    replies = [replied(answer) for answer in fast.answers_to(asked)]
    assert [one.duplicate for one in replies] == [False, True, True, True, True]
    assert len({(one.first, one.last, one.count) for one in replies}) == 1
    assert replied(fast.answer_to(after)).count == 1
    assert replied(fast.answer_to(aborted)).state == "published"
    assert sorted(stored(fast, topic)) == sorted([*values_of(parts), b"other"])


@sizes
def test_writers_and_readers_go_on_during_a_publish_which_is_visible_as_a_whole(
    broker: BrokerProcess, peers: Peers, topic: str, parts: Parts
) -> None:
    fast, beside = peers.fast(broker), peers.fast(broker)
    job = Job(fast, topic)
    ended = threading.Event()
    written: list[bytes] = []

    def write() -> None:
        number = 0
        while not ended.is_set():
            asked = []
            for _ in range(20):
                number += 1
                written.append(b"w%d" % number)
                asked.append(beside.send_publish(topic, [b"w%d" % number], producer=3, sequence=number))
            firsts = [replied(answer).first for answer in beside.answers_to(asked)]
            assert all(a < b for a, b in pairwise(firsts))

    fast.publish(topic, [b"w0"])
    writer = threading.Thread(target=write)
    writer.start()
    try:
        after, whole = 0, values_of(parts)
        for version in range(4):
            named = stage_all(job, version, parts)
            publishing = job.send_publish(version, named)
            seen: list[bytes] = []
            while len([value for value in seen if value in whole]) < len(whole):
                found = fast.fetch(topic, after, bytes_max=MIB, wait_ms=5_000)
                after = found.reply.next
                assert found.reply.gone == 0
                seen += found.values
                ours = [value for value in seen if value in whole]
                if ours:
                    start = seen.index(ours[0])
                    assert seen[start : start + len(whole)] == whole[: len(seen) - start]
            reply = replied(fast.answer_to(publishing))
            assert reply.count == len(whole)
    finally:
        ended.set()
        writer.join()
    there = stored(beside, topic)
    assert [value for value in there if value.startswith(b"w")] == [b"w0", *written]
    assert len(there) == 1 + len(written) + 4 * len(whole)


def test_a_part_is_staged_through_a_restart(
    start_broker: StartBroker, peers: Peers, restart: Restart
) -> None:
    """Acknowledged batches are there, and a batch that is sent again is stored once."""
    broker = start_broker(worker_timeout=0.05)
    job = Job(peers.fast(broker), "t")
    job.stage(1, 0, SMALL[0][:2])
    restart(broker)
    job.stage(1, 0, SMALL[0])
    standing = job.standing(1)
    assert (standing.state, standing.parts, standing.batches, standing.records) == ("staged", 1, 3, 3)
    assert standing.newest_version == -1
    assert job.publish(1, [part_of(0, 7, SMALL[0])]).count == 3


def test_an_abort_returns_what_it_removed(fast: FastPeer, topic: str) -> None:
    """A second one removes nothing. A published transaction stays."""
    job = Job(fast, topic)
    named = stage_all(job, 1, SMALL)
    removed = job.abort(1)
    assert (removed.state, removed.parts, removed.batches, removed.records) == ("unknown", 4, 12, 12)
    assert (job.abort(1).parts, job.standing(1).state) == (0, "unknown")
    with refused("not_staged"):
        job.publish(1, named)
    job.publish(1, stage_all(job, 1, SMALL))
    assert (job.abort(1).state, len(stored(fast, topic))) == ("published", 12)


def test_publishing_no_parts_stores_nothing(fast: FastPeer, topic: str) -> None:
    job = Job(fast, topic)
    stage_all(job, 1, SMALL)
    reply = job.publish(1, [])
    assert (reply.first, reply.last, reply.count, reply.duplicate) == (0, 0, 0, False)
    assert job.standing(1).state == "unknown"
    assert fast.describe(topic).counters["staged_bytes"] == 0


# -- errors ------------------------------------------------------------------------------------------


def test_only_a_valid_stage_creates_the_topic(fast: FastPeer, topic: str) -> None:
    job = Job(fast, topic)
    for ask in (lambda: job.publish(1, []), lambda: job.abort(1), lambda: job.standing(1)):
        with refused("unknown_topic"):
            ask()
    with refused("bad_request"):
        fast.call(Stage("", 1, 0, 7, 0), topic, staged([b"x"], 1))
    with refused("bad_batch"):
        fast.call(Stage("loader", 1, 0, 7, 0), topic, b"garbage")
    with refused("unknown_topic"):
        fast.describe(topic)
    job.stage(1, 0, [[b"x"]])
    assert stored(fast, topic) == []


REFUSED: list[tuple[Request, bytes | None, str]] = [
    (Publish(), staged([b"x"], 1), "bad_batch"),
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
    for request, payload, code in REFUSED:
        assert code_of(fast.request(request, topic, payload)) == code, request
    job = Job(fast, topic)
    part = job.stage(1, 1, [[b"ours"]])
    for request, payload, code in REFUSED:
        assert code_of(fast.request(request, topic, payload)) == code, request
    assert (job.standing(1).parts, job.standing(1).batches) == (1, 1)
    job.publish(1, [part])
    assert stored(fast, topic) == [b"before", b"ours"]


def test_random_bytes_as_parts_are_refused(fast: FastPeer, topic: str, rng: random.Random) -> None:
    """With a documented error, and nothing is published."""
    job = Job(fast, topic)
    part = job.stage(1, 0, [[b"ours"]])
    for _ in range(200):
        count = rng.randrange(4)
        request = PublishStaged("loader", 1, max(1, count))
        code = code_of(fast.request(request, topic, rng.randbytes(rng.choice([32 * count, 7]))))
        assert code in ("bad_request", "not_staged", "too_large")
    assert job.publish(1, [part]).count == 1


def test_the_error_names_a_few_missing_parts_and_counts_the_others(fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"before"])
    missing = [StagedPart(999_999 - row, 2**64 - 1, 16_384 // 30, 2**40) for row in range(30)]
    with pytest.raises(QuothError, match=r"; part 999991 by attempt f{16}: .*, and 21 more") as caught:
        Job(fast, topic).publish(1, missing)
    assert caught.value.code == "not_staged"


def test_a_version_below_the_newest_is_refused(fast: FastPeer, topic: str) -> None:
    job = Job(fast, topic)
    late = job.stage(3, 0, [[b"late"]])
    job.publish(5, [job.stage(5, 0, [[b"five"]])])
    with refused("forgotten_sequence"):
        job.publish(3, [late])
    with refused("forgotten_sequence"):
        job.stage(4, 0, [[b"four"]])
    with refused("already_published"):
        job.stage(5, 0, [[b"again"]], attempt=8)
    with refused("forgotten_sequence"):
        job.standing(4)
    assert job.abort(3).batches == 1
    assert stored(fast, topic) == [b"five"]


def test_a_producer_with_the_id_of_an_application_has_its_own_sequence(fast: FastPeer, topic: str) -> None:
    job = Job(fast, topic)
    fast.publish(topic, [b"1"], producer=producer_of("loader"), sequence=1)
    job.publish(100, [job.stage(100, 0, [[b"t"]])])
    fast.publish(topic, [b"2"], producer=producer_of("loader"), sequence=2)
    with refused("bad_batch"):
        flags = int(Flag.TRANSACTION)
        raw = batch.encode([b"x"], producer=producer_of("loader"), sequence=102, flags=flags)
        fast.call(Publish(), topic, raw)
    assert stored(fast, topic) == [b"1", b"t", b"2"]


# -- bounds -------------------------------------------------------------------------------------------------


def test_staged_bytes_of_a_topic_are_bounded(start_broker: StartBroker, peers: Peers) -> None:
    """Each topic has `staged_bytes_max`. A description has the bytes."""
    broker = start_broker(staged_bytes_max=16 * MIB)
    fast = peers.fast(broker)
    job = Job(fast, "t")
    part = job.stage(1, 0, [[b"x" * 5 * MIB]] * 3)
    assert 15 * MIB < fast.describe("t").counters["staged_bytes"] < 16 * MIB
    with pytest.raises(Conflict, match=r"[\d,]+ bytes are staged on this topic, at most 16 MiB"):
        job.stage(1, 1, [[b"x" * MIB]])
    Job(fast, "another").stage(1, 1, [[b"x" * MIB]])
    assert job.publish(1, [part]).count == 3
    job.stage(2, 1, [[b"x" * MIB]])


def test_a_low_disk_refuses_to_stage_and_to_publish(start_broker: StartBroker, peers: Peers) -> None:
    """Staged parts stay, and are published when there is room."""
    broker = start_broker()
    job = Job(peers.fast(broker), "t")
    named = stage_all(job, 1, LARGE)
    assert broker.terminate() == 0
    broker.restart(disk_free_min=2**60)
    with refused("disk_low"):
        job.stage(1, 9, [[b"x"]])
    with refused("disk_low"):
        job.publish(1, named)
    assert broker.terminate() == 0
    broker.restart(disk_free_min=0)
    assert job.publish(1, named).count == 16


@pytest.mark.parametrize("worker_timeout", [0.05, 60])
def test_staged_batches_expire_unless_more_are_added(
    start_broker: StartBroker, peers: Peers, worker_timeout: float
) -> None:
    """`staged_max_age` holds for hibernating topics, too. The log names the transaction.

    One batch is staged: of several, the first might expire before the last is there.
    """
    broker = start_broker(staged_max_age=0.3, check_interval=0.05, worker_timeout=worker_timeout)
    fast = peers.fast(broker)
    job = Job(fast, "t")
    part = job.stage(4, 0, [[b"1", b"2", b"3"]])
    line = broker.wait_for("event=staged_expired")
    assert f"topic=t application={producer_of('loader'):016x} version=4 parts=1 batches=1 records=3" in line
    assert list(broker.topics_directory.glob("*/*.staged")) == []
    with refused("not_staged"):
        job.publish(4, [part])
    assert fast.describe("t").counters["staged_bytes"] == 0


def test_a_deleted_topic_takes_its_transactions_along(start_broker: StartBroker, peers: Peers) -> None:
    """No file is left, and a topic that is created again knows none of them."""
    broker = start_broker()
    fast = peers.fast(broker)
    job = Job(fast, "t")
    job.publish(1, stage_all(job, 1, SMALL))
    named = stage_all(job, 2, LARGE)
    fast.call(DeleteTopic(), "t")
    assert list(broker.topics_directory.glob("*~*")) == []
    job.stage(1, 5, [[b"new"]])
    with refused("not_staged"):
        job.publish(2, named)
    assert job.standing(1).newest_version == -1


@sizes
def test_requests_during_a_publish_are_answered_and_lose_nothing(
    broker: BrokerProcess, fast: FastPeer, topic: str, parts: Parts, rng: random.Random
) -> None:
    """Rolls, settings, publishes and fetches in any order."""
    job = Job(fast, topic)
    expected: list[bytes] = []
    for version in range(6):
        named = stage_all(job, version, parts)
        asks: list[Callable[[], int]] = [
            lambda: fast.send(RollTopic(), topic),
            lambda: fast.send(UpdateTopic({"age_limit": rng.random() * 1e6 + 1}), topic),
            lambda: fast.send_publish(topic, [b"w"]),
            lambda: fast.send(Fetch(), topic),
            lambda named=named, version=version: job.send_publish(version, named),  # type: ignore[misc]
        ]
        rng.shuffle(asks)
        answers = fast.answers_to([ask() for ask in asks])
        assert [code_of(answer) for answer in answers] == [""] * len(asks)
        expected += [b"w", *values_of(parts)]
    assert sorted(stored(fast, topic)) == sorted(expected)
    assert broker.terminate() == 0
    broker.restart()
    assert sorted(stored(fast, topic)) == sorted(expected)
