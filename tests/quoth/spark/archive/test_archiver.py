"""Archiving, run by run, in this process: what is archived is what the topic held, each record once."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.broker.brokers import BrokerProcess
from kit.disk.damage import flip, stored_batches, with_headers, zero
from kit.machine.limits import file_bytes, needs_prlimit
from kit.spark.archives import FILE_BYTES, account, files_in, of_archive, of_topic, publish, rows_of, turn
from quoth import Client
from quoth.spark.archive import archived_files
from quoth.spark.archive.archiver import ArchiveTally, Policy, TopicArchiver
from quoth.spark.archive.manifest import ArchivedLog
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quoth.spark.replay.tasks import with_pointer
from quoth.spark.workers import LocalWorkers
from quothwire.batch import HEADER_BYTES
from quothwire.errors import Conflict, Damaged, NotFound, RequestError
from quothwire.headers import decode_headers, encode_headers

Archive = Callable[..., ArchiveTally]


@pytest.fixture
def archive(client: Client, root: Path, topic: str, told: list[str]) -> Archive:
    """Runs an archiving of the test's topic: `archive(trim=True)`."""

    def run(topics: Any = topic, **policy: Any) -> ArchiveTally:
        archiver = TopicArchiver(
            client, root, LocalWorkers(), topics, Policy(**{"file_bytes": FILE_BYTES, **policy}), told.append
        )
        archiver.run()
        return archiver.tally

    return run


def log_of(root: Path, topic: str) -> ArchivedLog:
    found = read_manifest(root).newest(topic)
    assert found is not None
    return found


# -- what is archived ---------------------------------------------------------------------------------------


