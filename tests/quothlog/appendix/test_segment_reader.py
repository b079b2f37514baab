"""One segment of appendix is read record by record, whatever its two files hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.inherited.appendix_files import SEGMENTS, T, data_and_index, put_files, rows
from kit.scale import times
from quothlog.appendix import segment_reader
from quothlog.appendix.segment_format import encode_entry, encode_record
from quothlog.appendix.segment_reader import AppendixSegment
from quothlog.importing import source
from quothlog.importing.source import ImportedRecord, ImportFinding, SourceFile
from quothwire.errors import RequestError

DATA, INDEX = Path("1_data"), Path("1_index")


class BytesFile:
    """A file whose every read has to stay within it."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, size: int, offset: int) -> bytes:
        assert 0 <= offset <= len(self.content)
        assert 0 < size <= len(self.content) - offset, "a read beyond the end"
        return self.content[offset : offset + size]

    def close(self) -> None:
        pass


class BytesFiles:
    """The files of a segment by their names, as much of a file system as a reader needs."""

    def __init__(self, data: bytes, index: bytes | None) -> None:
        self._files = {DATA: data} if index is None else {DATA: data, INDEX: index}

    def open(self, path: Path) -> BytesFile:
        return BytesFile(self._files[path])


class Reading:
    """The records and the findings of one reading. bytes: those by which it advanced."""

    def __init__(self, data: bytes, index: bytes | None, *, newest: bool = True) -> None:
        listed = None if index is None else SourceFile(INDEX, len(index), 0)
        segment = AppendixSegment(SourceFile(DATA, len(data), 0), listed, newest)
        self.findings: list[ImportFinding] = []
        self.bytes = 0
        files: Any = BytesFiles(data, index)
        self.records = list(segment.records(self._advance, self.findings.append, files))

    def _advance(self, size: int) -> None:
        self.bytes += size

    @property
    def rows(self) -> list[tuple[int | None, bytes]]:
        return [(one.pointer, one.value) for one in self.records]

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.findings]

    @property
    def is_damaged(self) -> bool:
        return any(one.is_damage for one in self.findings)


