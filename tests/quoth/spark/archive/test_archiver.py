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
from kit.machine.processes import file_bytes, needs_prlimit
from kit.spark.archives import Archiving, account, files_in, of_archive, of_topic, publish, rows_of
from quoth import Client
from quoth.spark.archive import archived_files
from quoth.spark.archive.archiver import ArchiveTally
from quoth.spark.archive.store import ArchiveStore
from quothwire.batch import HEADER_BYTES
from quothwire.errors import Conflict, Damaged, NotFound, RequestError
from quothwire.headers import encode_headers

RESUMED_S = 2.0


# -- what is archived ---------------------------------------------------------------------------------------


def test_archive_has_every_record_as_it_was_read_in_one_commit_or_several(scene: Archiving) -> None:
    scene.publish([50, 1, 30, 7, 99, 3])
    tally = scene.archive()
    messages = scene.client.read(scene.topic)
    rows = rows_of(scene.root, scene.topic)
    assert [row["offset"] for row in rows] == [message.pointer for message in messages]
    assert [row["ordinal"] for row in rows] == list(range(190))
    scene.check()
    assert (tally.records, tally.lost, tally.commits) == (190, 0, 1)
    assert tally.files == len(archived_files(scene.root)) > 1
    assert {row["key"] for row in rows} >= {None, b"key 1"}
    scene.publish([80] * 10)
    assert scene.archive(file_bytes=1_000).commits > 2
    scene.check()
    assert archived_files(scene.root, "no-such.*") == []
    with pytest.raises(NotFound, match=r"unknown_topic.*does not have 'no-such'"):
        archived_files(scene.root, [scene.topic, "no-such"])


def test_next_run_continues_behind_the_last_and_changes_nothing_if_nothing_was_published(
    scene: Archiving,
) -> None:
    for run in range(3):
        scene.publish([40, 5], f"run {run}")
        assert scene.archive().records == 45
        before = scene.manifest, files_in(scene.root)
        assert scene.archive() == ArchiveTally(topics={scene.topic})
        assert (scene.manifest, files_in(scene.root)) == before
    scene.check()
    assert all(one.last < other.first for one, other in pairwise(scene.log.files))


# -- what cannot be archived --------------------------------------------------------------------------------


def lose(scene: Archiving, left: int) -> None:
    """Publish 17 records that are trimmed, and `left` records behind them."""
    scene.publish([17])
    scene.client.roll(scene.topic)
    if left:
        scene.publish([left])
    scene.client.trim(scene.topic, scene.client.topic(scene.topic).last + 1 - left)


@pytest.mark.parametrize("left", [5, 0])
def test_records_that_retention_removed_first_are_counted_once_or_are_an_error(
    scene: Archiving, left: int
) -> None:
    scene.publish([10])
    scene.archive()
    before = scene.manifest
    lose(scene, left)
    with pytest.raises(NotFound, match="17 records"):
        scene.archive(fail_on_loss=True)
    assert scene.manifest == before
    tally = scene.archive()
    assert (tally.records, tally.lost) == (left, 17)
    assert "17 records" in scene.reports[0]
    log = scene.log
    assert (log.lost, log.until) == (17, scene.client.topic(scene.topic).last)
    assert [(loss.after, loss.reason) for loss in log.losses] == [(before.logs[0].until, "trimmed")]
    scene.publish([4])
    tally = scene.archive(fail_on_loss=True)
    assert (tally.records, tally.lost) == (4, 0)


def test_records_that_were_removed_before_the_first_run_are_no_loss(scene: Archiving) -> None:
    lose(scene, 5)
    tally = scene.archive(fail_on_loss=True)
    assert (tally.records, tally.lost) == (5, 0)


def damage(scene: Archiving, broker: BrokerProcess, number: int, change: Callable[[Any], None]) -> Any:
    """Damage the n-th batch of the topic while its broker is away; returns the batch."""
    log_id = scene.client.topic(scene.topic).log
    broker.terminate()
    damaged = stored_batches(broker.topics_directory, log_id)[number]
    change(damaged)
    broker.restart()
    return damaged


