"""The reader of slabs: whatever bytes lie in a directory, it returns records, gaps or a documented error."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit.disk.doubles import FaultyDisk
from kit.scale import times
from quothlog.slabs import SlabGap, SlabReader, SlabRecord, xxh32
from quothlog.slabs.slab_format import VALUE_BYTES_MAX, candidates_in, encode_record, slab_name
from quothlog.slabs.slab_search import CREDIT_BYTES, CREDIT_FACTOR
from quothwire.errors import QuothError, RequestError

SIZES = st.integers(1, 40)
RECORDS = st.binary(min_size=1, max_size=40).map(encode_record)
BAD_CHECKSUMS = st.builds(
    lambda size, value: size.to_bytes(4, "little") + value, SIZES, st.binary(max_size=60)
)
PIECES = st.one_of(RECORDS, RECORDS, st.binary(max_size=30), BAD_CHECKSUMS, st.integers(1, 30).map(bytes))
SLABS = st.lists(PIECES, max_size=12).map(b"".join)
SHIFTS = st.sampled_from((0, 0, 0, 7, -5))


def lay(directory: Path, slabs: list[tuple[bytes, int]]) -> int:
    """Write slabs one behind the other, each shifted by some bytes; returns the end."""
    address = end = 0
    for content, shift in slabs:
        address = max(0, end + shift)
        (directory / slab_name(address)).write_bytes(content)
        end = address + len(content)
    return end


def bytes_at(directory: Path, address: int, size: int) -> list[bytes]:
    """The bytes of each slab at an address."""
    found = []
    for path in directory.iterdir():
        offset = address - int(path.stem)
        if offset >= 0 and (content := path.read_bytes()[offset : offset + size]):
            found.append(content)
    return found


@given(st.lists(st.tuples(SLABS, SHIFTS), max_size=4), st.booleans())
@settings(max_examples=times(150, 1_000))
def test_any_bytes_are_records_and_gaps_side_by_side(slabs: list[tuple[bytes, int]], finished: bool) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        lay(directory, slabs)
        reader = SlabReader(directory, finished=finished)
        at = 0
        records = []
        for found in reader:
            assert found.address == at, "nothing is left out and nothing comes twice"
            at = found.next
            if isinstance(found, SlabRecord):
                records.append(found)
                assert encode_record(found.value) in bytes_at(directory, found.address, at - found.address)
            elif found.reason == "missing":
                assert not bytes_at(directory, found.address, 1)
        assert at + reader.unfinished == reader.end
        assert not (finished and reader.unfinished)
        every = [one for one in SlabReader(directory, finished=True) if isinstance(one, SlabRecord)]
        assert records == every[: len(records)], "what is added later may complete an end"
        assert records == every or reader.unfinished


@given(st.lists(st.tuples(SLABS, SHIFTS), min_size=1, max_size=3), st.data())
@settings(max_examples=times(150, 1_000))
def test_any_address_continues_or_is_refused(slabs: list[tuple[bytes, int]], data: st.DataObject) -> None:
    """Both readings give the same from there on."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        end = lay(directory, slabs)
        address = data.draw(st.integers(0, end + 3))
        everything = list(SlabReader(directory, finished=True))
        starts = {0, *(one.next for one in everything)}
        gaps = [one for one in everything if isinstance(one, SlabGap)]
        if address not in starts and not any(one.address < address < one.next for one in gaps):
            with pytest.raises(RequestError, match="bad_request"):
                SlabReader(directory, address, finished=True)
            return
        found = list(SlabReader(directory, address, finished=True))
        expected = [one for one in everything if one.next > address]
        if expected and expected[0].address < address:
            assert isinstance(expected[0], SlabGap)
            expected[0] = expected[0]._replace(address=address)
        assert [one for one in found if one.next > address] == expected


