"""The bytes of a log's directory, apart from the batches themselves (those are in quothwire.batch).

    NNNNNNNNNNNNNNNNN.seg             a segment, named by the smallest pointer that it can hold
    NNNNNNNNNNNNNNNNN.idx             its index and checkpoint: derived, never needed
    NNNNNNNNNNNNNNNNN.seg.OFFSET.torn quarantined end of that segment: never read, never deleted
    NNNNNNNNNNNNNNNNN.seg.N.damaged   that segment as it was before a repair, or what only bore its name:
                                      never read, never deleted
    A-V-P-T-N.staged                  staged batches: application, version, part, attempt, number
    A-V-N.merged                      copies of those on their way to being segments
    publication.plan                  which files of a transaction become segments, while they do
    NAME.forward                      how far the log has been forwarded, see reading/forwarding_progress.py
    *.tmp                             something unfinished: removed when the log is opened, unless it is
                                      a mark, whose author may be about to finish it
    lock                              flock()ed by the one writer, as the directory is; holds its process id

A segment is a header block, batches without a byte between them, and a footer once it is sealed. All
integers are little-endian, all parts are multiples of 8 bytes.

    header block                                      footer, 64 bytes
    0   magic "QUOTHLOG"                      8       0   magic "QUOTHEND"                   8
    8   version (1), zeros                    4+4     8   log id                             8
    16  log id                                8       16  offset of the footer               8
    24  floor: smallest pointer it can hold   8       24  ordinal after the last record      8
    32  last pointer before this segment      8       32  last pointer                       8
    40  records before this segment           8       40  chain                              8
    48  chain                                 8       48  zeros                              8
    56  boot id                              16       56  xxh3-64 of bytes 0..55             8
    72  bytes of the producer table           8
    80  xxh3-64 of the producer table         8
    88  xxh3-64 of bytes 0..87                8
    96  producer table, zeros to a multiple of 8

The chain is one number for everything that came before: it begins at the log id, and each batch makes it
xxh3-64(header checksum of the batch, seed: chain). Equal chains, equal logs.

    producer table: a row for each producer, then one for each application, the one first that was silent for
    longest
    0   id                                    8
    8   kind: 1 a producer, 2 an application  4
    12  entries                               4
    16  entries, oldest first                32 each
        of a producer: sequence, first pointer, records, xxh3-64 of the body: 8 each
        of an application: version, first pointer, records, batches: 8 each

    index, 88 bytes, then entries, then the producer table, then xxh3-64 of all before it
    0   magic "QUOTHIDX"                      8       48  chain at that end                  8
    8   version (1), zeros                    4+4     56  entries                            8
    16  log id                                8       64  bytes of the producer table        8
    24  floor of its segment                  8       72  offset of the last batch           8
    32  offset: the end of what it covers     8       80  header checksum of the last batch  8
    40  last pointer there                    8       88  entries: offset, pointer, ordinal  24 each
        (its ordinal is in the last entry, which is that end)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from xxhash import xxh3_64, xxh3_64_intdigest

from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX

HORIZON_US = 10_000_000
"""Visible pointers lie at most this far above a durable one, so a step of this size after a loss of power is
above all that were lost."""
VERSION = 1
SEGMENT_SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"
TORN_SUFFIX = ".torn"
DAMAGED_SUFFIX = ".damaged"
MARK_SUFFIX = ".forward"
STAGED_SUFFIX = ".staged"
MERGED_SUFFIX = ".merged"
PLAN_NAME = "publication.plan"
LOCK_NAME = "lock"

BLOCK_BYTES = 96
FOOTER_BYTES = 64
PRODUCER_TABLE_BYTES_MAX = 16 * 2**20
"""1,000 producers with 64 results each take 2 MiB, 1,256 applications with 64 versions each 2.5 MiB: what
claims several times that is damaged."""
TABLE_ENTRY = struct.Struct("<4Q")

_SEGMENT_NAME = re.compile(r"(\d{17})\.seg")
_TORN_NAME = re.compile(r"(\d{17}\.seg)\.(\d{1,18})\.torn")
_QUARANTINED = re.compile(r"(\d{17}\.seg)\.\d+\.(torn|damaged)")
_STAGED_NAME = re.compile(r"([0-9a-f]{16})-(\d{19})-(\d{6})-([0-9a-f]{16})-(\d{4,9})\.staged")
_OURS = re.compile(
    r"(\d{17}\.(seg|idx|seg\.\d+\.(torn|damaged))|[\w-]{1,64}\.forward(\.lock)?"
    r"|[0-9a-f]{16}-\d{19}(-\d{6}-[0-9a-f]{16}-\d{4,9}\.staged|-\d{4,9}\.merged)|publication\.plan)(\.tmp)?|lock"
)
_BLOCK = struct.Struct("<8sIIQQQQQ16sQQQ")
_FOOTER = struct.Struct("<8sQQQQQQQ")
_INDEX = struct.Struct("<8sIIQQQQQQQQQ")
_ENTRY = struct.Struct("<3Q")
_ENTRY_BYTES = _ENTRY.size
_ROW = struct.Struct("<QII")
_CHECK = struct.Struct("<Q")
_BLOCK_MAGIC, FOOTER_MAGIC, _INDEX_MAGIC = b"QUOTHLOG", b"QUOTHEND", b"QUOTHIDX"


class LogPosition(NamedTuple):
    """A boundary between batches: everything before `offset` has pointers up to `pointer`, and `ordinal`
    records of the log lie before it."""

    offset: int
    pointer: int
    ordinal: int


class Block(NamedTuple):
    """A segment's header block. `producers` is an encoded producer table."""

    log_id: int
    floor: int
    previous: int
    ordinal: int
    chain: int
    boot_id: bytes
    producers: bytes

    @property
    def size(self) -> int:
        """Bytes of the block in the file."""
        return BLOCK_BYTES + len(self.producers) + -len(self.producers) % 8

    @property
    def start(self) -> LogPosition:
        """The boundary before the first batch."""
        return LogPosition(self.size, self.previous, self.ordinal)