def test_damaged_records_are_counted_and_not_trimmed(
    scene: Archiving, start_broker: StartBroker, connect: Any
) -> None:
    broker = start_broker()
    client = scene.client = connect(broker)
    scene.publish([10, 20, 30])
    client.roll(scene.topic)
    scene.publish([5])
    damage(scene, broker, 1, lambda one: flip(one.path, one.start + HEADER_BYTES + 300))
    with pytest.raises(Damaged):
        scene.archive(fail_on_loss=True)
    tally = scene.archive(trim=True)
    assert (tally.records, tally.lost, tally.trimmed) == (45, 20, 0)
    assert [(loss.records, loss.reason) for loss in scene.log.losses] == [(20, "damaged")]
    scene.check()
    assert client.topic(scene.topic).count == 65


def test_damage_before_all_readable_records_prevents_a_trim_until_it_is_gone(
    scene: Archiving, start_broker: StartBroker, connect: Any
) -> None:
    broker = start_broker()
    client = scene.client = connect(broker)
    for size in (10, 20):
        scene.publish([size])
        client.roll(scene.topic)
    damaged = damage(scene, broker, 0, lambda one: zero(one.path, one.start, one.end))
    for trimmed, left in ((0, 30), (0, 30), (20, 0)):
        if trimmed:
            client.trim(scene.topic, damaged.header.last + 1)
        assert (scene.archive(trim=True).trimmed, client.topic(scene.topic).count) == (trimmed, left)
    assert scene.log.lost == 10


def test_headers_that_cannot_be_decoded_are_archived_as_their_bytes(
    scene: Archiving, broker: BrokerProcess
) -> None:
    scene.client.publish(scene.topic, [b"a", b"b", b"c"], headers=[{"n": b"v"}, {"bad": b""}, {}])
    good = encode_headers({"bad": b""})
    bad = b"\xc1" * len(good)
    with_headers(broker.topics_directory, scene.client.topic(scene.topic).log, good, bad)
    assert scene.archive(fail_on_loss=True).records == 3
    found = [(row["value"], row["headers"]) for row in rows_of(scene.root, scene.topic)]
    headers = [{"key": "n", "value": b"v"}], [{"key": None, "value": bad}], None
    assert found == list(zip((b"a", b"b", b"c"), headers, strict=True))


@needs_prlimit
@pytest.mark.parametrize("room", [0, 600, 2_500])
def test_full_disk_ends_a_run_and_leaves_nothing(scene: Archiving, room: int) -> None:
    """No file may grow above so many bytes: neither a file with records, nor a manifest."""
    scene.publish([10])
    scene.archive()
    before, files = scene.manifest, files_in(scene.root)
    scene.publish([40] * 10)
    with file_bytes(os.getpid(), room), pytest.raises(OSError, match="File too large"):
        scene.archive(file_bytes=2**20)
    assert scene.manifest == before
    assert not [path for path in files_in(scene.root) if path.endswith(".tmp")]
    assert set(files) <= set(files_in(scene.root))
    assert scene.archive().records == 400
    scene.check()


# -- a topic that is created again --------------------------------------------------------------------------


def test_topic_that_was_created_again_is_another_generation(scene: Archiving) -> None:
    scene.publish([10, 20], "old")
    scene.archive()
    old = of_topic(scene.client, scene.topic)
    scene.client.delete_topic(scene.topic)
    scene.publish([7], "new")
    tally = scene.archive()
    assert (tally.records, tally.lost) == (7, 0)
    assert "generation 2" in scene.reports[0]
    first, second = scene.manifest.logs
    assert (first.generation, first.rows, second.generation, second.rows) == (1, 30, 2, 7)
    assert {file.name for file in first.files}.isdisjoint(file.name for file in second.files)
    new = account((one.pointer, one.key, one.value, one.headers) for one in scene.client.read(scene.topic))
    assert new.sum == of_archive(scene.root).sum - old.sum


# -- trimming -----------------------------------------------------------------------------------------------


def test_archived_records_are_trimmed_also_if_an_earlier_run_has_archived_them(scene: Archiving) -> None:
    scene.publish([10, 20])
    held = of_topic(scene.client, scene.topic)
    scene.archive()
    scene.client.roll(scene.topic)
    assert (scene.archive(trim=True).trimmed, scene.client.topic(scene.topic).count) == (30, 0)
    scene.publish([5], "more")
    rest = of_topic(scene.client, scene.topic)
    assert scene.archive(trim=True).lost == 0
    assert of_archive(scene.root, scene.topic) == (held.records + rest.records, held.sum + rest.sum)


# -- together with others -----------------------------------------------------------------------------------