@pytest.fixture(params=[1, 11, 30, 2**20])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes that are read at a time, so that records end at, in and behind them."""
    monkeypatch.setattr(segment_reader, "_WINDOW_BYTES", request.param)
    return int(request.param)


# -- whole ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", SEGMENTS, ids=lambda one: one["name"][:2])
def test_files_of_appendix_itself_are_read(vector: dict[str, Any], window: int) -> None:
    data, index = bytes.fromhex(vector["data"]), bytes.fromhex(vector["index"])
    found = Reading(data, index)
    assert found.records == [
        ImportedRecord(int(one["pointer"]), bytes.fromhex(one["value"]), DATA, one["offset"])
        for one in vector["records"]
    ]
    assert found.findings == []
    assert found.bytes == len(data) + len(index)
    assert (data, index) == data_and_index(found.rows)  # type: ignore[arg-type]


def test_segment_without_a_record_is_empty(window: int) -> None:
    for index in (b"", None):
        found = Reading(b"", index, newest=False)
        assert (found.records, found.findings, found.bytes) == ([], [], 0)


def test_value_of_any_size_up_to_the_largest_is_read(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(segment_reader, "VALUE_BYTES_MAX", 100)
    expected = [(T + size, bytes(size)) for size in (0, 1, 99, 100)]
    assert Reading(*data_and_index(expected)).rows == expected
    larger = [*expected, (T + 200, bytes(101)), (T + 300, b"x")]
    offset = len(data_and_index(expected)[0])
    with pytest.raises(RequestError, match=f"byte {offset} of 1_data has 101 bytes, at most 100") as raised:
        Reading(*data_and_index(larger))
    assert raised.value.code == "too_large"


def test_largest_value_fits_into_a_batch() -> None:
    assert source.VALUE_BYTES_MAX == 16 * 2**20 - 1024


# -- torn -------------------------------------------------------------------------------------------


def test_segment_that_was_cut_anywhere_has_the_records_before_the_cut(window: int) -> None:
    """In the newest segment a writer may not have finished; in any other one that is damage."""
    expected = rows(3, size=5)
    data, index = data_and_index(expected)
    for size in range(len(data)):
        found = Reading(data[:size], index[: 12 * (size // 16)])
        assert found.rows == expected[: size // 16]
        assert found.bytes == size + 12 * (size // 16)
        assert not found.is_damaged
        older = Reading(data[:size], None, newest=False)
        assert older.rows == expected[: size // 16]
        assert older.is_damaged == bool(size % 16)
        if size % 16:
            where = f"{size % 16} bytes at the end, from byte {size // 16 * 16} on, are no whole record"
            assert where in found.texts[0]
            assert where in older.texts[0]


def test_size_that_cannot_be_ends_a_segment_without_an_index(window: int) -> None:
    data, _ = data_and_index(rows(3, size=5))
    for size in (0, 6, 2**20, 2**32 - 1):
        for newest in (False, True):
            found = Reading(data[:16] + size.to_bytes(4) + data[20:], None, newest=newest)
            assert found.rows == rows(1, size=5)
            assert found.is_damaged


def test_size_that_is_wrong_is_no_unfinished_write_if_a_record_ends_with_the_data(window: int) -> None:
    """The records behind it are not found without an index, yet they are known to be there."""
    for records in (2, 3, 40):
        expected = rows(records, size=300)
        data, index = data_and_index(expected)
        for wrong in {0, records // 2 - 1, records - 2}:
            at = wrong * 311
            changed = data[:at] + (2**16).to_bytes(4) + data[at + 4 :]
            found = Reading(changed, None)
            assert (found.rows, found.is_damaged) == (expected[:wrong], True)
            assert Reading(changed, index[: 12 * wrong]).is_damaged
            assert not Reading(changed[:-1], None).is_damaged, "nothing ends with the data"


def test_record_in_an_unfinished_write_does_not_count_below_the_pointer_before_it() -> None:
    """A value may hold an older segment; its records are below those of this one."""
    inner = data_and_index(rows(3, begin=T - 1000))[0]
    whole = rows(1)
    data = data_and_index([*whole, (T + 1000, inner + bytes(100))])[0]
    found = Reading(data[:-100], None)
    assert (found.rows, found.is_damaged) == (whole, False)


def test_records_that_only_the_index_has_are_damage(window: int) -> None:
    """A writer appends to the data first, so the index is never ahead of it by a kill."""
    expected = rows(4, size=5)
    data, index = data_and_index(expected)
    for cut in range(len(data)):
        for newest in (False, True):
            found = Reading(data[:cut], index, newest=newest)
            lost = 4 - cut // 16
            assert (found.rows, found.is_damaged) == (expected[: cut // 16], True)
            record = (
                "1 record behind its end is lost" if lost == 1 else f"{lost} records behind its end are lost"
            )
            assert found.texts[-1].endswith(f"the data decided, so {record}")


# -- the index --------------------------------------------------------------------------------------


def test_reading_goes_on_behind_damage_at_a_record_that_the_index_knows(window: int) -> None:
    expected = rows(5, size=5)
    data, index = data_and_index(expected)
    for size in (0, 6, 2**20, 2**32 - 1):
        found = Reading(data[:16] + size.to_bytes(4) + data[20:], index)
        assert found.rows == expected[:1] + expected[2:]
        assert found.is_damaged
        assert "bytes 16 to 32 are no record" in found.texts[0]
        assert found.bytes == len(data) + len(index)


def test_record_that_seems_too_large_and_is_not_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_reader, "VALUE_BYTES_MAX", 30)
    expected = rows(8, size=5)
    data, index = data_and_index(expected)
    wrong = data[:16] + (60).to_bytes(4) + data[20:]
    assert Reading(wrong, index).rows == expected[:1] + expected[2:]
    with pytest.raises(RequestError, match="too_large"):
        Reading(wrong, None)


def test_index_that_leads_to_no_record_is_not_believed(window: int) -> None:
    data, _ = data_and_index(rows(2, size=5))
    index = encode_entry(T, 0) + encode_entry(T + 7, 20) + encode_entry(T, 2**40 - 1) + encode_entry(1, 30)
    found = Reading(data[:16] + bytes(16), index)
    assert found.rows == rows(1, size=5)
    assert "16 bytes at the end" in found.texts[0]
    assert "has 3 entries without a record in the data, the first one is entry 1" in found.texts[1]


def test_differences_of_the_index_are_reported_and_change_nothing(window: int) -> None:
    expected = rows(4, size=5)
    data, index = data_and_index(expected)
    far = index[:12] + encode_entry(T + 100, 2**39) + index[24:]
    other = index[:12] + encode_entry(T + 101, 16) + index[24:]
    wrong_entry = "has 1 entry without a record in the data, the first one is entry"
    for wrong, text in (
        (None, "is missing; the data was read without it"),
        (b"", "is empty; the data was read without it"),
        (index[:-12], "lacks 1 record; the data decided"),
        (index[:-5], "ends with 7 bytes of an entry, lacks 1 record; the data decided"),
        (index + index[:12], f"{wrong_entry} 4"),
        (far, f"lacks 1 record, {wrong_entry} 1"),
        (other, f"lacks 1 record, {wrong_entry} 1"),
    ):
        found = Reading(data, wrong, newest=False)
        assert found.rows == expected
        assert not found.is_damaged
        assert len(found.texts) == 1
        assert found.texts[0].startswith(f"1_index {text}")


# -- any bytes --------------------------------------------------------------------------------------


def _damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Change a file: bytes, its end, a piece in its middle."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(changed)))
        match draw(st.sampled_from(("byte", "cut", "insert", "remove", "zeros"))):
            case "byte" if at < len(changed):
                changed[at] = draw(st.integers(0, 255))
            case "cut":
                del changed[at:]
            case "insert":
                changed[at:at] = draw(st.binary(max_size=20))
            case "remove":
                del changed[at : at + draw(st.integers(1, 20))]
            case "zeros":
                changed[at : at + 8] = bytes(8)
    return bytes(changed)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, bytes | None]:
    """Any two files, or those of a segment with some damage."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=100)), draw(st.none() | st.binary(max_size=60))
    values = draw(st.lists(st.binary(max_size=30), max_size=8))
    data, index = data_and_index([(T + number, value) for number, value in enumerate(values)])
    return _damaged(draw, data), draw(st.none() | st.just(_damaged(draw, index)))


