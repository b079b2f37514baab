"""Replaying, run by run, in this process: all archived records get into the topic, each once."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S
from kit.disk.damage import flip
from kit.spark.archives import run as work_on
from kit.spark.replays import (
    BEGAN,
    LOG,
    SMALL,
    Behind,
    Meanwhile,
    Replaying,
    parts_of,
    replay_and_die,
    replayed,
    run_through_kills,
    some_records,
    write_archive,
)
from quoth.spark.archive import archived_files
from quoth.spark.archive.parquet import COLUMNS
from quoth.spark.jobs.replay import summary_of
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.inputs import POINTER_HEADER, ReplayRequest, input_of
from quoth.spark.source.arrow import TYPES
from quothwire.errors import Damaged
from quothwire.headers import encode_headers

# -- an archive ---------------------------------------------------------------------------------------------


def test_every_record_comes_as_it_was_archived_with_its_pointer_in_a_header(scene: Replaying) -> None:
    records = scene.archived(500, 7)
    done = scene.replay()
    assert scene.stored() == records
    assert (done.records, done.duplicates, done.began) == (500, 0, 0)
    assert done.chunks > 5
    headers = [encode_headers({**one.headers, POINTER_HEADER: b"%d" % one.pointer}) for one in records]
    sizes = [len(one.value) + len(one.key or b"") for one in records]
    assert done.bytes == sum(sizes) + sum(map(len, headers))


def test_second_run_stores_nothing(scene: Replaying) -> None:
    records = scene.archived(200, 3)
    scene.replay()
    again = scene.replay()
    assert (again.records, again.chunks, again.duplicates) == (0, 0, 0)
    assert again.began == records[-1].pointer
    assert scene.stored() == records


def test_records_whose_headers_cannot_be_decoded_come_without_them_and_are_counted(scene: Replaying) -> None:
    first, second = scene.archived(2, 1)
    [path] = archived_files(scene.root)
    headers = pa.array([[{"key": "n", "value": b"v"}], [{"key": None, "value": b"\xc1"}]], TYPES["headers"])
    table = scene.root.parent / "table.parquet"
    pq.write_table(pq.read_table(path).drop_columns("headers").append_column("headers", headers), table)
    done = scene.replay(table, pointer="offset")
    assert scene.stored() == [first._replace(headers={"n": b"v"}), second._replace(headers={})]
    summary = summary_of([done], 1.0)
    assert (done.undecoded, summary.content["undecoded"]) == (1, 1)
    assert "1 of them without headers that cannot be decoded" in summary.lines[0]


def test_replay_continues_after_its_archive_was_copied_grew_and_was_compacted(
    scene: Replaying, rng: random.Random, tmp_path: Path
) -> None:
    records = some_records(rng, 300)
    write_archive(scene.root, "orders", parts_of(records[:200], 5))
    scene.replay()
    write_archive(scene.root, "orders", parts_of(records[200:], 4))
    work_on("compact", scene.client, scene.root)
    assert scene.replay(scene.root.rename(tmp_path / "elsewhere")).records == 100
    assert scene.stored() == records


def test_records_of_a_time_are_replayed_from_its_begin_to_the_last_before_its_end(scene: Replaying) -> None:
    records = scene.archived(300, 4)
    since, until = records[77].pointer, records[211].pointer
    assert scene.replay(since=since, until=until).records == 134
    assert scene.stored() == records[77:211]
    assert scene.replay(since=since, until=records[250].pointer).records == 39
    assert scene.stored() == records[77:250]


def test_another_begin_or_another_name_is_another_replay(scene: Replaying) -> None:
    records = scene.archived(60, 1)
    for wish in ({}, {"since": records[50].pointer}, {"name": "once more"}, {"name": "once more"}):
        scene.replay(**wish)
    assert scene.stored() == records + records[50:] + records


def test_no_record_within_the_time_is_no_error(scene: Replaying) -> None:
    scene.archived(10, 1)
    for since, until in ((None, BEGAN), (2 * BEGAN, None), (BEGAN + 1, BEGAN + 1)):
        assert scene.replay(since=since, until=until).records == 0
    assert scene.topic not in scene.client.topics()


def test_topics_keep_their_names_unless_they_get_others(scene: Replaying, rng: random.Random) -> None:
    topic = scene.topic
    records = {name: some_records(rng, 30) for name in (f"{topic}.a", f"{topic}.b=c", f"{topic}.d")}
    for number, (name, some) in enumerate(records.items()):
        write_archive(scene.root, name, [some], log=LOG + number)
    scene.replayer(topics=(f"{topic}.[ab]*",), to=(f"{topic}.b=c={topic}.new",)).run()
    assert replayed(scene.client, f"{topic}.a") == records[f"{topic}.a"]
    assert replayed(scene.client, f"{topic}.new") == records[f"{topic}.b=c"]
    there = {name for name in scene.client.topics() if name.startswith(topic)}
    assert there == {f"{topic}.a", f"{topic}.new"}


def test_logs_of_a_topic_that_was_created_again_follow_each_other(
    scene: Replaying, rng: random.Random
) -> None:
    old, new = scene.archived(50, 1), some_records(rng, 50, began=BEGAN + 10**9)
    write_archive(scene.root, "orders", [new], log=LOG + 1, generation=2)
    for _ in range(2):
        scene.replayer().run()
    assert scene.stored() == old + new


def test_pointer_of_an_earlier_replay_is_replaced(scene: Replaying, rng: random.Random) -> None:
    records = [one._replace(headers={POINTER_HEADER: b"12", "row": b"1"}) for one in some_records(rng, 5)]
    write_archive(scene.root, "orders", [records])
    scene.replay()
    assert scene.stored() == [one._replace(headers={"row": b"1"}) for one in records]


# -- kills and changes meanwhile ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "at", "then"), [("stage", 9, 40), ("publish", 1, 40), ("published", 4, 40), ("publish", 4, 50)]
)
def test_replay_whose_driver_was_killed_is_continued_also_in_chunks_of_another_size(
    scene: Replaying, broker: BrokerProcess, step: str, at: int, then: int
) -> None:
    records = scene.archived(300, 20)
    replay_and_die(broker.url, scene.root, scene.topic, step, at, SMALL.records)
    published = scene.stored()
    assert published == records[: len(published)]
    assert len(published) < len(records)
    scene.replay(limits=ChunkLimits(records=then))
    assert scene.stored() == records


def test_broker_that_is_killed_in_the_middle_is_waited_for(
    scene: Replaying, start_broker: StartBroker, connect: Any
) -> None:
    broker = start_broker()
    scene.client = connect(broker)
    records = scene.archived(600, 10)
    run_through_kills(scene.replayer(), broker, (2, 5))
    assert scene.stored() == records


def test_runs_at_the_same_time_store_each_record_once(
    scene: Replaying, broker: BrokerProcess, connect: Any
) -> None:
    records = scene.archived(400, 10)
    others = [replace(scene, client=connect(broker)) for _ in range(4)]
    sizes = (40, 40, 7, 50)
    runs = [one.replayer(limits=ChunkLimits(records=size)) for one, size in zip(others, sizes, strict=True)]
    with ThreadPoolExecutor() as pool:
        for run in [pool.submit(one.run) for one in runs]:
            run.result(DEADLINE_S)
    assert scene.stored() == records


def test_run_that_another_one_overtakes_within_a_chunk_continues_behind_it(scene: Replaying) -> None:
    records = scene.archived(200, 50)
    until = records[55].pointer

    def overtake() -> None:
        scene.replay(until=until, limits=ChunkLimits(records=7))

    scene.replay(workers=Meanwhile(2, overtake))
    assert scene.stored() == records
    assert "it goes on behind what is there" in scene.reports[-1]


def test_compaction_meanwhile_does_not_disturb(scene: Replaying) -> None:
    records = scene.archived(400, 40)
    scene.replay(workers=Meanwhile(5, lambda: work_on("compact", scene.client, scene.root)))
    assert scene.stored() == records
    assert len(archived_files(scene.root)) == 1
    assert "it goes on behind what is there" in scene.reports[0]


def test_lost_staged_chunk_is_staged_again(scene: Replaying) -> None:
    records = scene.archived(300, 30)
    [stream] = input_of(scene.root, ReplayRequest(to=(scene.topic,))).streams()
    first = next(stream.chunks(SMALL))
    transaction = scene.client.transaction(scene.topic, stream.application, stream.version(first.until))
    aborted: list[int] = []

    def abort() -> None:
        aborted.append(transaction.status().batches)
        transaction.abort()

    workers = Behind(lambda part: part[1].after == first.parts[0].after, abort)
    assert scene.replay(workers=workers).records == 300
    assert aborted == [len(first.parts)]
    assert scene.stored() == records


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_damaged_file_ends_the_run_before_its_chunk_and_is_named(scene: Replaying, damage: str) -> None:
    records = scene.archived(200, 4)
    path = Path(archived_files(scene.root)[2])
    kept = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        column = pq.read_metadata(path).row_group(0).column(COLUMNS.index("value"))
        flip(path, column.data_page_offset + column.total_compressed_size // 2)
    with pytest.raises(Damaged) as raised:
        scene.replay(limits=ChunkLimits(records=50))
    assert str(path) in raised.value.text
    there = scene.stored()
    assert there == records[: len(there)]
    assert len(there) in (0, 50, 100)
    path.write_bytes(kept)
    scene.replay(limits=ChunkLimits(records=50))
    assert scene.stored() == records