@given(SLABS, st.binary(max_size=200))
@example(b"\x0c\0\0\0\0\0" + encode_record(bytes(5)) + b"\0", b"")
@settings(max_examples=times(100, 1_000))
def test_a_growing_slab_gives_what_the_whole_one_gives(before: bytes, value: bytes) -> None:
    """Byte by byte, as a buffer of a writer may come to the disk. Only gaps may end elsewhere."""
    content = before + encode_record(value or b"x") + encode_record(b"the last")
    with TemporaryDirectory() as name:
        directory = Path(name)
        path = directory / slab_name(0)
        path.write_bytes(b"")
        reader = SlabReader(directory)
        found = list(reader)
        with path.open("ab", buffering=0) as file:
            for index in range(len(content)):
                file.write(content[index : index + 1])
                found += reader.take()
        found += [*reader, *reader]  # a search that was put off while the slab grew
        at = 0
        for one in found:
            assert one.address == at
            at = one.next
        assert at + reader.unfinished == len(content)
    with TemporaryDirectory() as name:
        lay(Path(name), [(content, 0)])
        whole = SlabReader(Path(name))
        everything = list(whole)
    if found == everything[: len(found)]:
        assert reader.unfinished == whole.unfinished
    elif first := next((pair for pair in zip(found, everything, strict=False) if pair[0] != pair[1]), None):
        assert isinstance(first[0], SlabGap), "only the end of a gap depends on what was there at that time"


@given(
    st.lists(st.one_of(st.just(b"\0"), st.just(b"\0" * 9), st.binary(max_size=9)), max_size=20).map(b"".join)
)
def test_candidates_are_all_lengths_that_a_batch_can_hold(data: bytes) -> None:
    lengths = [int.from_bytes(data[at : at + 4], "little") for at in range(max(0, len(data) - 7))]
    assert list(candidates_in(data)) == [at for at, length in enumerate(lengths) if 0 < length < 2**24]


@pytest.fixture
def slab(directory: Path) -> Path:
    directory.mkdir()
    return directory / slab_name(0)


def test_a_length_is_no_reason_to_allocate(slab: Path) -> None:
    good = encode_record(b"good")
    for length in (VALUE_BYTES_MAX + 1, 2**31, 2**32 - 1):
        slab.write_bytes(length.to_bytes(4, "little") + b"....x" + good)
        gap, record = SlabReader(slab.parent)
        assert (gap.next, record) == (9, SlabRecord(9, b"good"))