class RowKind(IntEnum):
    """Kinds of rows in a producer table."""

    PRODUCER = 1
    APPLICATION = 2


_ROW_KINDS = frozenset(RowKind)


class TableRow(NamedTuple):
    """A producer or an application in a producer table. entries: of `TABLE_ENTRY`, oldest first."""

    kind: int
    identity: int
    entries: bytes | bytearray


class StagedName(NamedTuple):
    """The name of a file of staged batches. number: files of this attempt before it."""

    application: int
    version: int
    part: int
    attempt: int
    number: int

    def __str__(self) -> str:
        application, version, part, attempt, number = self
        return f"{application:016x}-{version:019d}-{part:06d}-{attempt:016x}-{number:04d}{STAGED_SUFFIX}"


class Footer(NamedTuple):
    """The end of a sealed segment."""

    log_id: int
    end: LogPosition
    chain: int


class Checkpoint(NamedTuple):
    """The contents of an index file: the entries of the sparse index and the state of the log at its end."""

    log_id: int
    floor: int
    end: LogPosition
    chain: int
    last_offset: int
    last_check: int
    entries: list[LogPosition]
    producers: bytes


def segment_name(floor: int) -> str:
    """Return the file name of the segment with this floor: names sort as pointers do."""
    return f"{floor:017d}{SEGMENT_SUFFIX}"


def segment_of(index_name: str) -> str:
    """Return the file name of the segment that an index file belongs to."""
    return index_name.removesuffix(INDEX_SUFFIX) + SEGMENT_SUFFIX


def floor_of(name: str) -> int | None:
    """Return the floor of the segment of this file name, None for any other file."""
    match = _SEGMENT_NAME.fullmatch(name)
    floor = int(match[1]) if match else -1
    return floor if 0 < floor <= POINTER_MAX else None


def segment_sizes(files: Mapping[str, int]) -> dict[int, int]:
    """Return the sizes of the segments among some files, by their floors. files: sizes by names."""
    return {floor: size for name, size in files.items() if (floor := floor_of(name))}


def torn_name(segment: str, offset: int) -> str:
    """Return the file name for the quarantined end of a segment, from this offset on."""
    return f"{segment}.{offset}{TORN_SUFFIX}"


