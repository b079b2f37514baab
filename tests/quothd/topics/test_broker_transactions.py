"""Transactions through a broker: staged by many, published once, by one, all or nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
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
How = Callable[[BrokerProcess], None]


def stop(broker: BrokerProcess) -> None:
    """A clean restart."""
    assert broker.terminate() == 0
    broker.restart()


def kill(broker: BrokerProcess) -> None:
    """A crash and a restart."""
    broker.kill()
    broker.restart()


def nothing(broker: BrokerProcess) -> None:
    """No restart."""


ways = pytest.mark.parametrize("restart", [nothing, stop, kill])


def values_of(parts: Parts) -> list[bytes]:
    return [value for part in parts for values in part for value in values]


def stage_all(job: Job, version: int, parts: Parts) -> list[StagedPart]:
    return [job.stage(version, part, batches) for part, batches in enumerate(parts)]


def stored(fast: FastPeer, topic: str) -> list[bytes]:
    return [record.value for record in fast.read_all(topic)]


# -- all or nothing, once -----------------------------------------------------------------------------------


@sizes
@ways
@pytest.mark.parametrize("durability", ["written", "synced"])
def test_what_is_published_is_there_in_order_and_once(
    start_broker: StartBroker, peers: Peers, parts: Parts, restart: How, durability: str
) -> None:
    """Asked again it tells the same pointers, whatever happened in between."""
    broker = start_broker()
    fast = peers.fast(broker)
    fast.call(CreateTopic({"durability": durability}), "t")
    fast.publish("t", [b"before"])
    job = Job(fast, "t")
    named = stage_all(job, 5, parts)
    job.stage(5, 2, [[b"somebody who died"]], attempt=99)
    assert stored(fast, "t") == [b"before"]
    restart(broker)
    told = job.publish(5, named[::-1])
    restart(broker)
    again = job.publish(5, named[:1])
    assert (told.count, told.durability, told.duplicate) == (len(values_of(parts)), "synced", False)
    assert (again.first, again.last, again.count) == (told.first, told.last, told.count)
    assert again.duplicate
    found = fast.read_all("t")[1:]
    assert [record.value for record in found] == values_of(parts[::-1])
    assert [record.pointer for record in found] == list(range(told.first, told.last + 1))
    standing = job.standing(5)
    assert (standing.state, standing.first, standing.last, standing.count) == (
        "published", told.first, told.last, told.count
    )  # fmt: skip
    assert fast.describe("t").counters["staged_bytes"] == 0
    assert list(broker.topics_directory.glob("*/*.staged")) == []
    assert broker.terminate() == 0


@sizes
def test_nobody_is_told_that_it_is_stored_before_it_is_synced(
    start_broker: StartBroker, peers: Peers, parts: Parts
) -> None:
    """Who asks meanwhile hears how it stood before, or waits: no answer overtakes that of the publish."""
    fast = peers.fast(start_broker())
    job = Job(fast, "t")
    published = job.send_publish(1, stage_all(job, 1, parts))
    for version in (1, 2) * 20:
        fast.send(GetTransaction(job.application, version), "t")
    while (answer := fast.receive()).correlation != published:
        told = replied(answer)
        assert (told.state == "published", told.newest_version) == (False, -1)
        fast.send(GetTransaction(job.application, 1), "t")
    assert (replied(answer).count, job.standing(1).state) == (len(values_of(parts)), "published")
    assert job.standing(2).newest_version == 1


@sizes
def test_all_who_ask_at_once_hear_the_same(fast: FastPeer, topic: str, parts: Parts) -> None:
    """While the first is still at work the others wait for it; others' transactions come after it."""
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
def test_others_write_and_read_meanwhile_and_see_nothing_of_it_before_it_is_whole(
    broker: BrokerProcess, peers: Peers, topic: str, parts: Parts
) -> None:
    """In order, nothing lost; a waiting reader gets it as soon as it is there."""
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
            told = replied(fast.answer_to(publishing))
            assert told.count == len(whole)
    finally:
        ended.set()
        writer.join()
    there = stored(beside, topic)
    assert [value for value in there if value.startswith(b"w")] == [b"w0", *written]
    assert len(there) == 1 + len(written) + 4 * len(whole)


@ways
def test_staging_goes_on_after_a_restart(start_broker: StartBroker, peers: Peers, restart: How) -> None:
    """A task does not notice: what it was told is there, and what it sends again is kept once."""
    broker = start_broker(worker_timeout=0.05)
    job = Job(peers.fast(broker), "t")
    job.stage(1, 0, SMALL[0][:2])
    restart(broker)
    job.stage(1, 0, SMALL[0])
    standing = job.standing(1)
    assert (standing.state, standing.parts, standing.batches, standing.records) == ("staged", 1, 3, 3)
    assert standing.newest_version == -1
    assert job.publish(1, [part_of(0, 7, SMALL[0])]).count == 3


