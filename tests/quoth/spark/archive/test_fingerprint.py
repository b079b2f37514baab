"""The fingerprint of records: what it depends on, and what not."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.scale import times
from quoth.spark.archive.fingerprint import MODULUS, fingerprint, total
from quoth.spark.archive.parquet import SCHEMA

Cells = dict[str, Any]
examples = settings(max_examples=times(40, 400))

some_headers = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.binary(max_size=3)}), max_size=3
)
some_rows = st.lists(
    st.fixed_dictionaries(
        {
            "offset": st.integers(0, 2**56 - 1),
            "key": st.none() | st.binary(max_size=20),
            "value": st.binary(max_size=300),
            "headers": st.none() | some_headers,
        }
    ),
    max_size=20,
)


def batch_of(rows: list[Cells]) -> pa.RecordBatch:
    whole = [{"timestamp": row["offset"] // 16, "ordinal": number, **row} for number, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(whole, schema=SCHEMA)


@examples
@given(some_rows, st.integers(0, 20), st.randoms(use_true_random=False))
def test_fingerprint_is_the_sum_of_those_of_its_parts_in_any_order(
    rows: list[Cells], cut: int, rng: random.Random
) -> None:
    records = batch_of(rows)
    whole = fingerprint(records)
    assert 0 <= whole < MODULUS
    assert total([fingerprint(records.slice(0, cut)), fingerprint(records.slice(cut))]) == whole
    assert total(fingerprint(batch_of([row])) for row in rows) == whole
    rng.shuffle(rows)
    assert fingerprint(batch_of(rows)) == whole


def test_records_of_one_size_have_the_fingerprint_that_they_have_among_others() -> None:
    content = random.Random(1).randbytes(2_500 * 9)
    alike = [{**DIFFERENT[0], "offset": at, "value": content[9 * at : 9 * at + 9]} for at in range(2_500)]
    another = [{**DIFFERENT[0], "offset": 2_500, "value": b"longer than these"}]
    several = [fingerprint(batch_of(rows)) for rows in (alike, another)]
    assert fingerprint(batch_of([*alike, *another])) == total(several)


DIFFERENT: list[Cells] = [
    {"offset": 7, "key": None, "value": b"", "headers": None},
    {"offset": 8, "key": None, "value": b"", "headers": None},
    {"offset": 7, "key": b"", "value": b"", "headers": None},
    {"offset": 7, "key": b"a", "value": b"", "headers": None},
    {"offset": 7, "key": None, "value": b"a", "headers": None},
    {"offset": 7, "key": b"a", "value": b"a", "headers": None},
    {"offset": 7, "key": b"ab", "value": b"c", "headers": None},
    {"offset": 7, "key": b"a", "value": b"bc", "headers": None},
    {"offset": 7, "key": None, "value": b"", "headers": [{"key": "a", "value": b""}]},
    {"offset": 7, "key": None, "value": b"", "headers": [{"key": "", "value": b"a"}]},
    {"offset": 7, "key": None, "value": b"", "headers": [{"key": "a", "value": b"a"}]},
    {"offset": 7, "key": None, "value": b"", "headers": [{"key": name, "value": b""} for name in "ab"]},
]


def test_fingerprint_depends_on_every_column_and_position() -> None:
    alone = [fingerprint(batch_of([row])) for row in DIFFERENT]
    assert len(set(alone)) == len(DIFFERENT)


def test_fingerprint_depends_on_the_record_of_each_value() -> None:
    rows = [{**DIFFERENT[0], "offset": offset, "value": value} for offset, value in ((1, b"a"), (2, b"b"))]
    crossed = [{**rows[0], "value": b"b"}, {**rows[1], "value": b"a"}]
    assert fingerprint(batch_of(rows)) != fingerprint(batch_of(crossed))
