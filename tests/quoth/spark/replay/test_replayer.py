"""Replaying, run by run, in this process: all archived records get into the topic, each once."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import flip
from kit.spark.archives import run as work_on
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
from quoth.spark.archive import archived_files
from quoth.spark.archive.parquet import COLUMNS
from quoth.spark.jobs.replay import summary_of
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.inputs import POINTER_HEADER, ReplayRequest, input_of
from quoth.spark.replay.replayer import Replayer, StreamTally
from quoth.spark.source.arrow import TYPES
from quoth.spark.workers import LocalWorkers
from quothwire.errors import Damaged
from quothwire.headers import encode_headers

Replay = Callable[..., StreamTally]
Archived = Callable[[int, int], list[Record]]
Stored = Callable[[], list[Record]]


# -- an archive ---------------------------------------------------------------------------------------------


def test_every_record_comes_as_it_was_archived_with_its_pointer_in_a_header(
    replay: Replay, archived: Archived, stored: Stored
) -> None:
    records = archived(500, 7)
    done = replay()
    assert stored() == records
    assert (done.records, done.duplicates, done.began) == (500, 0, 0)
    assert done.chunks > 5
    headers = [encode_headers({**one.headers, POINTER_HEADER: b"%d" % one.pointer}) for one in records]
    sizes = [len(one.value) + len(one.key or b"") for one in records]
    assert done.bytes == sum(sizes) + sum(map(len, headers))


def test_second_run_stores_nothing(replay: Replay, archived: Archived, stored: Stored) -> None:
    records = archived(200, 3)
    replay()
    again = replay()
    assert (again.records, again.chunks, again.duplicates) == (0, 0, 0)
    assert again.began == records[-1].pointer
    assert stored() == records


def test_records_whose_headers_cannot_be_decoded_come_without_them_and_are_counted(
    replay: Replay, archived: Archived, stored: Stored, root: Path
) -> None:
    first, second = archived(2, 1)
    [path] = archived_files(root)
    headers = pa.array([[{"key": "n", "value": b"v"}], [{"key": None, "value": b"\xc1"}]], TYPES["headers"])
    table = root.parent / "table.parquet"
    pq.write_table(pq.read_table(path).drop_columns("headers").append_column("headers", headers), table)
    done = replay(table, pointer="offset")
    assert stored() == [first._replace(headers={"n": b"v"}), second._replace(headers={})]
    summary = summary_of([done], 1.0)
    assert (done.undecoded, summary.content["undecoded"]) == (1, 1)
    assert "1 of them without headers that cannot be decoded" in summary.lines[0]


def test_replay_continues_after_its_archive_was_copied_grew_and_was_compacted(
    client: Client, replay: Replay, stored: Stored, root: Path, rng: random.Random, tmp_path: Path
) -> None:
    records = some_records(rng, 300)
    write_archive(root, "orders", parts_of(records[:200], 5))
    replay()
    write_archive(root, "orders", parts_of(records[200:], 4))
    work_on("compact", client, root)
    assert replay(root.rename(tmp_path / "elsewhere")).records == 100
    assert stored() == records


def test_records_of_a_time_are_replayed_from_its_begin_to_the_last_before_its_end(
    replay: Replay, archived: Archived, stored: Stored
) -> None:
    records = archived(300, 4)
    since, until = records[77].pointer, records[211].pointer
    assert replay(since=since, until=until).records == 134
    assert stored() == records[77:211]
    assert replay(since=since, until=records[250].pointer).records == 39
    assert stored() == records[77:250]


def test_another_begin_or_another_name_is_another_replay(
    replay: Replay, archived: Archived, stored: Stored
) -> None:
    records = archived(60, 1)
    for wish in ({}, {"since": records[50].pointer}, {"name": "once more"}, {"name": "once more"}):
        replay(**wish)
    assert stored() == records + records[50:] + records


def test_no_record_within_the_time_is_no_error(
    client: Client, replay: Replay, archived: Archived, topic: str
) -> None:
    archived(10, 1)
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
    there = {name for name in client.topics() if name.startswith(topic)}
    assert there == {f"{topic}.a", f"{topic}.new"}


def test_logs_of_a_topic_that_was_created_again_follow_each_other(
    client: Client, archived: Archived, stored: Stored, root: Path, topic: str, rng: random.Random
) -> None:
    old, new = archived(50, 1), some_records(rng, 50, began=BEGAN + 10**9)
    write_archive(root, "orders", [new], log=LOG + 1, generation=2)
    for _ in range(2):
        replay_of(root, client, topic, LocalWorkers(), print, SMALL).run()
    assert stored() == old + new


def test_pointer_of_an_earlier_replay_is_replaced(
    replay: Replay, stored: Stored, root: Path, rng: random.Random
) -> None:
    records = [one._replace(headers={POINTER_HEADER: b"12", "row": b"1"}) for one in some_records(rng, 5)]
    write_archive(root, "orders", [records])
    replay()
    assert stored() == [one._replace(headers={"row": b"1"}) for one in records]


# -- kills and changes meanwhile ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "at", "then"), [("stage", 9, 40), ("publish", 1, 40), ("published", 4, 40), ("publish", 4, 50)]
)
def test_replay_whose_driver_was_killed_is_continued_also_in_chunks_of_another_size(
    broker: BrokerProcess,
    replay: Replay,
    archived: Archived,
    stored: Stored,
    root: Path,
    topic: str,
    step: str,
    at: int,
    then: int,
) -> None:
    records = archived(300, 20)
    assert replay_and_die(broker.url, root, topic, step, at, SMALL.records) == DIED
    published = stored()
    assert published == records[: len(published)]
    assert len(published) < len(records)
    replay(limits=ChunkLimits(records=then))
    assert stored() == records


def test_broker_that_is_killed_in_the_middle_is_waited_for(
    start_broker: StartBroker, connect: Any, archived: Archived, root: Path, topic: str, told: list[str]
) -> None:
    broker = start_broker()
    client = connect(broker)
    records = archived(600, 10)
    run_through_kills(replay_of(root, client, topic, LocalWorkers(), told.append, SMALL), broker, (2, 5))
    assert replayed(client, topic) == records


def test_runs_at_the_same_time_store_each_record_once(
    broker: BrokerProcess, connect: Any, archived: Archived, stored: Stored, root: Path, topic: str
) -> None:
    records = archived(400, 10)
    runs = [
        replay_of(root, connect(broker), topic, LocalWorkers(), print, ChunkLimits(records=size))
        for size in (40, 40, 7, 50)
    ]
    with ThreadPoolExecutor() as pool:
        for run in [pool.submit(one.run) for one in runs]:
            run.result(DEADLINE_S)
    assert stored() == records


def test_compaction_meanwhile_does_not_disturb(
    client: Client, replay: Replay, archived: Archived, stored: Stored, root: Path, told: list[str]
) -> None:
    records = archived(400, 40)
    replay(workers=Meanwhile(5, lambda: work_on("compact", client, root)))
    assert stored() == records
    assert len(archived_files(root)) == 1
    assert "it goes on behind what is there" in told[0]


def test_lost_staged_chunk_is_staged_again(
    client: Client, replay: Replay, archived: Archived, stored: Stored, root: Path, topic: str
) -> None:
    records = archived(300, 30)
    [stream] = input_of(root, ReplayRequest(to=(topic,))).streams()
    first = next(stream.chunks(SMALL))

    def abort() -> None:
        transaction = client.transaction(topic, stream.application, stream.version(first.until))
        eventually(
            lambda: topic in client.topics() and transaction.status().batches, "the first chunk is staged"
        )
        transaction.abort()

    assert replay(workers=Meanwhile(2, abort)).records == 300
    assert stored() == records


@pytest.mark.parametrize("harm", ["missing", "flipped"])
def test_damaged_file_ends_the_run_before_its_chunk_and_is_named(
    replay: Replay, archived: Archived, stored: Stored, root: Path, harm: str
) -> None:
    records = archived(200, 4)
    path = Path(archived_files(root)[2])
    kept = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        column = pq.read_metadata(path).row_group(0).column(COLUMNS.index("value"))
        flip(path, column.data_page_offset + column.total_compressed_size // 2)
    with pytest.raises(Damaged) as raised:
        replay(limits=ChunkLimits(records=50))
    assert str(path) in raised.value.text
    there = stored()
    assert there == records[: len(there)]
    assert len(there) in (0, 50, 100)
    path.write_bytes(kept)
    replay(limits=ChunkLimits(records=50))
    assert stored() == records