def test_abort_tells_what_it_removed(fast: FastPeer, topic: str) -> None:
    """And again that there is nothing; a published transaction stays."""
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
    told = job.publish(1, [])
    assert (told.first, told.last, told.count, told.duplicate) == (0, 0, 0, False)
    assert job.standing(1).state == "unknown"
    assert fast.describe(topic).counters["staged_bytes"] == 0


# -- what is wrong ------------------------------------------------------------------------------------------


def test_the_topic_is_made_by_the_first_stage_and_by_nothing_else(fast: FastPeer, topic: str) -> None:
    """Nor by a stage that is refused."""
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
    (Stage("loader", 1, 0, 7, 0), staged([b"x"], 1, "somebody"), "bad_batch"),
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


@pytest.mark.parametrize(("request_", "payload", "code"), REFUSED)
def test_what_is_wrong_changes_nothing(
    fast: FastPeer, topic: str, request_: Request, payload: bytes | None, code: str
) -> None:
    """Each has its code, and what was staged can be published afterwards."""
    fast.publish(topic, [b"before"])
    assert code_of(fast.request(request_, topic, payload)) == code
    job = Job(fast, topic)
    part = job.stage(1, 1, [[b"ours"]])
    assert code_of(fast.request(request_, topic, payload)) == code
    job.publish(1, [part])
    assert stored(fast, topic) == [b"before", b"ours"]


def test_garbage_for_parts_is_refused(fast: FastPeer, topic: str, rng: random.Random) -> None:
    """Whatever it is: one documented error, and nothing is published."""
    job = Job(fast, topic)
    part = job.stage(1, 0, [[b"ours"]])
    for _ in range(200):
        count = rng.randrange(4)
        request = PublishStaged("loader", 1, max(1, count))
        code = code_of(fast.request(request, topic, rng.randbytes(rng.choice([32 * count, 7]))))
        assert code in ("bad_request", "not_staged", "too_large")
    assert job.publish(1, [part]).count == 1


def test_an_error_tells_how_many_parts_are_missing(fast: FastPeer, topic: str) -> None:
    """However long their numbers, it is cut nowhere."""
    fast.publish(topic, [b"before"])
    missing = [StagedPart(999_999 - row, 2**64 - 1, 16_384 // 30, 2**40) for row in range(30)]
    with pytest.raises(QuothError, match=r"; part 999991 by attempt f{16}: .*, and 21 more") as told:
        Job(fast, topic).publish(1, missing)
    assert told.value.code == "not_staged"


def test_versions_do_not_go_backwards(fast: FastPeer, topic: str) -> None:
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


def test_an_application_is_no_producer(fast: FastPeer, topic: str) -> None:
    """A producer with the id of an application numbers its own batches as ever."""
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
    """`staged_bytes_max`, told by describe; other topics have their own."""
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


def test_a_low_disk_takes_nothing_that_is_staged(start_broker: StartBroker, peers: Peers) -> None:
    """`disk_low` for stage and publish; what is staged is kept, and published when there is room."""
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
    """`staged_max_age`, of sleeping topics too; the log tells whose it was.

    One batch is staged: of several, the first might expire before the last is there.
    """
    broker = start_broker(staged_max_age=0.3, check_interval=0.05, worker_timeout=worker_timeout)
    fast = peers.fast(broker)
    job = Job(fast, "t")
    part = job.stage(4, 0, [[b"1", b"2", b"3"]])
    told = broker.wait_for("event=staged_expired")
    assert f"topic=t application={producer_of('loader'):016x} version=4 parts=1 batches=1 records=3" in told
    assert list(broker.topics_directory.glob("*/*.staged")) == []
    with refused("not_staged"):
        job.publish(4, [part])
    assert fast.describe("t").counters["staged_bytes"] == 0


def test_it_goes_with_the_topic(start_broker: StartBroker, peers: Peers) -> None:
    """Deleting it, with files that are staged, leaves nothing, and a new one knows nothing."""
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
def test_what_else_is_done_to_the_topic_meanwhile_waits_or_is_done(
    start_broker: StartBroker, peers: Peers, parts: Parts, rng: random.Random
) -> None:
    """Rolls, trims, settings, publishes and fetches in any order: each is answered, nothing is lost."""
    broker = start_broker()
    fast = peers.fast(broker)
    job = Job(fast, "t")
    expected: list[bytes] = []
    for version in range(6):
        named = stage_all(job, version, parts)
        asks: list[Callable[[], int]] = [
            lambda: fast.send(RollTopic(), "t"),
            lambda: fast.send(UpdateTopic({"age_limit": rng.random() * 1e6 + 1}), "t"),
            lambda: fast.send_publish("t", [b"w"]),
            lambda: fast.send(Fetch(), "t"),
            lambda named=named, version=version: job.send_publish(version, named),  # type: ignore[misc]
        ]
        rng.shuffle(asks)
        answers = fast.answers_to([ask() for ask in asks])
        assert [code_of(answer) for answer in answers] == [""] * len(asks)
        expected += [b"w", *values_of(parts)]
    assert sorted(stored(fast, "t")) == sorted(expected)
    assert broker.terminate() == 0
    assert sorted(stored(peers.fast(broker.restart()), "t")) == sorted(expected)
