"""Archiving, run by run and for ever, in this process: each record that the topic held, once."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.damage import flip, stored_batches, with_headers, zero
from kit.machine.limits import file_bytes, needs_prlimit
from kit.spark.archives import account, files_in, of_archive, of_topic, publish, rows_of
from quoth import Client
from quoth.spark.archive import archived_files
from quoth.spark.archive.archiver import ArchiveTally, TopicArchiver
from quoth.spark.archive.manifest import ArchivedLog
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quothwire.batch import HEADER_BYTES
from quothwire.errors import Conflict, Damaged, NotFound, RequestError
from quothwire.headers import encode_headers

RESUMED_S = 2.0
Archive = Callable[..., ArchiveTally]
Archiver = Callable[..., TopicArchiver]


def log_of(root: Path, topic: str) -> ArchivedLog:
    found = read_manifest(root).newest(topic)
    assert found is not None
    return found


# -- what is archived ---------------------------------------------------------------------------------------


def test_archive_has_every_record_as_it_was_read_in_one_commit_or_several(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [50, 1, 30, 7, 99, 3])
    tally = archive()
    messages = client.read(topic)
    rows = rows_of(root, topic)
    assert [row["offset"] for row in rows] == [message.pointer for message in messages]
    assert [row["ordinal"] for row in rows] == list(range(190))
    assert of_archive(root, topic) == of_topic(client, topic)
    assert (tally.records, tally.lost, tally.commits) == (190, 0, 1)
    assert tally.files == len(archived_files(root)) > 1
    assert {row["key"] for row in rows} >= {None, b"key 1"}
    publish(client, topic, [80] * 10)
    assert archive(file_bytes=1_000).commits > 2
    assert of_archive(root, topic) == of_topic(client, topic)
    assert archived_files(root, "no-such.*") == []
    with pytest.raises(NotFound, match=r"unknown_topic.*does not have 'no-such'"):
        archived_files(root, [topic, "no-such"])


def test_next_run_continues_behind_the_last_and_changes_nothing_if_nothing_was_published(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    for run in range(3):
        publish(client, topic, [40, 5], f"run {run}")
        assert archive().records == 45
        before = read_manifest(root), files_in(root)
        assert archive() == ArchiveTally(topics={topic})
        assert (read_manifest(root), files_in(root)) == before
    assert of_archive(root, topic) == of_topic(client, topic)
    assert all(one.last < other.first for one, other in pairwise(log_of(root, topic).files))


# -- what cannot be archived --------------------------------------------------------------------------------


def lose(client: Client, topic: str, left: int) -> None:
    """Publish 17 records that are trimmed, and `left` records behind them."""
    publish(client, topic, [17])
    client.roll(topic)
    if left:
        publish(client, topic, [left])
    client.trim(topic, client.topic(topic).last + 1 - left)


@pytest.mark.parametrize("left", [5, 0])
def test_records_that_retention_removed_first_are_counted_once_or_are_an_error(
    client: Client, archive: Archive, root: Path, topic: str, told: list[str], left: int
) -> None:
    publish(client, topic, [10])
    archive()
    before = read_manifest(root)
    lose(client, topic, left)
    with pytest.raises(NotFound, match="17 records"):
        archive(fail_on_loss=True)
    assert read_manifest(root) == before
    tally = archive()
    assert (tally.records, tally.lost) == (left, 17)
    assert "17 records" in told[0]
    log = log_of(root, topic)
    assert (log.lost, log.until) == (17, client.topic(topic).last)
    assert [(loss.after, loss.reason) for loss in log.losses] == [(before.logs[0].until, "trimmed")]
    publish(client, topic, [4])
    tally = archive(fail_on_loss=True)
    assert (tally.records, tally.lost) == (4, 0)


def test_records_that_were_removed_before_the_first_run_are_no_loss(
    client: Client, archive: Archive, topic: str
) -> None:
    lose(client, topic, 5)
    tally = archive(fail_on_loss=True)
    assert (tally.records, tally.lost) == (5, 0)


def test_damaged_records_are_counted_and_not_trimmed(
    start_broker: StartBroker, connect: Any, archive: Archive, root: Path, topic: str
) -> None:
    broker = start_broker()
    with connect(broker) as client:
        publish(client, topic, [10, 20, 30])
        log_id = client.topic(topic).log
        client.roll(topic)
        publish(client, topic, [5])
    broker.terminate()
    damaged = stored_batches(broker.topics_directory, log_id)[1]
    flip(damaged.path, damaged.start + HEADER_BYTES + 300)
    broker.restart()
    with connect(broker) as client:
        with pytest.raises(Damaged):
            archive(topic, client, fail_on_loss=True)
        tally = archive(topic, client, trim=True)
        assert (tally.records, tally.lost, tally.trimmed) == (45, 20, 0)
        assert [(loss.records, loss.reason) for loss in log_of(root, topic).losses] == [(20, "damaged")]
        assert of_archive(root, topic) == of_topic(client, topic)
        assert client.topic(topic).count == 65


def test_damage_before_all_readable_records_prevents_a_trim_until_it_is_gone(
    start_broker: StartBroker, connect: Any, archive: Archive, root: Path, topic: str
) -> None:
    broker = start_broker()
    with connect(broker) as client:
        for size in (10, 20):
            publish(client, topic, [size])
            client.roll(topic)
        log_id = client.topic(topic).log
    broker.terminate()
    damaged = stored_batches(broker.topics_directory, log_id)[0]
    zero(damaged.path, damaged.start, damaged.end)
    broker.restart()
    with connect(broker) as client:
        for _ in range(2):
            assert (archive(topic, client, trim=True).trimmed, client.topic(topic).count) == (0, 30)
        client.trim(topic, damaged.header.last + 1)
        assert (archive(topic, client, trim=True).trimmed, client.topic(topic).count) == (20, 0)
        assert log_of(root, topic).lost == 10


def test_headers_that_cannot_be_decoded_are_archived_as_their_bytes(
    client: Client, broker: BrokerProcess, archive: Archive, root: Path, topic: str
) -> None:
    client.publish(topic, [b"a", b"b", b"c"], headers=[{"n": b"v"}, {"bad": b""}, {}])
    good = encode_headers({"bad": b""})
    bad = b"\xc1" * len(good)
    with_headers(broker.topics_directory, client.topic(topic).log, good, bad)
    assert archive(fail_on_loss=True).records == 3
    found = [(row["value"], row["headers"]) for row in rows_of(root, topic)]
    assert found == [
        (b"a", [{"key": "n", "value": b"v"}]),
        (b"b", [{"key": None, "value": bad}]),
        (b"c", None),
    ]


@needs_prlimit
@pytest.mark.parametrize("room", [0, 600, 2_500])
def test_full_disk_ends_a_run_and_leaves_nothing(
    client: Client, archive: Archive, root: Path, topic: str, room: int
) -> None:
    """No file may grow above so many bytes: neither a file with records, nor a manifest."""
    publish(client, topic, [10])
    archive()
    before, files = read_manifest(root), files_in(root)
    publish(client, topic, [40] * 10)
    with file_bytes(os.getpid(), room), pytest.raises(OSError, match="File too large"):
        archive(file_bytes=2**20)
    assert read_manifest(root) == before
    assert not [path for path in files_in(root) if path.endswith(".tmp")]
    assert set(files) <= set(files_in(root))
    assert archive().records == 400
    assert of_archive(root, topic) == of_topic(client, topic)


# -- a topic that is created again --------------------------------------------------------------------------


def test_topic_that_was_created_again_is_another_generation(
    client: Client, archive: Archive, root: Path, topic: str, told: list[str]
) -> None:
    publish(client, topic, [10, 20], "old")
    archive()
    old = of_topic(client, topic)
    client.delete_topic(topic)
    publish(client, topic, [7], "new")
    tally = archive()
    assert (tally.records, tally.lost) == (7, 0)
    assert "generation 2" in told[0]
    first, second = read_manifest(root).logs
    assert (first.generation, first.rows, second.generation, second.rows) == (1, 30, 2, 7)
    assert {file.name for file in first.files}.isdisjoint(file.name for file in second.files)
    new = account((one.pointer, one.key, one.value, one.headers) for one in client.read(topic))
    assert new.sum == of_archive(root).sum - old.sum


# -- trimming -----------------------------------------------------------------------------------------------


def test_archived_records_are_trimmed_also_if_an_earlier_run_has_archived_them(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [10, 20])
    held = of_topic(client, topic)
    archive()
    client.roll(topic)
    assert (archive(trim=True).trimmed, client.topic(topic).count) == (30, 0)
    publish(client, topic, [5], "more")
    rest = of_topic(client, topic)
    assert archive(trim=True).lost == 0
    assert of_archive(root, topic) == (held.records + rest.records, held.sum + rest.sum)


# -- together with others -----------------------------------------------------------------------------------


def test_policy_that_makes_no_sense_is_refused(client: Client, archive: Archive, topic: str) -> None:
    publish(client, topic, [3])
    for policy, text in (
        ({"file_bytes": 0}, "files of 0 bytes"),
        ({"keep_replaced": float("nan")}, "keep_replaced is a number of seconds, not nan"),
    ):
        with pytest.raises(RequestError, match=text):
            archive(**policy)
    assert archive(keep_replaced=float("inf")).records == 3


def test_strays_are_removed_after_a_grace_and_files_of_others_never(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [5])
    archive()
    [file] = map(Path, archived_files(root))
    stray = file.with_name(f"{1:017d}-{2:017d}.parquet")
    draft, foreign = file.with_name(".5be1c2f0a7d94e63.parquet.tmp"), file.with_name("mine.parquet")
    for path in (stray, draft, foreign):
        path.write_bytes(b"x")
    file.with_name(".5be1c2f0a7d94e64.parquet.tmp").symlink_to("gone")  # as if listed and then dropped
    with ArchiveStore(root) as store:
        assert store.sweep(keep_replaced=0) == 0
        assert store.sweep(keep_replaced=0, keep_strays=0) == 2
    assert files_in(root) == sorted(map(str, (file, foreign)))


# -- for ever -----------------------------------------------------------------------------------------------


def test_following_continues_through_restarts_and_other_work_until_its_topic_is_deleted(
    start_broker: StartBroker,
    connect: Any,
    archiver: Archiver,
    root: Path,
    told: list[str],
    pool: ThreadPoolExecutor,
) -> None:
    broker = start_broker()
    client: Client = connect(broker)
    impatient: Client = connect(broker)
    impatient.timeout = 1.0
    archive = archiver("orders", impatient)

    def follows() -> None:
        expected = of_topic(client, "orders").records
        eventually(lambda: archive.tally.records == expected, "all of it is archived")

    def says(*codes: str) -> None:
        eventually(lambda: any(text.startswith(codes) for text in told), f"it says {codes}")

    publish(client, "orders", [5])
    following = pool.submit(archive.follow, 0.01)
    follows()
    store = eventually(lambda: free_store(root), "it is unlocked")
    assert store is not None
    with store:
        says("locked")
    publish(client, "orders", [7, 3])
    follows()
    broker.kill()
    says("disconnected", "timed_out")
    broker.restart()
    publish(client, "orders", [9])
    follows()
    expected = of_topic(client, "orders")
    client.delete_topic("orders")
    with pytest.raises(NotFound, match="unknown_topic"):
        following.result(DEADLINE_S)
    assert of_archive(root) == expected


def test_following_looks_again_soon_after_an_outage_however_long_its_interval_is(
    start_broker: StartBroker, connect: Any, archiver: Archiver, told: list[str], pool: ThreadPoolExecutor
) -> None:
    def sleep(seconds: float) -> None:
        if seconds > RESUMED_S:
            raise InterruptedError("it has looked")
        pause(seconds)

    broker = start_broker()
    client: Client = connect(broker)
    client.timeout = 1.0
    publish(client, "orders", [5])
    archive = archiver("orders", client, sleep)
    broker.kill()
    following = pool.submit(archive.follow, 3_600.0)
    eventually(lambda: len(told) > 1, "it has waited in vain, and again")
    broker.restart()
    with pytest.raises(InterruptedError):
        following.result(DEADLINE_S)
    assert archive.tally.records == 5


class DeletingClient(Client):
    """A client whose broker deletes a topic before the first request for it is executed."""

    deletes = ""

    def advance(self, topic: str, *which: Any, **limits: Any) -> Any:
        """See `Client.advance`."""
        if topic == self.deletes and topic in self.topics():
            self.delete_topic(topic)
        return super().advance(topic, *which, **limits)


def test_following_a_pattern_continues_though_one_of_its_topics_is_deleted_meanwhile(
    client: Client, archiver: Archiver, topic: str, told: list[str], pool: ThreadPoolExecutor
) -> None:
    names = [f"{topic}-{one}" for one in "abc"]
    for name in names:
        publish(client, name, [3])
    with DeletingClient(client.url, None, DEADLINE_S) as deleting:
        deleting.deletes = names[1]
        archive = archiver(f"{topic}-*", deleting)
        following = pool.submit(archive.follow, 0.01)
        eventually(lambda: following.done() or archive.tally.records == 6, "the others are archived")
        for name in (names[0], names[2]):
            client.delete_topic(name)
        with pytest.raises(NotFound, match="no topic matches"):
            following.result(DEADLINE_S)
    assert archive.tally.records == 6
    assert told[0] == f"unknown_topic: there is no topic '{names[1]}'; it goes on with what is there"


def free_store(root: Path) -> ArchiveStore | None:
    """Open the archive, unless it is locked."""
    with suppress(Conflict):
        return ArchiveStore(root)
    return None
