"""Replays of tables: their rows come once, in order; a table that has changed is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.broker.brokers import BrokerProcess
from kit.spark.replays import Meanwhile, Record, Replaying, replay_and_die, replayed
from quoth.spark.replay.chunking import ChunkLimits
from quothwire.errors import Conflict, QuothError, RequestError


def write_table(path: Path, *, rows: int = 10, group: int = 7, **columns: list[Any]) -> Path:
    """A Parquet file of some columns; without any, of values that name it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = columns or {"value": [f"{path.name} {row}" for row in range(rows)]}
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def test_rows_of_a_folder_come_file_by_file_and_only_those_that_count(scene: Replaying) -> None:
    paths = [write_table(scene.root / name, rows=30) for name in ("b/1.parquet", "a.parquet", "b/0.parquet")]
    for ignored in ("_temporary/x.parquet", ".hidden.parquet", "b/_x.parquet"):
        write_table(scene.root / ignored)
    (scene.root / "_SUCCESS").touch()
    for _ in range(2):
        scene.replay(limits=ChunkLimits(records=20))
    a, b0, b1 = (
        [f"{name} {row}".encode() for row in range(30)] for name in ("a.parquet", "0.parquet", "1.parquet")
    )
    assert scene.values() == a + b0 + b1
    assert all(path.exists() for path in paths)


def test_columns_of_any_name_become_a_record(scene: Replaying) -> None:
    pair = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns: dict[str, Any] = {
        "text": pa.array(["a", "", "ö"]).dictionary_encode(),
        "who": pa.array([None, b"", b"k"], pa.large_binary()),
        "more": pa.array([None, [], [{"key": "h", "value": b"1"}]], pair),
        "was": pa.array([5, 6, 7], pa.int64()),
    }
    write_table(scene.root / "one.parquet", **columns)
    scene.replay(scene.root / "one.parquet", value="text", key="who", headers="more", pointer="was")
    assert scene.stored() == [
        Record(5, None, b"a", {}), Record(6, b"", b"", {}), Record(7, b"k", "ö".encode(), {"h": b"1"})
    ]  # fmt: skip


def test_usual_columns_need_no_names_and_can_be_left_out(scene: Replaying) -> None:
    write_table(scene.root / "one.parquet", value=["a"], key=["k"], other=[1])
    scene.replay()
    scene.replay(key="")
    assert scene.stored() == [Record(0, b"k", b"a", {}), Record(0, None, b"a", {})]


def test_unordered_table_is_replayed_within_a_time(scene: Replaying, rng: random.Random) -> None:
    seconds = rng.sample(range(1_000), 200)
    columns: dict[str, Any] = {"value": [str(second) for second in seconds]}
    for name, kind, unit in (
        ("us", pa.timestamp("us", "UTC"), 10**6),
        ("ns", pa.timestamp("ns"), 10**9),
        ("ms", pa.timestamp("ms"), 10**3),
        ("int", pa.int64(), 10**6),
    ):
        columns["at"] = pa.array([second * unit for second in seconds], pa.int64()).cast(kind)
        path = write_table(scene.root / f"{name}.parquet", group=20, **columns)
        scene.replay(path, to=(f"{scene.topic}-{name}",), time="at", since=300 * 10**6, until=600 * 10**6)
        expected = [one for one in seconds if 300 <= one < 600]
        found = replayed(scene.client, f"{scene.topic}-{name}")
        assert [int(one.value) for one in found] == expected, name


def test_interrupted_replay_of_a_table_continues_by_rows(scene: Replaying, broker: BrokerProcess) -> None:
    for name in ("a", "b", "c"):
        write_table(scene.root / f"{name}.parquet", rows=50)
    replay_and_die(broker.url, scene.root, scene.topic, "published", 2, 40)
    expected = [f"{name}.parquet {row}".encode() for name in "abc" for row in range(50)]
    published = scene.values()
    assert published == expected[: len(published)]
    assert 0 < len(published) <= 80
    scene.replay()
    assert scene.values() == expected


@pytest.mark.parametrize("change", ["grown", "inserted", "rewritten", "removed"])
def test_table_that_has_changed_is_refused_and_nothing_is_stored(scene: Replaying, change: str) -> None:
    for name in ("b", "c"):
        write_table(scene.root / f"{name}.parquet", rows=20)
    scene.replay()
    before = scene.values()
    if change == "removed":
        (scene.root / "c.parquet").unlink()
    else:
        name = {"grown": "d", "inserted": "a", "rewritten": "b"}[change]
        write_table(scene.root / f"{name}.parquet", rows=21)
    with pytest.raises(Conflict, match="40 rows of it were replayed") as raised:
        scene.replay()
    assert raised.value.code == "sequence_reused"
    assert "--application" in str(raised.value.hint)
    assert scene.values() == before
    scene.replay(name="another")
    assert len(scene.values()) > len(before)


def test_file_that_changes_meanwhile_ends_the_run(scene: Replaying) -> None:
    paths = [write_table(scene.root / f"{number}.parquet", rows=20, group=20) for number in range(10)]
    meanwhile = Meanwhile(4, lambda: write_table(paths[9], rows=5))
    with pytest.raises(QuothError, match=r"9.parquet.*changed since the replay began"):
        scene.replay(limits=ChunkLimits(records=20), workers=meanwhile)
    assert len(scene.values()) <= 180


NULLS: dict[str, Any] = {
    "a value": ({"value": ["a", None]}, {}, "a value is null"),
    "a time": ({"value": ["a", "b"], "at": [1, None]}, {"time": "at", "since": 0}, "'at' is null in 1 rows"),
    "a pointer": ({"value": ["a", "b"], "p": [1, None]}, {"pointer": "p"}, "'p' is null in 1 rows"),
}


@pytest.mark.parametrize("case", NULLS)
def test_null_that_no_record_can_hold_is_refused(scene: Replaying, case: str) -> None:
    columns, wish, text = NULLS[case]
    path = write_table(scene.root / "one.parquet", **columns)
    with pytest.raises(RequestError, match=text) as raised:
        scene.replay(**wish)
    assert str(path) in raised.value.text
    assert scene.topic not in scene.client.topics()


def test_record_that_is_too_large_is_refused_and_its_file_named(scene: Replaying) -> None:
    columns: dict[str, Any] = {"value": [b"small", bytes(17 * 2**20)]}
    path = write_table(scene.root / "one.parquet", **columns)
    with pytest.raises(QuothError, match="too_large") as raised:
        scene.replay()
    assert str(path) in raised.value.text
    assert scene.stored() == []
