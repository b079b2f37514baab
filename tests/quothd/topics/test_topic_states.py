"""One open topic in memory: every operation in every state, every failure of the disk at every call."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from kit.broker.open_topic import OpenTopic, new_topic, pending
from kit.broker.operations import OPERATIONS, VALUES, publish
from kit.broker.transactions import LOADER, part_of, staged
from kit.disk.doubles import CHANGES, FaultyDisk, Kind
from quothd.requests.events import Answered, Close, Closed, Deleted, Failed
from quothd.requests.pending_request import PendingRequest
from quothd.topics.metadata import TopicMetadata
from quothlog import Log
from quothlog.file_format import HORIZON_US
from quothwire.errors import QuothError
from quothwire.protocol.messages import WITHOUT_TOPIC, Operation, PublishStaged, RollTopic, Stage
from quothwire.protocol.transaction import encode_parts

STORES = (Operation.PUBLISH, Operation.PUBLISH_STAGED)
READS = (Operation.FETCH, Operation.ADVANCE, Operation.SPLIT, Operation.COUNT)

State = Callable[[OpenTopic, FaultyDisk], None]


def nothing(_topic: OpenTopic, _disk: FaultyDisk) -> None:
    """A new topic."""


def filled(topic: OpenTopic, _disk: FaultyDisk) -> None:
    """Records in two segments, all of them synced, and a part that is staged."""
    topic.handle(publish("written"), pending(RollTopic()), publish("synced"), OPERATIONS["stage"]())
    topic.deliver()


def unsynced(topic: OpenTopic, _disk: FaultyDisk) -> None:
    """Records that no fsync has been asked for."""
    topic.handle(publish("written"))


def syncing(topic: OpenTopic, _disk: FaultyDisk) -> None:
    """An fsync is under way, and an acknowledgement waits for it."""
    filled(topic, _disk)
    topic.handle(publish("synced"))
    assert not topic.services.is_idle


def failed(topic: OpenTopic, disk: FaultyDisk) -> None:
    """A write has failed, so the topic takes none."""
    disk.fail("write")
    topic.handle(publish("written"))


def sync_fails(topic: OpenTopic, disk: FaultyDisk) -> None:
    """An fsync is under way, and will fail."""
    syncing(topic, disk)
    disk.fail("sync")


def shared(topic: OpenTopic, disk: FaultyDisk) -> None:
    """A group has a member with all records, another fetch waits, and a cursor stands at the beginning."""
    filled(topic, disk)
    topic.handle(*(OPERATIONS[name]() for name in ("open group", "open cursor", "group fetch")))
    topic.deliver()


SOUND: list[State] = [nothing, filled, unsynced, syncing, shared]
FAILED: list[State] = [failed, sync_fails]


@pytest.fixture
def disk() -> FaultyDisk:
    """A disk on which no power is lost."""
    return FaultyDisk(syncs=False)


def test_the_table_has_every_operation_that_a_topic_handles() -> None:
    """All but those about the broker, and the one that creates a topic."""
    handled = {ask().operation for ask in OPERATIONS.values()}
    assert handled == {*Operation} - WITHOUT_TOPIC - {Operation.CREATE}


@pytest.mark.parametrize("state", [*SOUND, *FAILED])
def test_every_request_is_answered_once_in_every_state(
    tmp_path: Path, disk: FaultyDisk, state: State
) -> None:
    """Before the topic ends, or with its end. So is a publish of the same burst."""
    codes = {"", "waits", "not_staged", "unknown_group"} | ({"storage_failed"} if state in FAILED else set())
    for name, companions in product(OPERATIONS, (0, 1)):
        topic = OpenTopic(tmp_path / f"{name} {companions}", disk)
        state(topic, disk)
        asked = [publish("written")] * companions + [OPERATIONS[name]()]
        topic.handle(*asked)
        topic.deliver()
        if topic.end is None:
            topic.handle(Close())
            topic.deliver()
        disk.heal()
        assert topic.topic.ended
        assert isinstance(topic.end, Deleted if name == "delete" else Closed | Failed)
        assert {*topic.codes(topic.answers)} <= codes, name


def test_a_closing_topic_answers_earlier_requests(tmp_path: Path, disk: FaultyDisk) -> None:
    """Requests that wait for an fsync, too. A front end that ends waits for no reads and deletions."""
    for name in OPERATIONS:
        topic = OpenTopic(tmp_path / name, disk)
        syncing(topic, disk)
        before = [*topic.answers]
        last = OPERATIONS[name]()
        topic.handle(last, Close())
        topic.deliver()
        assert topic.topic.ended
        is_given_up = last.operation in (*READS, Operation.DELETE)
        topic.codes(before if is_given_up else topic.answers)


@pytest.mark.parametrize("large", [False, True], ids=["appended", "segments"])
def test_requests_that_append_wait_for_a_commit_and_follow_it_in_order(
    tmp_path: Path, disk: FaultyDisk, large: bool
) -> None:
    """No answer says `published` before the fsync, and a repeated publish has the reply of the first one.

    Publishes and reads go on while a thread syncs a large transaction.
    """
    topic = OpenTopic(tmp_path, disk)
    batches = [[bytes(2**20)]] * 8 if large else [VALUES]
    for number, values in enumerate(batches):
        topic.handle(pending(Stage(LOADER, 1, 0, 7, number), staged(values, 1)))
    parts = encode_parts([part_of(0, 7, batches)])
    commit, again = (pending(PublishStaged(LOADER, 1, 1), parts) for _ in range(2))
    behind = [again, OPERATIONS["transaction"](), OPERATIONS["abort"](), OPERATIONS["publish"]()]
    topic.handle(commit, *behind, OPERATIONS["fetch"]())
    early = {event.request for event in topic.events if isinstance(event, Answered)}
    assert not {commit, again, behind[2]} & early
    assert not large or behind[3] in early
    topic.deliver()
    assert topic.codes([commit, *behind]) == [""] * 5
    order = [event.request for event in topic.events if isinstance(event, Answered)]
    deciding = [request for request in order if request in (commit, again, behind[2])]
    assert deciding == [commit, again, behind[2]]
    assert topic.topic._log.end_ordinal == sum(map(len, batches)) + len(VALUES)


def test_a_pointer_far_above_the_synced_ones_is_acknowledged_by_an_fsync(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    """After a loss of power it might be given out once more otherwise."""
    topic = OpenTopic(tmp_path, disk)
    near, far = publish("written"), publish("written")
    topic.handle(near)
    assert topic.codes([near]) == [""]
    topic.clock.step(HORIZON_US)
    topic.handle(far)
    assert topic.answers[far] == []
    topic.deliver()
    assert topic.codes([far]) == [""]


def test_a_publish_overtakes_the_reads_of_other_threads(tmp_path: Path, disk: FaultyDisk) -> None:
    topic = OpenTopic(tmp_path, disk)
    filled(topic, disk)
    reads = [OPERATIONS[name]() for name in ("advance", "split", "count")]
    behind = publish("written")
    topic.handle(*reads, behind)
    assert topic.codes([behind]) == [""]
    assert not any(topic.answers[one] for one in reads)
    topic.deliver()
    assert topic.codes(reads) == [""] * 3


@pytest.mark.parametrize("behind", [[], ["fetch", "publish"]], ids=["alone", "with more behind it"])
def test_a_defect_closes_the_topic_once_no_fsync_runs(
    tmp_path: Path, disk: FaultyDisk, behind: list[str]
) -> None:
    topic = OpenTopic(tmp_path, disk)
    syncing(topic, disk)
    broken = OPERATIONS["count"]()
    broken.responder = object()  # type: ignore[assignment]
    topic.handle(broken, *(OPERATIONS[name]() for name in behind))
    assert not topic.topic.ended
    assert not topic.topic.has_more, "nothing can be done before the fsync has ended"
    topic.deliver()
    assert isinstance(topic.end, Failed)
    assert topic.codes([broken]) == ["internal"]
    topic.codes(topic.answers)


def script() -> Iterator[list[PendingRequest]]:
    """Requests, burst by burst: all operations on a topic that has something of everything."""
    yield [publish("written"), publish("synced")]
    yield [OPERATIONS["stage"](), publish("written")]
    yield [OPERATIONS["publish staged"](), publish("written"), OPERATIONS["transaction"]()]
    yield [OPERATIONS["roll"](), publish("synced"), OPERATIONS["update"]()]
    yield [OPERATIONS[name]() for name in ("fetch", "count", "advance", "split", "describe")]
    yield [OPERATIONS[name]() for name in ("open group", "open cursor", "group fetch", "describe group")]
    yield [OPERATIONS[name]() for name in ("group ack", "commit cursor", "update group", "list groups")]
    yield [OPERATIONS["seek group"](), publish("written"), OPERATIONS["group fetch"]()]
    yield [OPERATIONS[name]() for name in ("group nack", "list pending", "delete group")]
    yield [OPERATIONS["trim"](), publish("written"), OPERATIONS["abort"]()]


def live(directory: Path, disk: FaultyDisk, metadata: TopicMetadata | None = None) -> OpenTopic:
    """Go through the script, as far as the topic lives; returns the topic, ended."""
    topic = OpenTopic(directory, disk, metadata, check_interval=1.0)
    for burst in script():
        if topic.topic.ended:
            break
        topic.handle(*burst)
        topic.deliver()
        topic.pass_time(2.0)
        topic.deliver()
    if not topic.topic.ended:
        topic.handle(Close())
        topic.deliver()
    assert topic.topic.ended
    return topic


KINDS: list[tuple[Kind, ...]] = [(kind,) for kind in (*CHANGES, "open", "read") if kind != "truncate"]


@pytest.mark.parametrize("kinds", [*KINDS, ("write", "truncate")], ids=" ".join)
def test_every_request_is_answered_once_for_every_failure_of_the_disk(
    tmp_path: Path, kinds: tuple[Kind, ...]
) -> None:
    """The n-th operation of a kind fails, for every n, and the removal of what a write has left.

    Acknowledged records are there afterwards.
    """
    kind, *then = kinds
    calm = FaultyDisk(syncs=False)
    undisturbed = live(tmp_path / "calm", calm)
    assert {*undisturbed.codes(undisturbed.answers)} == {""}
    assert calm.count(kind)
    truncates = 0
    for nth in range(1, calm.count(kind) + 1):
        disk, directory = FaultyDisk(syncs=False), tmp_path / str(nth)
        problem, written = (errno.ENOSPC, 40) if then else (errno.EIO, 0)
        disk.fail(kind, nth, problem, written=written)
        for other in then:
            disk.fail(other)
        metadata = new_topic()
        try:
            topic = live(directory, disk, metadata)
        except QuothError:
            assert list((directory / "topics").iterdir()) == [], "a topic that was not made leaves nothing"
            assert metadata.path is None, "the next request makes another folder"
            continue
        truncates += disk.count("truncate")
        codes = dict(zip(topic.answers, topic.codes(topic.answers), strict=True))
        stored = [request for request in codes if request.operation in STORES]
        acknowledged = sum(len(VALUES) for request in stored if not codes[request])
        assert metadata.path is not None
        with Log.open(metadata.path) as log:
            assert acknowledged <= log.end_ordinal <= len(VALUES) * len(stored), f"{kinds} {nth}"
            assert log.findings.damaged_bytes == 0
    assert truncates or not then, "such a failure is reached"
