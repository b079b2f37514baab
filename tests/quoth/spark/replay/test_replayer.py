"""Replaying, run by run, in this process: all that it holds is in the topic, each record once."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import flip
from kit.spark.replays import (
    BEGAN,
    DIED,
    LOG,
    SMALL,
    Meanwhile,
    Record,
    parts_of,
    replay_and_die,
    replay_of,
    replayed,
    run_through_kills,
    some_records,
    write_archive,
)
from quoth import Client
from quoth.spark.archive.compaction import Compactor
from quoth.spark.archive.parquet import COLUMNS
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quoth.spark.jobs.replay import summary_of
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.inputs import POINTER_HEADER, ReplayRequest, input_of
from quoth.spark.replay.replayer import Replayer, StreamTally
from quoth.spark.source.arrow import TYPES
from quoth.spark.workers import LocalWorkers
from quothwire.errors import Damaged
from quothwire.headers import encode_headers

Replay = Callable[..., StreamTally]


# -- an archive ---------------------------------------------------------------------------------------------


def test_every_record_comes_as_it_was_archived_with_its_pointer_in_a_header(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    records = some_records(rng, 500)
    write_archive(root, "orders", parts_of(records, 7))
    done = replay()
    assert replayed(client, topic) == records
    assert (done.records, done.duplicates, done.began) == (500, 0, 0)
    assert done.chunks > 5
    headers = [encode_headers({**one.headers, POINTER_HEADER: b"%d" % one.pointer}) for one in records]
    sizes = [len(one.value) + len(one.key or b"") for one in records]
    assert done.bytes == sum(sizes) + sum(map(len, headers))


def test_records_whose_headers_cannot_be_decoded_come_without_them_and_are_counted(
    client: Client, replay: Replay, root: Path, topic: str
) -> None:
    path = write_archive(
        root, "orders", [[Record(BEGAN + 1, None, b"a", {}), Record(BEGAN + 2, None, b"b", {})]]
    )
    shown = pq.read_table(path[0]).drop_columns("headers")
    headers = pa.array([[{"key": "n", "value": b"v"}], [{"key": None, "value": b"\xc1"}]], TYPES["headers"])
    table = root.parent / "table.parquet"
    pq.write_table(shown.append_column("headers", headers), table)
    done = replay(table, pointer="offset")
    assert replayed(client, topic) == [
        Record(BEGAN + 1, None, b"a", {"n": b"v"}),
        Record(BEGAN + 2, None, b"b", {}),
    ]
    summary = summary_of([done], 1.0)
    assert (done.undecoded, summary.content["undecoded"]) == (1, 1)
    assert "1 of them without headers that cannot be decoded" in summary.lines[0]


def test_second_run_stores_nothing(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    records = some_records(rng, 200)
    write_archive(root, "orders", parts_of(records, 3))
    replay()
    again = replay()
    assert (again.records, again.chunks, again.duplicates) == (0, 0, 0)
    assert again.began == records[-1].pointer
    assert replayed(client, topic) == records


def test_archive_that_was_copied_grew_and_was_compacted_is_gone_on_with(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random, tmp_path: Path
) -> None:
    records = some_records(rng, 300)
    write_archive(root, "orders", parts_of(records[:200], 5))
    replay()
    write_archive(root, "orders", parts_of(records[200:], 4))
    with ArchiveStore(root) as store:
        Compactor(store, LocalWorkers(), keep_replaced=0).run()
    elsewhere = root.rename(tmp_path / "elsewhere")
    assert replay(elsewhere).records == 100
    assert replayed(client, topic) == records


def test_stretch_of_time_is_replayed_from_its_first_record_to_the_last_before_its_end(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    records = some_records(rng, 300)
    write_archive(root, "orders", parts_of(records, 4))
    since, until = records[77].pointer, records[211].pointer
    assert replay(since=since, until=until).records == 134
    assert replayed(client, topic) == records[77:211]
    assert replay(since=since, until=records[250].pointer).records == 39
    assert replayed(client, topic) == records[77:250]


def test_other_begin_and_other_names_are_other_replays(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    records = some_records(rng, 60)
    write_archive(root, "orders", [records])
    for wish in ({}, {"since": records[50].pointer}, {"name": "once more"}, {"name": "once more"}):
        replay(**wish)
    assert replayed(client, topic) == records + records[50:] + records


def test_nothing_within_the_time_is_no_error(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    write_archive(root, "orders", [some_records(rng, 10)])
    for wish in ({"until": BEGAN}, {"since": 2 * BEGAN}, {"since": BEGAN + 1, "until": BEGAN + 1}):
        assert replay(**wish).records == 0
    assert topic not in client.topics()


def test_topics_keep_their_names_unless_they_get_others(
    client: Client, root: Path, topic: str, rng: random.Random, told: list[str]
) -> None:
    records = {name: some_records(rng, 30) for name in (f"{topic}.a", f"{topic}.b=c", f"{topic}.d")}
    for number, (name, some) in enumerate(records.items()):
        write_archive(root, name, [some], log=LOG + number)
    wish = ReplayRequest(topics=(f"{topic}.[ab]*",), to=(f"{topic}.b=c={topic}.new",))
    Replayer(client, input_of(root, wish), LocalWorkers(), told.append).run()
    assert replayed(client, f"{topic}.a") == records[f"{topic}.a"]
    assert replayed(client, f"{topic}.new") == records[f"{topic}.b=c"]
    assert {name for name in client.topics() if name.startswith(topic)} == {
        f"{topic}.a", f"{topic}.new"
    }  # fmt: skip


def test_logs_of_a_topic_that_was_made_anew_follow_each_other(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    old, new = some_records(rng, 50), some_records(rng, 50, began=BEGAN + 10**9)
    write_archive(root, "orders", [old])
    write_archive(root, "orders", [new], log=LOG + 1, generation=2)
    for _ in range(2):
        replay_of(root, client, topic, LocalWorkers(), print, SMALL).run()
    assert replayed(client, topic) == old + new


def test_pointer_of_a_replay_before_gives_way(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    records = [one._replace(headers={POINTER_HEADER: b"12", "row": b"1"}) for one in some_records(rng, 5)]
    write_archive(root, "orders", [records])
    replay()
    assert replayed(client, topic) == [one._replace(headers={"row": b"1"}) for one in records]


# -- what dies or changes meanwhile -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "at"),
    [("stage", 9), ("publish", 1), ("published", 4)],
)
def test_run_whose_driver_was_killed_is_gone_on_with(
    client: Client,
    broker: BrokerProcess,
    root: Path,
    topic: str,
    rng: random.Random,
    step: str,
    at: int,
) -> None:
    records = some_records(rng, 300)
    write_archive(root, "orders", parts_of(records, 20))
    assert replay_and_die(broker.url, root, topic, step, at, SMALL.records) == DIED
    published = replayed(client, topic)
    assert published == records[: len(published)]
    assert len(published) < len(records)
    assert replay_and_die(broker.url, root, topic, step, 0, SMALL.records) == 0
    assert replayed(client, topic) == records


def test_run_that_died_is_gone_on_with_in_chunks_of_another_size(
    client: Client, broker: BrokerProcess, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    records = some_records(rng, 300)
    write_archive(root, "orders", parts_of(records, 50))
    assert replay_and_die(broker.url, root, topic, "publish", 4, 40) == DIED
    assert replay(limits=ChunkLimits(records=50)).began > 0
    assert replayed(client, topic) == records


def test_broker_that_is_killed_in_the_middle_is_waited_for(
    start_broker: Any, connect: Any, root: Path, topic: str, rng: random.Random, told: list[str]
) -> None:
    broker = start_broker()
    client = connect(broker)
    records = some_records(rng, 600)
    write_archive(root, "orders", parts_of(records, 10))
    run_through_kills(replay_of(root, client, topic, LocalWorkers(), told.append, SMALL), broker, (2, 5))
    assert replayed(client, topic) == records


def test_runs_at_the_same_time_store_each_record_once(
    client: Client, connect: Any, broker: BrokerProcess, root: Path, topic: str, rng: random.Random
) -> None:
    records = some_records(rng, 400)
    write_archive(root, "orders", parts_of(records, 10))
    runs = [
        replay_of(root, connect(broker), topic, LocalWorkers(), print, ChunkLimits(records=size))
        for size in (40, 40, 7, 50)
    ]
    with ThreadPoolExecutor() as pool:
        for run in [pool.submit(one.run) for one in runs]:
            run.result(DEADLINE_S)
    assert replayed(client, topic) == records


def test_compaction_meanwhile_does_not_disturb(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random, told: list[str]
) -> None:
    records = some_records(rng, 400)
    write_archive(root, "orders", parts_of(records, 40))

    def compact() -> None:
        with ArchiveStore(root) as store:
            Compactor(store, LocalWorkers(), keep_replaced=0).run()
        with ArchiveStore(root) as store:
            store.sweep(keep_replaced=0)

    replay(workers=Meanwhile(5, compact))
    assert replayed(client, topic) == records
    assert len(read_manifest(root).logs[0].files) == 1
    assert "it goes on behind what is there" in told[0]


def test_staged_chunk_that_is_gone_is_staged_again(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random, told: list[str]
) -> None:
    records = some_records(rng, 300)
    write_archive(root, "orders", parts_of(records, 30))
    stream = input_of(root, ReplayRequest(to=(topic,))).streams()[0]
    first = next(stream.chunks(SMALL))

    def abort() -> None:
        transaction = client.transaction(topic, stream.application, stream.version(first.until))
        eventually(
            lambda: topic in client.topics() and transaction.status().batches, "the first chunk is staged"
        )
        transaction.abort()

    done = replay(workers=Meanwhile(2, abort))
    assert replayed(client, topic) == records
    assert done.records == 300


@pytest.mark.parametrize("harm", ["missing", "flipped"])
def test_damaged_file_ends_the_run_before_its_chunk_and_is_named(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random, harm: str
) -> None:
    records = some_records(rng, 200)
    paths = write_archive(root, "orders", parts_of(records, 4))
    kept = paths[2].read_bytes()
    if harm == "missing":
        paths[2].unlink()
    else:
        column = pq.read_metadata(paths[2]).row_group(0).column(COLUMNS.index("value"))
        flip(paths[2], column.data_page_offset + column.total_compressed_size // 2)
    with pytest.raises(Damaged) as raised:
        replay(limits=ChunkLimits(records=50))
    assert str(paths[2]) in raised.value.text
    there = replayed(client, topic)
    assert there == records[: len(there)]
    assert len(there) in (0, 50, 100)
    paths[2].write_bytes(kept)
    replay(limits=ChunkLimits(records=50))
    assert replayed(client, topic) == records