@given(files(), st.booleans())
@settings(max_examples=times(400, 3_000))
def test_any_bytes_are_records_and_gaps(found: tuple[bytes, bytes | None], newest: bool) -> None:
    """The records are bytes of the data, in order, and every other byte of the data is in a finding."""
    data, index = found
    reading = Reading(data, index, newest=newest)
    end = 0
    gaps = 0
    for record in _in_order(reading.records):
        stored = encode_record(record.pointer or 0, record.value)
        assert data[record.offset : record.offset + len(stored)] == stored
        gaps += record.offset > end
        end = record.offset + len(stored)
    gaps += len(data) > end
    about_data = [one for one in reading.findings if "no record" in one.text or "no whole" in one.text]
    assert len(about_data) == gaps
    assert sum(one.is_damage for one in about_data) >= gaps - newest
    assert reading.bytes == len(data) + len(index or b"")


def _in_order(records: list[ImportedRecord]) -> Iterator[ImportedRecord]:
    assert [one.offset for one in records] == sorted({one.offset for one in records})
    yield from records


def test_file_that_shrinks_meanwhile_ends_there(tmp_path: Path) -> None:
    data, index = data_and_index(rows(3, size=5))
    put_files(tmp_path / "1", data[:20], index)
    listed = SourceFile(tmp_path / "1_data", len(data), 0), SourceFile(tmp_path / "1_index", len(index), 0)
    found: list[ImportFinding] = []
    records = AppendixSegment(*listed).records(lambda _size: None, found.append)
    assert [one.value for one in records] == [rows(1, size=5)[0][1]]


@given(files())
@settings(max_examples=times(100, 1_000))
def test_any_bytes_are_an_error_only_for_a_record_that_is_too_large(
    found: tuple[bytes, bytes | None],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_reader, "VALUE_BYTES_MAX", 10)
        try:
            sizes = [len(one.value) for one in Reading(*found).records]
        except RequestError as problem:
            sizes = []
            code = problem.code
        else:
            code = "too_large"
    assert code == "too_large"
    assert max(sizes, default=0) <= 10
