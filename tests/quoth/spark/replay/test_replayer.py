"""Replaying, run by run, in this process: all that it holds is in the topic, each record once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
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
from quothwire.errors import Conflict, Damaged, QuothError, RequestError
from quothwire.headers import encode_headers

SMALL = ChunkLimits(records=40)
"""So that a few hundred records are several chunks."""

Replay = Callable[..., StreamTally]


@pytest.fixture
def replay(client: Client, root: Path, topic: str, told: list[str]) -> Replay:
    """Replays what lies at `root` into the topic of the test: `replay(since=5)`."""

    def run(
        path: Path = root, *, limits: ChunkLimits = SMALL, workers: Any = None, **wish: Any
    ) -> StreamTally:
        source = input_of(path, ReplayRequest(**{"to": (topic,), **wish}))
        replayer = Replayer(client, source, workers or LocalWorkers(), told.append, limits=limits)
        replayer.run()
        [one] = replayer.tally.streams.values()
        return one

    return run


def values(client: Client, topic: str) -> list[bytes]:
    return [one.value for one in replayed(client, topic)]


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
    assert done.bytes == sum(
        len(value) + len(key or b"") + len(encoded(headers, pointer))
        for pointer, key, value, headers in records
    )


def encoded(headers: dict[str, bytes], pointer: int) -> bytes:

    return encode_headers({**headers, POINTER_HEADER: b"%d" % pointer})


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
    [("stage", 1), ("stage", 9), ("publish", 1), ("publish", 4), ("published", 1), ("published", 6)],
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


@pytest.mark.parametrize("chunks", [(40, 40), (40, 7, 50)], ids=["cut alike", "cut otherwise"])
def test_runs_at_once_replay_once(
    client: Client,
    connect: Any,
    broker: BrokerProcess,
    root: Path,
    topic: str,
    rng: random.Random,
    told: list[str],
    chunks: tuple[int, ...],
) -> None:
    records = some_records(rng, 400)
    write_archive(root, "orders", parts_of(records, 10))
    runs = [
        replay_of(root, connect(broker), topic, LocalWorkers(), told.append, ChunkLimits(records=size))
        for size in chunks
    ]
    threads = [threading.Thread(target=one.run) for one in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert replayed(client, topic) == records


class Meanwhile(LocalWorkers):
    """Workers that let something happen before they do their n-th work."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self._left = number
        self._act = act

    def each(self, work: Any, parts: Any) -> Any:
        self._left -= 1
        if not self._left:
            self._act()
        return super().each(work, parts)


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


_VALUE = COLUMNS.index("value")


