"""Inputs of a replay: requests that are refused before anything is stored, and the records that tasks
read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.scale import times
from kit.spark.replays import SMALL, Record, some_records, write_archive
from quoth.spark.replay.inputs import POINTER_HEADER, ReplayRequest, ReplayStream, input_of
from quoth.spark.replay.tasks import rows_of, with_pointer
from quothwire.errors import Damaged, QuothError, RequestError
from quothwire.headers import encode_headers

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def streams_of(path: Path, **wish: Any) -> list[ReplayStream]:
    return input_of(path, ReplayRequest(**wish)).streams()


def read(stream: ReplayStream, tick: int | None = None) -> Iterator[tuple[bytes | None, bytes, bytes]]:
    """Key, value and encoded headers of all records that tasks would stage, in their order."""
    for chunk in stream.chunks(SMALL, tick):
        for part in chunk.parts:
            for (values, keys, headers), _ in rows_of(part, stream.columns):
                yield from zip(keys.to_pylist(), values.to_pylist(), headers.to_pylist(), strict=True)


def as_read(record: Record) -> tuple[bytes | None, bytes, bytes]:
    pointer, key, value, headers = record
    return key, value, encode_headers({**headers, POINTER_HEADER: b"%d" % pointer})


# -- what tasks read ----------------------------------------------------------------------------------------


@settings(max_examples=times(30, 300))
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.one_of(st.none(), st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3)),
        ),
        max_size=20,
    ),
    st.booleans(),
)
def test_pointer_becomes_the_same_header_with_and_without_others(
    rows: list[tuple[int, dict[str, bytes] | None]], has_column: bool
) -> None:
    pointers = pa.array([pointer for pointer, _ in rows], pa.int64())
    pairs = [
        None if headers is None else [{"key": k, "value": v} for k, v in headers.items()]
        for _, headers in rows
    ]
    encoded, undecoded = with_pointer(pa.array(pairs, HEADERS) if has_column else None, pointers)
    assert undecoded == 0
    assert encoded.to_pylist() == [
        encode_headers({**((has_column and headers) or {}), POINTER_HEADER: str(pointer).encode()})
        for pointer, headers in rows
    ]


@pytest.mark.parametrize(
    "pairs",
    [
        [("trace", b"1"), (None, b"x")],
        [(None, b"x"), ("trace", b"1")],
        [(None, None)],
        [None],
    ],
)
def test_null_key_is_left_out_only_where_it_stands_for_headers_that_cannot_be_decoded(pairs: Any) -> None:
    bad = [pair and {"key": pair[0], "value": pair[1]} for pair in pairs]
    good = [{"key": "trace", "value": b"1"}]
    undecoded = [{"key": None, "value": b"\xc1"}]
    pointers = pa.array([5, 6, 7], pa.int64())
    column = pa.array([good, good, undecoded, None, good], HEADERS)[1:4]
    encoded, left_out = with_pointer(column, pointers)
    assert encoded.to_pylist() == [
        encode_headers({"trace": b"1", POINTER_HEADER: b"5"}),
        encode_headers({POINTER_HEADER: b"6"}),
        encode_headers({POINTER_HEADER: b"7"}),
    ]
    assert left_out == 1
    with pytest.raises(RequestError, match="is null"):
        with_pointer(pa.array([good, undecoded, bad], HEADERS), pointers)


@pytest.mark.parametrize("tick", [None, 20_000])
def test_every_change_of_a_bit_in_an_archived_column_is_noticed(
    tmp_path: Path, rng: random.Random, tick: int | None
) -> None:
    records = some_records(rng, 50)
    [path] = write_archive(tmp_path, "orders", [records])
    whole, expected = path.read_bytes(), list(map(as_read, records))
    bits = range(4 * 8, _end_of_columns(path) * 8)
    head_of_first_page = rng.sample(bits[: 40 * 8], times(40, 320))  # heads have no checksum
    sample = rng.sample(bits[40 * 8 :], times(60, 1_000))
    noticed = set()
    for bit in (*head_of_first_page, *sample):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            [stream] = streams_of(tmp_path)
            found = list(read(stream, tick))
        except Damaged as problem:
            noticed |= {bit} if str(path) in problem.text else set()
        else:
            assert found == expected  # it is in a column that is not read
    assert len(noticed.intersection(sample)) > len(sample) // 2


def _end_of_columns(path: Path) -> int:
    group = pq.read_metadata(path).row_group(0)
    last = group.column(group.num_columns - 1)
    return int(last.data_page_offset + last.total_compressed_size)


# -- paced --------------------------------------------------------------------------------------------------


def test_paced_chunk_of_an_archive_holds_the_records_of_one_tick(tmp_path: Path, rng: random.Random) -> None:
    records = some_records(rng, 200)
    write_archive(tmp_path, "orders", [records[:90], records[90:]])
    [stream] = streams_of(tmp_path, since=records[20].pointer, until=records[170].pointer)
    chunks = list(stream.chunks(SMALL, 10_000))
    assert len({chunk.time for chunk in chunks}) > 3
    for chunk in chunks:
        within = [one for one in records if chunk.after < one.pointer <= chunk.until]
        assert {one.pointer // 10_000 * 10_000 for one in within[-1:]} == {chunk.time}
    assert list(read(stream, 10_000)) == list(map(as_read, records[20:170]))


def test_paced_table_leaves_out_rows_outside_of_the_time(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "value": [str(row) for row in range(100)],
        "at": list(range(0, 1_000, 10)),
    }
    for name, rows in (("a", slice(0, 33)), ("b", slice(33, 100))):
        some = {column: cells[rows] for column, cells in columns.items()}
        pq.write_table(pa.table(some), tmp_path / f"{name}.parquet", row_group_size=9)
    [stream] = streams_of(tmp_path, to=("t",), time="at", since=205, until=800)
    chunks = list(stream.chunks(SMALL, 100))
    assert [chunk.time for chunk in chunks] == [200, 300, 400, 500, 600, 700]
    taken = [
        value
        for chunk in chunks
        for part in chunk.parts
        for (values, *_), _ in rows_of(part, stream.columns)
        for value in values.to_pylist()
    ]
    assert taken == [b"%d" % row for row in range(21, 80)]


def test_paced_table_has_to_be_in_the_order_of_its_time(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    for seconds in ([1, 3, 2], [5, 6, 7, 1, 8, 9]):
        pq.write_table(pa.table({"value": ["a"] * len(seconds), "at": seconds}), path, row_group_size=3)
        [stream] = streams_of(path, to=("t",), time="at")
        with pytest.raises(QuothError, match=r"one.parquet.* not in the order of column 'at'"):
            list(stream.chunks(SMALL, 100))


# -- what is refused ----------------------------------------------------------------------------------------

WRONG_WISHES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a topic that cannot be": ({"topics": ("a/b",)}, "bad_topic", ""),
    "a target for another one": ({"to": ("clicks=new",)}, "bad_request", "OLD=NEW"),
    "two into one": ({"to": ("orders=new", "orders=b=new")}, "bad_request", "one after the other"),
    "two into the other": ({"to": ("orders=orders=b",)}, "bad_request", "one after the other"),
    "a time of a table": ({"time": "at"}, "bad_request", "--time-column"),
    "a name that is too long": ({"name": "x" * 200}, "bad_request", "200"),
}
"""Those that the command refuses are typed in the tests of `quoth pipeline`."""


def test_request_that_does_not_fit_an_archive_is_refused(tmp_path: Path, rng: random.Random) -> None:
    for log, topic in enumerate(("orders", "orders=b")):
        write_archive(tmp_path, topic, [some_records(rng, 3)], log=log + 1)
    for case, (wish, code, text) in WRONG_WISHES.items():
        with pytest.raises(QuothError) as raised:
            streams_of(tmp_path, **wish)
        assert (raised.value.code, text in str(raised.value)) == (code, True), case


WRONG_TABLES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no target": ({"value": ["a"]}, {"to": ()}, "into which topic"),
    "two targets": ({"value": ["a"]}, {"to": ("a", "b")}, "into which topic"),
    "topics": ({"value": ["a"]}, {"topics": ("a",)}, "--topic chooses nothing"),
    "no value": ({"valeu": ["a"]}, {}, "has no column 'value'.*valeu"),
    "another name": ({"value": ["a"]}, {"value": "json"}, "has no column 'json'"),
    "numbers": ({"value": [1]}, {}, "'value' is int64, not text or bytes"),
    "lists": ({"value": [["a"]]}, {}, "not text or bytes"),
    "a key of numbers": ({"value": ["a"], "key": [1]}, {}, "'key' is int64"),
    "headers of text": ({"value": ["a"], "headers": ["x"]}, {}, "--headers-column ''"),
    "a time of text": ({"value": ["a"], "at": ["x"]}, {"time": "at"}, "not a timestamp"),
    "a time and no column": ({"value": ["a"]}, {"since": 5}, "--time-column"),
    "a pointer of text": ({"value": ["a"], "p": ["x"]}, {"pointer": "p"}, "'p' is string, not int64"),
}


def test_request_that_does_not_fit_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    for case, (columns, wish, text) in WRONG_TABLES.items():
        pq.write_table(pa.table(columns), path)
        with pytest.raises(QuothError, match=text) as raised:
            streams_of(path, **{"to": ("t",), **wish})
        assert (raised.value.code, str(path) in raised.value.text) == ("bad_request", True), case


def test_file_that_lacks_a_column_or_is_not_parquet_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": ["a"], "key": ["k"]}), tmp_path / "1.parquet")
    path = tmp_path / "2.parquet"
    pq.write_table(pa.table({"value": ["a"]}), path)
    with pytest.raises(QuothError, match=r"2.parquet has no column 'key'"):
        streams_of(tmp_path, to=("t",))
    for content in (b"", b"PAR1", b"PAR1PAR1", b"value\na\n" * 100):
        path.write_bytes(content)
        with pytest.raises(Damaged, match=r"2.parquet"):
            streams_of(tmp_path, to=("t",))


def test_tables_of_other_formats_are_refused(tmp_path: Path) -> None:
    for other in ("_delta_log", "_spark_metadata", "metadata"):
        path = tmp_path / f"with{other}"
        (path / other).mkdir(parents=True)
        (path / other / "1.metadata.json").touch()
        pq.write_table(pa.table({"value": ["a"]}), path / "1.parquet")
        with pytest.raises(QuothError, match=f"count only as {other} says"):
            streams_of(path, to=("t",))


def test_empty_files_and_topics_have_nothing_to_replay(tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": pa.array([], pa.binary())}), tmp_path / "1.parquet")
    [stream] = streams_of(tmp_path, to=("t",))
    assert list(stream.chunks(SMALL)) == []
