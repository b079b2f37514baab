"""Replays of tables: their rows come once, in order; a table that has changed is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.broker.brokers import BrokerProcess
from kit.spark.replays import (
    DIED,
    Meanwhile,
    Record,
    replay_and_die,
    replayed,
)
from quoth import Client
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.replayer import StreamTally
from quothwire.errors import Conflict, QuothError, RequestError

Replay = Callable[..., StreamTally]


def values(client: Client, topic: str) -> list[bytes]:
    return [one.value for one in replayed(client, topic)]


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


def test_table_is_replayed_within_a_time_whatever_its_order(
    client: Client, replay: Replay, root: Path, topic: str, rng: random.Random
) -> None:
    seconds = rng.sample(range(1_000), 200)
    columns: dict[str, Any] = {"value": [str(second) for second in seconds]}
    for name, kind, unit in (
        ("us", pa.timestamp("us", "UTC"), 10**6),
        ("ns", pa.timestamp("ns"), 10**9),
        ("ms", pa.timestamp("ms"), 10**3),
        ("int", pa.int64(), 10**6),
    ):
        columns["at"] = pa.array([second * unit for second in seconds], pa.int64()).cast(kind)
        path = write_table(root / f"{name}.parquet", group=20, **columns)
        replay(path, to=(f"{topic}-{name}",), time="at", since=300 * 10**6, until=600 * 10**6)
        expected = [one for one in seconds if 300 <= one < 600]
        assert [int(one) for one in values(client, f"{topic}-{name}")] == expected, name


def test_interrupted_table_is_gone_on_with_by_rows(
    client: Client, broker: BrokerProcess, replay: Replay, root: Path, topic: str
) -> None:
    for name in ("a", "b", "c"):
        write_table(root / f"{name}.parquet", rows=50)
    assert replay_and_die(broker.url, root, topic, "published", 2, 40) == DIED
    expected = [f"{name}.parquet {row}".encode() for name in "abc" for row in range(50)]
    published = values(client, topic)
    assert published == expected[: len(published)]
    assert 0 < len(published) <= 80
    replay()
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