def torn_from(name: str) -> tuple[str, int]:
    """Return the segment and the offset from which a file was quarantined, "" for any other file."""
    match = _TORN_NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else ("", 0)


def damaged_name(segment: str, number: int) -> str:
    """Return the file name for a segment as it was before its n-th repair."""
    return f"{segment}.{number}{DAMAGED_SUFFIX}"


def is_quarantined(name: str) -> bool:
    """Return True for a file of quarantined bytes."""
    return _QUARANTINED.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    """Return True for a name that a log gives to a file. The floor of a segment has to be a pointer."""
    is_segment = _SEGMENT_NAME.fullmatch(name) is not None
    return _OURS.fullmatch(name) is not None and (not is_segment or floor_of(name) is not None)


def staged_name_of(name: str) -> StagedName | None:
    """Parse the name of a file of staged batches; None for any other file."""
    match = _STAGED_NAME.fullmatch(name)
    if match is None:
        return None
    application, version, part, attempt, number = match.groups()
    return StagedName(int(application, 16), int(version), int(part), int(attempt, 16), int(number))


def merged_name(application: int, version: int, number: int) -> str:
    """Return the file name for the n-th copy of staged batches of a transaction."""
    return f"{application:016x}-{version:019d}-{number:04d}{MERGED_SUFFIX}"


def index_bytes_max(segment_bytes: int) -> int:
    """Return the largest size of an index file: it has fewer entries than its segment has batches."""
    return _INDEX.size + segment_bytes + PRODUCER_TABLE_BYTES_MAX + 3 * _ENTRY_BYTES + 8


def of_another_version(what: str, version: object) -> QuothError:
    """Make the error for a file that checks, and has another version than this one. It stays as it is."""
    text = f"{what} of version {version}, this program knows version {VERSION}"
    return error("unsupported_version", text, "it was left as it is: use the Quoth that wrote it")