def test_archive_holds_every_record_as_it_was_read(
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


def test_name_that_an_archive_does_not_have_is_told_and_a_pattern_may_match_nothing(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    client.publish(topic, b"x")
    archive()
    assert archived_files(root, "no-such.*") == []
    for topics in ("no-such", [topic, "no-such"]):
        with pytest.raises(NotFound, match=r"unknown_topic.*does not have 'no-such'"):
            archived_files(root, topics)


def test_next_run_goes_on_behind_the_last(client: Client, archive: Archive, root: Path, topic: str) -> None:
    counts = []
    for run in range(3):
        publish(client, topic, [40, 5], f"run {run}")
        counts.append(archive().records)
    assert counts == [45, 45, 45]
    assert of_archive(root, topic) == of_topic(client, topic)
    files = log_of(root, topic).files
    assert all(before.last < after.first for before, after in pairwise(files))


def test_run_without_news_leaves_everything_as_it_is(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [5])
    archive()
    before, files = read_manifest(root), files_in(root)
    assert archive() == ArchiveTally(topics={topic})
    assert (read_manifest(root), files_in(root)) == (before, files)


def test_much_is_archived_in_several_commits(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    for _ in range(5):
        publish(client, topic, [80, 80])
    tally = archive(file_bytes=1_000)
    assert tally.commits > 2
    assert of_archive(root, topic) == of_topic(client, topic)


def test_patterns_take_topics_that_come_later(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, f"{topic}.a", [3])
    assert archive(f"{topic}.*").topics == {f"{topic}.a"}
    publish(client, f"{topic}.b%", [4])
    assert archive([f"{topic}.*"]).records == 4
    assert of_archive(root, f"{topic}.b%") == of_topic(client, f"{topic}.b%")


def test_topic_that_does_not_exist_is_told_and_nothing_is_written(archive: Archive, root: Path) -> None:
    for topics in ("no-such-topic", "no-such-*"):
        with pytest.raises(NotFound, match="unknown_topic"):
            archive(topics)
    assert files_in(root) == []


# -- what cannot be archived --------------------------------------------------------------------------------


def test_records_that_retention_took_first_are_counted_exactly(
    client: Client, archive: Archive, root: Path, topic: str, told: list[str]
) -> None:
    publish(client, topic, [10])
    archive()
    publish(client, topic, [17])
    client.roll(topic)
    publish(client, topic, [5])
    client.trim(topic, client.topic(topic).last - 4)
    held = log_of(root, topic)
    tally = archive()
    assert (tally.records, tally.lost) == (5, 17)
    log = log_of(root, topic)
    assert (log.lost, [loss.reason for loss in log.losses]) == (17, ["trimmed"])
    assert log.losses[0].after == held.until
    assert "17 records" in told[0]
    assert archive().lost == 0


def test_lost_records_end_a_run_that_is_to_fail_on_them(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [10])
    archive()
    publish(client, topic, [17])
    client.roll(topic)
    publish(client, topic, [5])
    client.trim(topic, client.topic(topic).last - 4)
    before = read_manifest(root)
    with pytest.raises(NotFound, match="17 records"):
        archive(fail_on_loss=True)
    assert read_manifest(root) == before
    assert archive().lost == 17


def test_loss_is_told_though_nothing_follows_it_yet(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [10])
    archive()
    publish(client, topic, [17])
    client.roll(topic)
    client.trim(topic, client.topic(topic).last + 1)
    with pytest.raises(NotFound, match="17 records"):
        archive(fail_on_loss=True)
    assert archive().lost == 17
    assert log_of(root, topic).until == client.topic(topic).last
    assert archive().lost == 0
    publish(client, topic, [5])
    tally = archive(fail_on_loss=True)
    assert (tally.records, tally.lost) == (5, 0)
    assert log_of(root, topic).lost == 17


def test_what_was_removed_before_the_first_run_is_no_loss(
    client: Client, archive: Archive, topic: str
) -> None:
    publish(client, topic, [17])
    client.roll(topic)
    publish(client, topic, [5])
    client.trim(topic, client.topic(topic).last - 4)
    tally = archive(fail_on_loss=True)
    assert (tally.records, tally.lost) == (5, 0)


def test_damaged_records_are_counted_and_not_trimmed(
    start_broker: Any, connect: Any, root: Path, topic: str
) -> None:
    broker: BrokerProcess = start_broker()
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
            TopicArchiver(client, root, LocalWorkers(), topic, Policy(fail_on_loss=True)).run()
        archiver = TopicArchiver(client, root, LocalWorkers(), topic, Policy(trim=True))
        archiver.run()
        assert (archiver.tally.records, archiver.tally.lost, archiver.tally.trimmed) == (45, 20, 0)
        log = log_of(root, topic)
        assert [(loss.records, loss.reason) for loss in log.losses] == [(20, "damaged")]
        assert of_archive(root, topic) == of_topic(client, topic)
        assert client.topic(topic).count == 65


def test_damage_in_front_of_all_that_is_readable_is_not_trimmed_until_it_is_gone(
    start_broker: Any, connect: Any, root: Path, topic: str
) -> None:
    broker: BrokerProcess = start_broker()
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
        for _ in "ab":
            archiver = TopicArchiver(client, root, LocalWorkers(), topic, Policy(trim=True))
            archiver.run()
            assert (archiver.tally.trimmed, client.topic(topic).count) == (0, 30)
        client.trim(topic, damaged.header.last + 1)
        archiver = TopicArchiver(client, root, LocalWorkers(), topic, Policy(trim=True))
        archiver.run()
        assert (archiver.tally.trimmed, client.topic(topic).count) == (20, 0)
        assert log_of(root, topic).lost == 10


def test_headers_that_are_none_are_archived_as_their_bytes_and_left_out_by_a_replay(
    client: Client, broker: BrokerProcess, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [10, 5])
    client.publish(topic, [b"a", b"b", b"c"], headers=[{"n": b"v"}, {"bad": b""}, {}])
    good = encode_headers({"bad": b""})
    bad = b"\xc1" * len(good)
    with_headers(broker.topics_directory, client.topic(topic).log, good, bad)
    tally = archive(fail_on_loss=True)
    assert (tally.records, tally.lost) == (18, 0)
    rows = rows_of(root, topic)[-3:]
    assert [row["value"] for row in rows] == [b"a", b"b", b"c"]
    headers = [{"key": "n", "value": b"v"}], [{"key": None, "value": bad}], None
    assert [row["headers"] for row in rows] == [*headers]
    assert of_archive(root, topic).records == 18
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    left_out: list[int] = []
    encoded = with_pointer(pa.array(headers, kind), pa.array([5, 6, 7]), left_out.append).to_pylist()
    assert left_out == [1]
    assert list(map(decode_headers, encoded)) == [
        {"n": b"v", "quoth-pointer": b"5"},
        {"quoth-pointer": b"6"},
        {"quoth-pointer": b"7"},
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


# -- a topic that is made anew ------------------------------------------------------------------------------


def test_topic_that_was_made_anew_is_another_generation(
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
    assert account(row_of(message) for message in client.read(topic)).sum == of_archive(root).sum - old.sum


def row_of(message: Any) -> Any:
    return message.pointer, message.key, message.value, message.headers


# -- trimming -----------------------------------------------------------------------------------------------


def test_trim_lets_the_topic_go_of_what_is_archived(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [10, 20])
    held = of_topic(client, topic)
    client.roll(topic)
    tally = archive(trim=True)
    assert tally.trimmed == 30
    assert client.topic(topic).count == 0
    publish(client, topic, [5], "more")
    rest = of_topic(client, topic)
    assert archive(trim=True).lost == 0
    found = of_archive(root, topic)
    assert found == (held.records + rest.records, held.sum + rest.sum)


def test_trim_that_was_not_done_is_done_by_the_next_run(client: Client, archive: Archive, topic: str) -> None:
    publish(client, topic, [10, 20])
    archive()
    client.roll(topic)
    assert archive(trim=True).trimmed == 30


@pytest.mark.parametrize("how", ["missing", "cut", "another", "written anew"])
def test_nothing_is_trimmed_while_a_file_of_the_archive_does_not_check(
    client: Client, archive: Archive, root: Path, topic: str, how: str
) -> None:
    publish(client, topic, [40, 40, 40])
    client.roll(topic)
    archive()
    one, other, *_ = map(Path, archived_files(root))
    if how == "missing":
        one.unlink()
    elif how == "cut":
        one.write_bytes(one.read_bytes()[:-100])
    elif how == "written anew":
        turn(one)
    else:
        one.write_bytes(other.read_bytes())
    with pytest.raises(Damaged, match=one.name):
        archive(trim=True)
    assert client.topic(topic).count == 120


# -- together with others -----------------------------------------------------------------------------------


@pytest.mark.parametrize("file_bytes", [0, -1])
def test_files_without_bytes_are_refused(client: Client, archive: Archive, file_bytes: int) -> None:
    with pytest.raises(RequestError, match=f"files of {file_bytes} bytes"):
        archive(file_bytes=file_bytes)


def test_files_are_kept_for_ever_or_for_seconds(client: Client, archive: Archive, topic: str) -> None:
    publish(client, topic, [3])
    assert archive(keep_replaced=float("inf")).records == 3
    with pytest.raises(RequestError, match="keep_replaced is a number of seconds, not nan"):
        archive(keep_replaced=float("nan"))


def test_two_runs_at_once_are_refused(archive: Archive, client: Client, root: Path, topic: str) -> None:
    publish(client, topic, [5])
    with ArchiveStore(root), pytest.raises(Conflict, match=r"locked.*in use by process"):
        archive()


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


@pytest.mark.parametrize("shrinks", [True, False])
def test_values_are_compressed_where_that_shrinks_them_and_all_else_always(
    client: Client, archive: Archive, root: Path, topic: str, shrinks: bool
) -> None:
    random_ones = random.Random(4)
    for _ in range(20):
        values = [random_ones.randbytes(50) for _ in range(1_000)]
        client.publish(topic, [one.hex().encode() if shrinks else one for one in values])
    archive()
    found = set()
    for path in archived_files(root, topic):
        group = pq.ParquetFile(path).metadata.row_group(0)
        found |= {
            (one.path_in_schema, one.compression) for one in map(group.column, range(group.num_columns))
        }
    others = {("headers.list.element.key", "ZSTD"), ("headers.list.element.value", "ZSTD")}
    others |= {(name, "ZSTD") for name in ("offset", "timestamp", "key", "ordinal")}
    assert found == others | {("value", "ZSTD" if shrinks else "UNCOMPRESSED")}
    assert of_archive(root, topic) == of_topic(client, topic)