def test_policy_that_makes_no_sense_is_refused(scene: Archiving) -> None:
    scene.publish([3])
    for policy, text in (
        ({"file_bytes": 0}, "files of 0 bytes"),
        ({"keep_replaced": float("nan")}, "keep_replaced is a number of seconds, not nan"),
    ):
        with pytest.raises(RequestError, match=text):
            scene.archive(**policy)
    assert scene.archive(keep_replaced=float("inf")).records == 3


def test_unlisted_files_are_removed_after_a_grace_and_files_of_others_never(scene: Archiving) -> None:
    scene.publish([5])
    scene.archive()
    [file] = map(Path, archived_files(scene.root))
    unlisted = file.with_name(f"{1:017d}-{2:017d}.parquet")
    draft, foreign = file.with_name(".5be1c2f0a7d94e63.parquet.tmp"), file.with_name("mine.parquet")
    for path in (unlisted, draft, foreign):
        path.write_bytes(b"x")
    file.with_name(".5be1c2f0a7d94e64.parquet.tmp").symlink_to("gone")  # as if listed and then dropped
    with ArchiveStore(scene.root) as store:
        assert store.sweep(keep_replaced=0) == 0
        assert store.sweep(keep_replaced=0, keep_unlisted=0) == 2
    assert files_in(scene.root) == sorted(map(str, (file, foreign)))


# -- for ever -----------------------------------------------------------------------------------------------


def test_following_continues_through_restarts_and_other_work_until_its_topic_is_deleted(
    scene: Archiving, start_broker: StartBroker, connect: Any, pool: ThreadPoolExecutor
) -> None:
    broker = start_broker()
    client: Client = connect(broker)
    scene.client = connect(broker)
    scene.client.timeout = 1.0
    archive = scene.archiver()

    def publish_and_wait(*sizes: int) -> None:
        publish(client, scene.topic, sizes)
        expected = of_topic(client, scene.topic).records
        eventually(lambda: archive.tally.records == expected, "all of it is archived")

    def says(*codes: str) -> None:
        eventually(lambda: any(text.startswith(codes) for text in scene.reports), f"it says {codes}")

    publish(client, scene.topic, [1])
    following = pool.submit(archive.follow, 0.01)
    publish_and_wait(5)
    store = eventually(lambda: free_store(scene.root), "it is unlocked")
    assert store is not None
    with store:
        says("locked")
    publish_and_wait(7, 3)
    broker.kill()
    says("disconnected", "timed_out")
    broker.restart()
    publish_and_wait(9)
    expected = of_topic(client, scene.topic)
    client.delete_topic(scene.topic)
    with pytest.raises(NotFound, match="unknown_topic"):
        following.result(DEADLINE_S)
    assert of_archive(scene.root) == expected


def test_following_looks_again_soon_after_an_outage_however_long_its_interval_is(
    scene: Archiving, start_broker: StartBroker, connect: Any, pool: ThreadPoolExecutor
) -> None:
    def sleep(seconds: float) -> None:
        if seconds > RESUMED_S:
            raise InterruptedError("it has looked")
        pause(seconds)

    broker = start_broker()
    scene.client = connect(broker)
    scene.publish([5])
    scene.client.timeout = 1.0
    archive = scene.archiver(sleep=sleep)
    broker.kill()
    following = pool.submit(archive.follow, 3_600.0)
    eventually(lambda: len(scene.reports) > 1, "it has waited in vain, and again")
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
    scene: Archiving, pool: ThreadPoolExecutor
) -> None:
    names = [f"{scene.topic}-{one}" for one in "abc"]
    for name in names:
        publish(scene.client, name, [3])
    with DeletingClient(scene.client.url, None, DEADLINE_S) as deleting:
        deleting.deletes = names[1]
        scene.client = deleting
        archive = scene.archiver(f"{scene.topic}-*")
        following = pool.submit(archive.follow, 0.01)
        eventually(lambda: following.done() or archive.tally.records == 6, "the others are archived")
        for name in (names[0], names[2]):
            deleting.delete_topic(name)
        with pytest.raises(NotFound, match="no topic matches"):
            following.result(DEADLINE_S)
    assert archive.tally.records == 6
    expected = f"unknown_topic: there is no topic '{names[1]}'; it goes on with what is there"
    assert scene.reports[0] == expected


def free_store(root: Path) -> ArchiveStore | None:
    """Open the archive, unless it is locked."""
    with suppress(Conflict):
        return ArchiveStore(root)
    return None