def encode_table(rows: Iterable[TableRow]) -> bytes:
    """Encode a producer table."""
    parts: list[bytes | bytearray] = []
    for kind, identity, entries in rows:
        parts += (_ROW.pack(identity, kind, len(entries) // TABLE_ENTRY.size), entries)
    return b"".join(parts)


def decode_table(table: bytes) -> Iterator[TableRow]:
    """Yield the rows of a producer table whose checksum has been verified. Raises `Damaged`."""
    offset = 0
    while offset < len(table):
        if len(table) - offset < _ROW.size:
            raise error("damaged", "the producer table ends within a row")
        identity, kind, count = _ROW.unpack_from(table, offset)
        begin = offset + _ROW.size
        offset = begin + count * TABLE_ENTRY.size
        if kind not in _ROW_KINDS or not count or offset > len(table):
            raise error("damaged", "the producer table's rows do not add up")
        yield TableRow(kind, identity, table[begin:offset])


def encode_block(block: Block) -> bytes:
    """Encode a header block with its producer table."""
    table = block.producers
    checked = _BLOCK.pack(
        _BLOCK_MAGIC, VERSION, 0, *block[:5], block.boot_id, len(table), xxh3_64_intdigest(table), 0
    )[: BLOCK_BYTES - 8]
    return checked + _CHECK.pack(xxh3_64_intdigest(checked)) + table + bytes(-len(table) % 8)


def block_size(head: bytes) -> int:
    """Return the size of the block that begins with these `BLOCK_BYTES`. Raises as `decode_block` does."""
    table_bytes: int = _parse_block(head)[-3]
    return BLOCK_BYTES + table_bytes + -table_bytes % 8


def named_in(head: bytes) -> tuple[int, int, LogPosition]:
    """Return the log id and the floor in the first `BLOCK_BYTES` of a block, and where the batches begin.

    Raises as `decode_block` does.
    """
    log_id, floor, previous, ordinal, *_ = _parse_block(head)
    return log_id, floor, LogPosition(block_size(head), previous, ordinal)


def is_like_block(head: bytes, log_id: int, floor: int) -> bool:
    """Return True if any field says that this was the header block of that segment."""
    if len(head) < BLOCK_BYTES:
        return bool(head) and _BLOCK_MAGIC.startswith(head[:8])
    magic, _, _, said, begin, *_ = _BLOCK.unpack_from(head)
    return bool(magic == _BLOCK_MAGIC or said == log_id or begin == floor)


def decode_block(data: bytes) -> Block:
    """Decode a header block. Raises `Damaged`, or `RequestError` ``unsupported_version`` if it is whole."""
    *fixed, table_bytes, table_check, _ = _parse_block(data)
    size = block_size(data)
    table = data[BLOCK_BYTES : BLOCK_BYTES + table_bytes]
    if (
        len(data) < size
        or xxh3_64_intdigest(table) != table_check
        or any(data[BLOCK_BYTES + table_bytes : size])
    ):
        raise error("damaged", "the segment's producer table does not check")
    return Block._make([*fixed, table])


def _parse_block(data: bytes) -> list[Any]:
    if len(data) < BLOCK_BYTES:
        raise error("damaged", f"{len(data)} bytes are no header block")
    magic, version, zeros, *fixed = _BLOCK.unpack_from(data)
    if magic != _BLOCK_MAGIC or fixed[-1] != xxh3_64_intdigest(data[: BLOCK_BYTES - 8]):
        raise error("damaged", "the segment's header block does not check")
    if version != VERSION:
        raise of_another_version("a segment", version)
    if zeros:
        raise error("damaged", "the segment's header block has bytes where zeros have to be")
    if fixed[-3] > PRODUCER_TABLE_BYTES_MAX:
        raise error("damaged", f"a producer table of {fixed[-3]} bytes")
    return fixed


def encode_footer(footer: Footer) -> bytes:
    """Encode a footer."""
    log_id, end, chain = footer
    checked = _FOOTER.pack(FOOTER_MAGIC, log_id, end.offset, end.ordinal, end.pointer, chain, 0, 0)[:-8]
    return checked + _CHECK.pack(xxh3_64_intdigest(checked))


def decode_footer(data: bytes) -> Footer:
    """Decode a footer, or raise `Damaged`."""
    if len(data) != FOOTER_BYTES:
        raise error("damaged", f"{len(data)} bytes are no footer")
    magic, log_id, offset, ordinal, pointer, chain, _, check = _FOOTER.unpack(data)
    if magic != FOOTER_MAGIC or check != xxh3_64_intdigest(data[:-8]):
        raise error("damaged", "the footer does not check")
    return Footer(log_id, LogPosition(offset, pointer, ordinal), chain)


def encode_checkpoint(point: Checkpoint) -> bytes:
    """Encode an index file."""
    head = _INDEX.pack(
        _INDEX_MAGIC, VERSION, 0, point.log_id, point.floor, point.end.offset, point.end.pointer,
        point.chain, len(point.entries) + 1, len(point.producers), point.last_offset, point.last_check,
    )  # fmt: skip
    numbers = [number for entry in (*point.entries, point.end) for number in entry]
    parts = (head, struct.pack(f"<{len(numbers)}Q", *numbers), point.producers)
    check = xxh3_64()
    for part in parts:
        check.update(part)
    return b"".join((*parts, _CHECK.pack(check.intdigest())))


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Decode an index file, or raise `Damaged`."""
    if len(data) < _INDEX.size + 8 or _CHECK.unpack(data[-8:])[0] != xxh3_64_intdigest(memoryview(data)[:-8]):
        raise error("damaged", "the index file does not check")
    magic, version, _, log_id, floor, *_, chain, count, table, last_offset, last_check = _INDEX.unpack_from(
        data
    )
    if magic != _INDEX_MAGIC or version != VERSION or count < 2:
        raise error("damaged", "this is no index file of this version")
    if len(data) != _INDEX.size + count * _ENTRY_BYTES + table + 8:
        raise error("damaged", "the index file's parts do not add up")
    table_at = _INDEX.size + count * _ENTRY_BYTES
    *entries, end = map(LogPosition._make, _ENTRY.iter_unpack(memoryview(data)[_INDEX.size : table_at]))
    producers = data[table_at:-8]
    return Checkpoint(log_id, floor, end, chain, last_offset, last_check, entries, producers)