def test_the_largest_value_is_read_and_a_larger_one_is_a_gap(slab: Path) -> None:
    value = bytes(range(251)) * (VALUE_BYTES_MAX // 251 + 1)
    largest, larger = value[:VALUE_BYTES_MAX], value[: VALUE_BYTES_MAX + 1]
    header = len(larger).to_bytes(4, "little") + xxh32(larger).to_bytes(4, "little")
    slab.write_bytes(encode_record(largest) + header + larger + encode_record(b"good"))
    first, gap, last = SlabReader(slab.parent)
    assert isinstance(first, SlabRecord)
    assert first.value == largest
    assert (gap.address, gap.next) == (first.next, first.next + 8 + len(larger))
    assert last == SlabRecord(gap.next, b"good")
    with pytest.raises(RequestError, match="too_large"):
        encode_record(larger)


class CountingDisk(FaultyDisk):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def open(self, path: Path, **how: bool):  # type: ignore[no-untyped-def]
        file = super().open(path, **how)
        read: Callable[[int, int], bytes] = file.read

        def counted(size: int, offset: int) -> bytes:
            data = read(size, offset)
            self.bytes += len(data)
            return data

        file.read = counted  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(lambda size: (size // 2).to_bytes(3, "little") + b"\0", id="long lengths everywhere"),
        pytest.param(lambda _: encode_record(b"a" * 40) + b"\1\0\0\0xxxxx", id="many damages"),
        pytest.param(lambda _: b"\0", id="zeros"),
    ],
)
def test_no_bytes_make_the_search_quadratic(slab: Path, hostile: Callable[[int], bytes]) -> None:
    size = times(400_000, 4_000_000)
    piece = hostile(size)
    slab.write_bytes(piece * (size // len(piece)) + encode_record(b"good"))
    disk = CountingDisk()
    began = time.process_time()
    found = list(SlabReader(slab.parent, finished=True, filesystem=disk))
    assert found[-1].next == slab.stat().st_size
    assert disk.bytes < CREDIT_BYTES + (CREDIT_FACTOR + 200) * size
    assert time.process_time() - began < 60


@pytest.mark.parametrize("behind", [[], [b"later"], [b"another", b"later"]], ids=len)
def test_whole_records_behind_a_torn_one_are_returned_where_it_would_have_ended(
    slab: Path, behind: list[bytes]
) -> None:
    """The original's writer goes on behind what it has torn itself; its declared end lies among records."""
    torn = encode_record(b"x" * 20)[:15]
    whole = [b"hello", *behind]
    slab.write_bytes(encode_record(b"first") + torn + b"".join(map(encode_record, whole)))
    for finished in (True, False):
        first, gap, *rest = SlabReader(slab.parent, finished=finished)
        assert first == SlabRecord(0, b"first")
        assert (gap.address, gap.next) == (13, 28)
        assert [one.value for one in rest if isinstance(one, SlabRecord)] == whole


@given(
    st.binary(min_size=20, max_size=200).map(encode_record),
    st.lists(st.integers(1, 20), min_size=1, max_size=30),
    st.data(),
)
@settings(max_examples=times(150, 2_000))
def test_a_torn_record_takes_no_whole_one_with_it(torn: bytes, sizes: list[int], data: st.DataObject) -> None:
    """Wherever its declared end lies: among the records, at the end of the slab, or beyond it."""
    values = [b"%c" % (97 + row % 26) * size for row, size in enumerate(sizes)]
    ends = [sum(8 + one for one in sizes[:row]) for row in range(1, len(sizes) + 1)]
    cuts = {len(torn) - end for end in ends} & set(range(9, len(torn)))
    cut = data.draw(st.sampled_from(sorted(cuts)) if cuts else st.integers(9, len(torn) - 1))
    with TemporaryDirectory() as name:
        lay(Path(name), [(torn[:cut] + b"".join(map(encode_record, values)), 0)])
        found = [one.value for one in SlabReader(Path(name), finished=True) if isinstance(one, SlabRecord)]
    assert found == values


def test_a_damaged_record_is_a_gap_of_its_own_size(slab: Path) -> None:
    """Whole records within it that do not reach to its end are part of its value."""
    value = b"text " + encode_record(b"inner") + b" text"
    damaged = bytearray(encode_record(value))
    damaged[10] ^= 1
    slab.write_bytes(damaged + encode_record(b"good"))
    gap, record = SlabReader(slab.parent)
    assert (gap.next, record) == (len(damaged), SlabRecord(len(damaged), b"good"))


def test_a_disk_that_fails_is_reported_and_the_next_read_continues(slab: Path) -> None:
    slab.write_bytes(encode_record(b"good"))
    disk = FaultyDisk()
    reader = SlabReader(slab.parent, filesystem=disk)
    disk.fail("read")
    with pytest.raises(QuothError, match=r"storage_failed: .*slab: Input/output error"):
        reader.take()
    assert reader.take() == [SlabRecord(0, b"good")]


def test_what_only_bears_the_name_of_a_slab_is_reported(slab: Path) -> None:
    slab.symlink_to(slab.parent)
    with pytest.raises(QuothError, match=r"storage_failed: .*symbolic link"):
        SlabReader(slab.parent)


def test_a_directory_that_is_not_there_is_an_error(directory: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SlabReader(directory)
    with pytest.raises(RequestError, match="bad_setting"):
        SlabReader("")


def test_many_slabs_cost_what_few_cost_each(directory: Path) -> None:
    """Times differ by 8 with the number, and by 64 with its square."""
    record, seconds = encode_record(b"v"), []
    directory.mkdir()
    made = 0

    def measured() -> float:
        began = time.process_time()
        assert sum(1 for _ in SlabReader(directory)) == count
        return time.process_time() - began

    for count in (1_000, 8_000):
        for row in range(made, count):
            (directory / slab_name(len(record) * row)).write_bytes(record)
        made = count
        seconds.append(min(measured() for _ in range(3)))
    assert seconds[1] < 20 * seconds[0], seconds
