"""Headers encoded at once: the same bytes as one by one, and the same errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth.spark.sink.headers import encode_header_column
from quothwire.errors import QuothError
from quothwire.headers import HEADERS_BYTES_MAX, encode_headers

KIND = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NAMES = st.one_of(st.sampled_from(["", "own", "h" * 31, "h" * 32, "ö" * 200, "h" * 300]), st.text(max_size=5))
VALUES = st.one_of(st.sampled_from([b"", bytes(255), bytes(256)]), st.binary(max_size=5))
ROWS = st.lists(st.one_of(st.none(), st.dictionaries(NAMES, VALUES, max_size=20)), max_size=12)


def column(rows: list[dict[str, bytes] | None]) -> pa.Array:
    pairs = [
        None if row is None else [{"key": name, "value": value} for name, value in row.items()]
        for row in rows
    ]
    return pa.array(pairs, KIND)


@given(ROWS, st.data())
def test_headers_encoded_together_have_the_bytes_of_single_rows(
    rows: list[dict[str, bytes] | None], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(rows)))
    found = encode_header_column(column(rows)[begin:])
    assert found.to_pylist() == [encode_headers(row or {}) for row in rows[begin:]]


@given(ROWS, st.data())
def test_own_header_is_the_last_and_replaces_one_of_the_same_name(
    rows: list[dict[str, bytes] | None], data: st.DataObject
) -> None:
    own = data.draw(st.lists(VALUES, min_size=len(rows), max_size=len(rows)))
    found = encode_header_column(column(rows), ("own", pa.array(own, pa.binary())))
    others = [{name: value for name, value in (row or {}).items() if name != "own"} for row in rows]
    assert found.to_pylist() == [
        encode_headers({**row, "own": value}) for row, value in zip(others, own, strict=True)
    ]


REFUSED: dict[str, tuple[list[Any], str]] = {
    "a name twice": ([[("a", b"1"), ("b", b""), ("a", b"2")]], "'a' stands twice"),
    "no name": ([[(None, b"1")]], "is null"),
    "no value": ([[("a", None)]], "is null"),
    "no header": ([[None]], "is null"),
    "too large": ([[("a", bytes(HEADERS_BYTES_MAX))]], "too_large"),
}


def test_headers_that_no_record_can_hold_are_refused() -> None:
    for rows, text in REFUSED.values():
        pairs = [[pair and {"key": pair[0], "value": pair[1]} for pair in row] for row in rows]
        with pytest.raises(QuothError, match=text):
            encode_header_column(pa.array([None, [{"key": "a", "value": b""}], *pairs], KIND))
