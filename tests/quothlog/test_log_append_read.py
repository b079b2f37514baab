"""Appending and reading: what was appended is read, all of it, in order, from any pointer, in any portion."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from kit.broker.peers import refused
from kit.disk.damage import MAP, NO_MAP, replace_headers
from kit.disk.logs import OpenLog, encoded, fill, put, segments, values
from quothlog import Appended, Log, LogOptions
from quothwire import batch
from quothwire.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Flag
from quothwire.errors import QuothError, RequestError
from quothwire.headers import encode_headers
from quothwire.pointer import POINTER_MAX


class Bytes(bytearray):
    """Bytes that a test can see being freed."""


@pytest.mark.parametrize("after", [-1, -(2**56), POINTER_MAX + 1, 2**64, 2**200])
def test_invalid_pointer_is_refused(log: Log, after: int) -> None:
    """Out of range never wraps to the beginning."""
    fill(log, 2)
    for ask in (log.fetch, log.lookup, log.trim, lambda pointer: list(log.read(pointer))):
        with refused("bad_pointer"):
            ask(after)


@pytest.mark.parametrize(
    "bad",
    {
        "nothing": b"",
        "noise": b"x" * 200,
        "zeros": bytes(200),
        "cut": encoded([b"value"] * 9)[:-8],
        "more": encoded([b"value"]) + bytes(8),
        "two": encoded([b"value"]) * 2,
        "body changed": encoded([b"value"])[:-8] + b"changed!",
        "another kind": batch.stamp(batch.parse_header(encoded([b"v"]), 0)._replace(kind=2), 0)
        + encoded([b"v"])[64:],
        "a pointer": batch.stamp(batch.parse_header(encoded([b"v"]), 0)._replace(base=5), 0)
        + encoded([b"v"])[64:],
        "an ordinal": batch.stamp(batch.parse_header(encoded([b"v"]), 0)._replace(ordinal=5), 0)
        + encoded([b"v"])[64:],
        "producer without sequence": encoded([b"v"], producer=5),
        "sequence without producer": encoded([b"v"], sequence=5),
        "START alone": encoded([b"v"], producer=5, sequence=1, start=True),
        "SPARSE without producer": encoded([b"v"], sparse=True),
        "headers that are none": batch.encode([b"v"], headers=[b"\xc1"]),
    }.items(),
    ids=lambda case: case[0],
)
def test_bad_batch_is_refused_and_the_rest_of_its_burst_is_stored(log: Log, bad: tuple[str, bytes]) -> None:
    """Validated before the first write."""
    before, refused, after = log.append_batches([encoded([b"before"]), bad[1], encoded([b"after"])])
    assert isinstance(refused, QuothError)
    assert refused.code == "bad_batch"
    assert isinstance(before, Appended)
    assert isinstance(after, Appended)
    assert values(log) == [b"before", b"after"]


def test_a_refused_batch_is_freed_with_its_last_use(log: Log) -> None:
    """Not by a later collection of cyclic garbage: megabytes would wait for that."""
    batches = [Bytes(b"no batch"), Bytes(encoded([b"value"]))]
    freed = [weakref.ref(one) for one in batches]
    gc.collect()
    gc.disable()
    try:
        outcomes = log.append_batches(batches)
        del batches
        assert [one() for one in freed] == [None, None]
    finally:
        gc.enable()
    assert isinstance(outcomes[0], QuothError)


def test_append_without_records_is_refused(log: Log) -> None:
    with pytest.raises(RequestError, match="bad_batch"):
        log.append([])
    assert log.append_batches([]) == []
    assert log.info().end_ordinal == 0


def test_largest_batches_are_accepted(log: Log) -> None:
    room = BATCH_BYTES_MAX - batch.HEADER_BYTES - 8
    largest, most = bytes(room), [b""] * BATCH_RECORDS_MAX
    log.append(largest)
    log.append(most)
    with pytest.raises(RequestError, match="too_large"):
        log.append(largest + b"x")
    with pytest.raises(RequestError, match="too_large"):
        log.append([*most, b""])
    assert values(log) == [largest, *most]


def test_malformed_stored_headers_are_returned_as_bytes_with_the_value(log: Log, directory: Path) -> None:
    """The value beside them is as good as any."""
    put(log, batch.encode([b"1", b"2"], headers=[MAP, encode_headers({"h": b"x"})]))
    replace_headers(segments(directory), log.log_id)
    one, other = log.read()
    assert (one.value, other.value, dict(other.headers)) == (b"1", b"2", {"h": b"x"})
    assert (dict(one.headers), one.raw_headers) == ({}, NO_MAP)
    assert "no map of text to binary" in one.headers_problem


@pytest.mark.parametrize(
    "flags", [0, Flag.START, Flag.ORDINAL | Flag.START], ids=lambda flags: f"flags={flags:d}"
)
def test_retry_of_an_unchecked_stored_batch_is_a_duplicate(
    open_log: OpenLog, directory: Path, flags: int
) -> None:
    raws = [
        batch.encode([b"v"], headers=[NO_MAP], producer=5, sequence=sequence, flags=int(flags))
        for sequence in (1, 2)
    ]
    log = open_log()
    (stored,) = put(log, batch.encode([b"v"], headers=[MAP], producer=5, sequence=1))
    log.discard()
    replace_headers(segments(directory), log.log_id, flags=int(flags))
    again, following = open_log().append_batches(raws)
    assert again == replace(stored, duplicate=True)
    assert isinstance(following, QuothError)
    assert following.code == "bad_batch"


def test_fetch_returns_whole_batches_at_least_one_and_as_many_as_fit(
    open_log: OpenLog, tmp_path: Path
) -> None:
    """Limits are soft by less than a batch."""
    for roll_every in (0, 4):
        log = open_log(tmp_path / str(roll_every), options=LogOptions(count_limit=roll_every))
        stored = fill(log, 12, records=3)
        size = len(encoded([record.value for record in stored[:3]]))
        for records_max, bytes_max in product(range(1, 12), (0, 1, size, 3 * size, 2**20)):
            after = 0
            found_values: list[bytes] = []
            while (found := log.fetch(after, records_max, bytes_max)) is not None:
                batches = [batch.decode(raw, log.log_id) for raw in batch.split(found.data, log.log_id)]
                fits = max(1, min(records_max // 3, bytes_max // size))
                assert len(batches) == fits or roll_every or len(found_values) + 3 * fits > 36
                assert len(batches) <= fits
                assert found.ordinal == batches[0].header.ordinal == len(found_values)
                assert found.next == batches[-1].header.last
                after = found.next
                found_values += [value for one in batches for value in one.values]
            assert found_values == [record.value for record in stored]


def test_info_has_the_counts_of_records_bytes_and_segments(open_log: OpenLog, directory: Path) -> None:
    """Size, count, first and last; an empty log has neither first nor last."""
    log = open_log(log_id=4711, options=LogOptions(count_limit=5))
    empty = log.info()
    assert (empty.log_id, empty.first, empty.last, empty.end_ordinal) == (4711, 0, 0, 0)
    assert (empty.segments, empty.states) == (1, "w")
    stored = fill(log, 4, records=3)
    info = log.info()
    assert (info.first, info.last) == (stored[0].pointer, stored[-1].pointer)
    assert (info.first_ordinal, info.end_ordinal) == (0, 12)
    assert (info.segments, info.states) == (4, "hhhw")
    assert info.bytes == sum(path.stat().st_size for path in directory.glob("*.seg"))
    next(log.read(stored[3].pointer, limit=1))
    assert log.info().states == "hrhw", "information opens no segment, reading does"
    log.rest()
    assert log.info().states == "hhhw"


def test_reader_between_two_writes_sees_whole_batches_only(log: Log) -> None:
    """A lookup made at one moment gives what there was at that moment."""
    put(log, encoded([b"a", b"b"]))
    place = log.lookup(0)
    put(log, encoded([b"c", b"d"]), encoded([b"e"]))
    assert place is not None
    found = place.read()
    assert found is not None
    (only,) = batch.split(found.data, log.log_id)
    assert batch.decode(only, log.log_id).values == [b"a", b"b"]


def test_closed_log_refuses_appends(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    stored = fill(log, 2)
    log.close()
    with refused("closed"):
        log.append(b"late")
    with pytest.raises(QuothError):
        log.roll()
    log.close()
    assert list(open_log().read()) == stored
    assert len(list(directory.glob("*.seg"))) == 1