@pytest.mark.parametrize("harm", ["missing", "flipped", "cut", "another"])
def test_harmed_file_ends_the_run_before_its_chunk_and_names_it(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random, harm: str
) -> None:
    records = some_records(rng, 200)
    paths = write_archive(root, "orders", parts_of(records, 4))
    kept = paths[2].read_bytes()
    if harm == "missing":
        paths[2].unlink()
    elif harm == "flipped":
        column = pq.read_metadata(paths[2]).row_group(0).column(_VALUE)
        flip(paths[2], column.data_page_offset + column.total_compressed_size // 2)
    elif harm == "cut":
        paths[2].write_bytes(kept[: len(kept) // 2])
    else:
        paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(Damaged) as raised:
        replay(limits=ChunkLimits(records=50))
    assert str(paths[2]) in raised.value.text
    there = replayed(client, topic)
    assert there == records[: len(there)]
    assert len(there) in (0, 50, 100)
    paths[2].write_bytes(kept)
    replay(limits=ChunkLimits(records=50))
    assert replayed(client, topic) == records


# -- tables -------------------------------------------------------------------------------------------------


def write_table(path: Path, *, rows: int = 10, group: int = 7, **columns: list[Any]) -> Path:
    """A Parquet file of some columns; without any, of values that name it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = columns or {"value": [f"{path.name} {row}" for row in range(rows)]}
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def test_rows_of_a_folder_come_file_by_file_and_only_those_that_count(
    client: Client, replay: Replay, root: Path, topic: str
) -> None:
    paths = [write_table(root / name, rows=30) for name in ("b/1.parquet", "a.parquet", "b/0.parquet")]
    for ignored in ("_temporary/x.parquet", ".hidden.parquet", "b/_x.parquet"):
        write_table(root / ignored)
    (root / "_SUCCESS").touch()
    for _ in range(2):
        replay(limits=ChunkLimits(records=20))
    a, b0, b1 = (
        [f"{name} {row}".encode() for row in range(30)] for name in ("a.parquet", "0.parquet", "1.parquet")
    )
    assert values(client, topic) == a + b0 + b1
    assert all(path.exists() for path in paths)


def test_columns_of_any_name_become_a_record(client: Client, replay: Replay, root: Path, topic: str) -> None:
    pair = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns: dict[str, Any] = {
        "text": pa.array(["a", "", "ö"]).dictionary_encode(),
        "who": pa.array([None, b"", b"k"], pa.large_binary()),
        "more": pa.array([None, [], [{"key": "h", "value": b"1"}]], pair),
        "was": pa.array([5, 6, 7], pa.int64()),
    }
    write_table(root / "one.parquet", **columns)
    assert replay(root / "one.parquet", value="text", key="who", headers="more", pointer="was").records == 3
    assert replayed(client, topic) == [
        Record(5, None, b"a", {}), Record(6, b"", b"", {}), Record(7, b"k", "ö".encode(), {"h": b"1"})
    ]  # fmt: skip


def test_usual_columns_need_no_names_and_can_be_left_out(
    client: Client, replay: Replay, root: Path, topic: str
) -> None:
    write_table(root / "one.parquet", value=["a"], key=["k"], other=[1])
    replay()
    replay(key="")
    assert replayed(client, topic) == [Record(0, b"k", b"a", {}), Record(0, None, b"a", {})]


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ms"), pa.int64()]
)
def test_table_is_replayed_within_a_time_whatever_its_order(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random, kind: pa.DataType
) -> None:
    unit = 1_000 if kind == pa.timestamp("ms") else 1_000_000_000 if kind == pa.timestamp("ns") else 1_000_000
    scale = unit if pa.types.is_timestamp(kind) else 1_000_000
    seconds = rng.sample(range(1_000), 200)
    times = pa.array([second * scale for second in seconds], pa.int64()).cast(kind)
    columns: dict[str, Any] = {"value": [str(second) for second in seconds], "at": times}
    write_table(root / "one.parquet", group=20, **columns)
    replay(time="at", since=300 * 10**6, until=600 * 10**6)
    assert [int(one) for one in values(client, topic)] == [one for one in seconds if 300 <= one < 600]


def test_interrupted_table_is_gone_on_with_by_rows(
    client: Client, broker: BrokerProcess, root: Path, topic: str
) -> None:
    for name in ("a", "b", "c"):
        write_table(root / f"{name}.parquet", rows=50)
    assert replay_and_die(broker.url, root, topic, "published", 2, 40) == DIED
    expected = [f"{name}.parquet {row}".encode() for name in "abc" for row in range(50)]
    published = values(client, topic)
    assert published == expected[: len(published)]
    assert 0 < len(published) <= 80
    assert replay_and_die(broker.url, root, topic, "published", 0, 40) == 0
    assert values(client, topic) == expected


@pytest.mark.parametrize("change", ["grown", "inserted", "rewritten", "removed"])
def test_table_that_has_changed_is_refused_and_nothing_is_stored(
    client: Client, replay: Replay, root: Path, topic: str, change: str
) -> None:
    for name in ("b", "c"):
        write_table(root / f"{name}.parquet", rows=20)
    replay()
    before = values(client, topic)
    if change == "removed":
        (root / "c.parquet").unlink()
    else:
        name = {"grown": "d", "inserted": "a", "rewritten": "b"}[change]
        write_table(root / f"{name}.parquet", rows=21)
    with pytest.raises(Conflict, match="40 rows of it were replayed") as raised:
        replay()
    assert raised.value.code == "sequence_reused"
    assert "--application" in str(raised.value.hint)
    assert values(client, topic) == before
    replay(name="another")
    assert len(values(client, topic)) > len(before)


def test_file_that_changes_meanwhile_ends_the_run(
    client: Client, replay: Replay, root: Path, topic: str
) -> None:
    paths = [write_table(root / f"{number}.parquet", rows=20, group=20) for number in range(10)]
    meanwhile = Meanwhile(4, lambda: write_table(paths[9], rows=5))
    with pytest.raises(QuothError, match=r"9.parquet.*changed since the replay began"):
        replay(limits=ChunkLimits(records=20), workers=meanwhile)
    assert len(values(client, topic)) <= 180


NULLS: dict[str, Any] = {
    "a value": ({"value": ["a", None]}, {}, "a value is null"),
    "a time": ({"value": ["a", "b"], "at": [1, None]}, {"time": "at", "since": 0}, "'at' is null in 1 rows"),
    "a pointer": ({"value": ["a", "b"], "p": [1, None]}, {"pointer": "p"}, "'p' is null in 1 rows"),
}


@pytest.mark.parametrize("case", NULLS)
def test_null_that_no_record_can_hold_is_refused(
    client: Client, replay: Replay, root: Path, topic: str, case: str
) -> None:
    columns, wish, text = NULLS[case]
    path = write_table(root / "one.parquet", **columns)
    with pytest.raises(RequestError, match=text) as raised:
        replay(**wish)
    assert str(path) in raised.value.text
    assert topic not in client.topics()


def test_record_that_is_too_large_is_refused_and_its_file_named(
    client: Client, replay: Replay, root: Path, topic: str
) -> None:
    columns: dict[str, Any] = {"value": [b"small", bytes(17 * 2**20)]}
    path = write_table(root / "one.parquet", **columns)
    with pytest.raises(QuothError, match="too_large") as raised:
        replay()
    assert str(path) in raised.value.text
    assert replayed(client, topic) == []
