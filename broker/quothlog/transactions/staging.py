"""Staging: the batches of transactions that are not published, in files that no reader sees.

One try to write a part of a transaction is an attempt. Its batches lie one behind the other in files of its
own, in the order in which they are numbered, cut like segments:

    header block    a segment's, floor 0, the time at which the file was begun in place of the last pointer
    batches         as their producer sent them, without a place in the log

So publishing them is a matter of writing headers and renaming the files, see `commit`. After another boot,
the batches of an attempt are verified when it is used for the first time; what comes behind the first batch
that does not check is not there then.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from quothlog import file_format, segment
from quothlog.file_format import BLOCK_BYTES, Block, StagedName
from quothlog.retention import SHARE, LogOptions
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import PROCESS_SHORT, Buffer, File, FileSystem
from quothlog.storage.write_failure import need_room
from quothwire import batch
from quothwire.batch import Header
from quothwire.errors import Damaged, QuothError, error
from quothwire.ingest import check_new
from quothwire.text.quantity import format_size

STAGED_FILES_MAX = 65_536
"""Of a topic, four times as many as a transaction can have parts: each takes 1.5 KB of memory, and 40 us of
an opening."""

CANNOT_BE_READ = "nothing was published: abort the transaction, and stage it again"
"""The hint of ``damaged`` for staged batches."""

_READ_BYTES = 2**16


class TransactionKey(NamedTuple):
    """A transaction. application: the producer id that its name makes."""

    application: int
    version: int


@dataclass(slots=True)
class StagedFile:
    """One file of an attempt. size: where its batches end. begun: when, as a pointer."""

    path: Path
    begun: int
    boot_id: bytes
    size: int
    records: int = 0
    batches: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of its batches."""
        return max(0, self.size - BLOCK_BYTES)

    def take(self, header: Header) -> None:
        """Take note of a batch that is behind the others."""
        self.size += header.size
        self.records += header.records
        self.batches += 1


@dataclass(slots=True)
class Attempt:
    """One try to write a part: its files in order, and the checksum of each batch's body."""

    files: list[StagedFile] = field(default_factory=list)
    checks: array[int] = field(default_factory=lambda: array("Q"))
    is_read: bool = False
    """True once its files were read, or written, since the log was opened."""

    @property
    def batches(self) -> int:
        """Number of its batches."""
        return len(self.checks)

    @property
    def records(self) -> int:
        """Number of its records."""
        return sum(file.records for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of its batches."""
        return sum(file.bytes for file in self.files)


class Amount(NamedTuple):
    """The amount that is staged of a transaction; each attempt counts as a part."""

    parts: int
    batches: int
    records: int
    bytes: int


class Staging:
    """The staged batches in the directory of a log. Owned by the log's owner."""

    def __init__(
        self,
        filesystem: FileSystem,
        clock: Clock,
        directory: Path,
        log_id: int,
        files: Mapping[str, int],
        options: LogOptions,
        files_max: int,
    ) -> None:
        """files: names and sizes of those that are there. options: how long one of them was gone on with."""
        self._files_max = files_max
        self._filesystem = filesystem
        self._clock = clock
        self._directory = directory
        self._log_id = log_id
        self._attempts: dict[TransactionKey, dict[tuple[int, int], Attempt]] = {}
        self._latest: dict[TransactionKey, int] = {}
        self._drops: list[Path] = []
        self.bytes = 0
        """Of the batches of all transactions."""
        self._files = 0
        for name in sorted(filter(None, map(file_format.staged_name_of, files))):
            self._find(name, files[str(name)], _gone_on_us(options))

    def __iter__(self) -> Iterator[TransactionKey]:
        return iter(list(self._attempts))

    # -- one transaction ----------------------------------------------------------------------------------

    def stage(
        self, name: StagedName, number: int, header: Header, raw: Buffer, options: LogOptions
    ) -> Attempt:
        """Keep a batch behind those of its attempt, unless it is there; returns the attempt.

        name: with any number of a file. number: batches of the attempt before it. header: that of the batch.
        Raises `Conflict` ``sequence_reused``, ``out_of_sequence`` or ``staged_max``, `RequestError`
        ``bad_batch`` or ``too_large``, `Unavailable` ``disk_low``, or OSError; nothing was stored then.
        """
        one = self.attempt(TransactionKey(*name[:2]), name.part, name.attempt) or Attempt(is_read=True)
        if number < one.batches:
            if one.checks[number] != header.body_check:
                raise error(
                    "sequence_reused", f"batch {number} of this attempt was staged with other records"
                )
            return one
        if number > one.batches:
            raise error("out_of_sequence", f"batch {number} came after {one.batches} of this attempt")
        check_new(raw, header)
        if self.bytes + len(raw) > options.staged_bytes_max:
            most = format_size(options.staged_bytes_max)
            text = f"{format_size(self.bytes)} are staged on this topic, at most {most}"
            raise error("staged_max", text)
        need_room(self._filesystem, self._directory, options.disk_free_min + len(raw))
        file = one.files[-1] if one.files else None
        if file is None or self._is_full(file, header, options):
            self._need_a_file()
            if file is not None:  # or what was broken off would stand between its batches and the next ones
                reopened(self._filesystem, file).close()
            one.files.append(self._begin(name._replace(number=len(one.files)), raw))
            self._files += 1
        else:
            self._go_on(file, raw)
        one.files[-1].take(header)
        self.bytes += header.size
        one.checks.append(header.body_check)
        key = TransactionKey(*name[:2])
        self._attempts.setdefault(key, {})[name.part, name.attempt] = one
        self._latest[key] = self._clock.now()
        return one

    def attempt(self, key: TransactionKey, part: int, attempt: int) -> Attempt | None:
        """Return what an attempt has staged, None for nothing. Raises OSError."""
        one = self._attempts.get(key, {}).get((part, attempt))
        if one is not None and not one.is_read:
            read = self._read(one.files, bodies=True)
            self.bytes += read.bytes - one.bytes
            self._files += len(read.files) - len(one.files)
            self._attempts[key][part, attempt] = one = read
        return one

    def amount(self, key: TransactionKey) -> Amount:
        """Return how much is staged of a transaction. Raises OSError."""
        attempts = [self.attempt(key, *which) for which in list(self._attempts.get(key, ()))]
        return _amount(one for one in attempts if one is not None)

    def remove(self, key: TransactionKey) -> Amount:
        """Remove all that is staged of a transaction; returns how much, by its headers, unverified.

        Raises OSError, see `sweep`.
        """
        attempts = self._attempts.get(key, {}).values()
        amount = _amount(one if one.is_read else self._read(one.files, bodies=False) for one in attempts)
        self.drop(key)
        return amount

    def drop(self, key: TransactionKey) -> None:
        """Remove all that is staged of a transaction, without reading it. Raises OSError, see `sweep`."""
        attempts = self._attempts.pop(key, {}).values()
        self._latest.pop(key, None)
        self.bytes -= sum(one.bytes for one in attempts)
        self._files -= sum(len(one.files) for one in attempts)
        self._drops += [file.path for one in attempts for file in one.files]
        self.sweep()

    def sweep(self) -> None:
        """Remove what is of no use any more. Raises OSError; what is left goes the next time."""
        while self._drops:
            self._filesystem.remove(self._drops[-1])
            self._drops.pop()

    def latest(self, key: TransactionKey) -> int:
        """Return when something was staged for a transaction last, as a pointer.

        After an opening, when the newest of its files may have got its last batch, at the latest.
        """
        return self._latest.get(key, 0)

    # -- files ----------------------------------------------------------------------------------------------

    def _find(self, name: StagedName, size: int, gone_on_us: int) -> None:
        """Take in a file that was there when the log was opened, and was gone on with for so long at most."""
        key, path = TransactionKey(name.application, name.version), self._directory / str(name)
        block = Block(self._log_id, 0, self._clock.now(), 0, 0, bytes(16), b"")
        try:
            with readable():
                file = self._filesystem.open(path)
                block = segment.read_block(file)
                file.close()
        except Damaged as problem:
            if not isinstance(problem.__cause__, OSError):
                block = block._replace(log_id=0)  # a loss of power has left nothing of it that could be used
        if block.log_id != self._log_id:
            self._drops.append(path)
            return
        attempts = self._attempts.setdefault(key, {})
        begun = block.floor or block.previous  # it has a floor if a publication was broken off
        found = StagedFile(path, begun, block.boot_id, size)
        attempts.setdefault((name.part, name.attempt), Attempt()).files.append(found)
        self.bytes += found.bytes
        self._files += 1
        self._latest[key] = max(self.latest(key), begun + gone_on_us)

    def _read(self, files: Sequence[StagedFile], *, bodies: bool) -> Attempt:
        """The attempt that left these files: its batches, up to the first that is not whole.

        bodies: verify them, where they may have been lost with the power.
        """
        one = Attempt(is_read=True)
        useless: list[Path] = []
        for row, found in enumerate(files):
            name = file_format.staged_name_of(found.path.name)
            is_next = name is not None and name.number == row
            if useless or not is_next or (row and one.files[-1].size != files[row - 1].size):
                useless.append(found.path)
                continue
            file = replace(found, size=BLOCK_BYTES)
            for header in self._whole_batches(found, bodies=bodies):
                file.take(header)
                one.checks.append(header.body_check)
            one.files.append(file)
        self._drops += useless
        return one

    def _whole_batches(self, found: StagedFile, *, bodies: bool) -> Iterator[Header]:
        with suppress(Damaged), readable():
            file = self._filesystem.open(found.path)
            is_sure = not bodies or found.boot_id == self._clock.boot_id()
            for offset, header in headers_in(file, found.size, self._log_id):
                if not is_sure and not is_intact(raw_at(file, offset, header), header):
                    break
                yield header
            file.close()

    def _need_a_file(self) -> None:
        if self._files >= self._files_max:
            text = f"{self._files} files of staged batches lie on this topic, at most {self._files_max}"
            raise error("staged_max", text, "publish or abort what is staged, or stage in fewer attempts")

    def _is_full(self, file: StagedFile, header: Header, options: LogOptions) -> bool:
        """Return True if a batch needs another file: each is to become a segment, and has to be young."""
        is_old = self._clock.now() - file.begun > _gone_on_us(options)
        too_many = options.count_limit and file.records + header.records > options.count_limit
        return bool(is_old or too_many or file.size + header.size > options.roll_bytes)

    def _begin(self, name: StagedName, raw: Buffer) -> StagedFile:
        now, boot_id = self._clock.now(), self._clock.boot_id()
        path = self._directory / str(name)
        with suppress(ValueError):
            self._drops.remove(path)
        with closing(self._filesystem.create(path)) as file:
            try:
                file.append([file_format.encode_block(Block(self._log_id, 0, now, 0, 0, boot_id, b"")), raw])
            except BaseException:
                self._filesystem.remove(path)
                raise
        return StagedFile(path, now, boot_id, BLOCK_BYTES)

    def _go_on(self, staged: StagedFile, raw: Buffer) -> None:
        with closing(reopened(self._filesystem, staged)) as file:
            try:
                file.append([raw])
            except BaseException:
                with suppress(OSError):
                    file.truncate(staged.size)
                raise


@contextmanager
def readable() -> Iterator[None]:
    """Raise ``damaged`` for staged batches that cannot be read: nothing else is wrong with the log."""
    try:
        yield
    except OSError as problem:
        if problem.errno in PROCESS_SHORT:
            raise
        text = f"staged batches cannot be read: {problem.strerror}"
        raise error("damaged", text, CANNOT_BE_READ) from problem


def reopened(filesystem: FileSystem, staged: StagedFile) -> File:
    """A file of staged batches, to be written to; a batch that was broken off behind them is cut off."""
    with readable():
        file = filesystem.open(staged.path, append=True)
    _need_size(file, staged.size)
    if file.size() != staged.size:
        file.truncate(staged.size)
    return file


def _need_size(file: File, size: int) -> None:
    if (there := file.size()) < size:
        text = f"staged batches cannot be read: their file has {there} bytes, not {size}"
        raise error("damaged", text, CANNOT_BE_READ)


def headers_in(file: File, end: int, log_id: int) -> Iterator[tuple[int, Header]]:
    """Offset and header of each batch in a file of staged ones, as far as they follow each other."""
    _need_size(file, end)
    data, base, offset = b"", 0, BLOCK_BYTES
    while offset + batch.HEADER_BYTES <= end:
        if not base <= offset <= base + len(data) - batch.HEADER_BYTES:
            with readable():
                data, base = file.read(min(_READ_BYTES, end - offset), offset), offset
        header = _header(data, offset - base, log_id)
        if header is None or offset + header.size > end:
            return
        yield offset, header
        offset += header.size


def _header(data: bytes, offset: int, log_id: int) -> Header | None:
    """A header without a place, or with the one that a publication gave it that was broken off."""
    for seed in (0, log_id):
        with suppress(QuothError):
            return batch.parse_header(data, seed, offset)
    return None


def raw_at(file: File, offset: int, header: Header) -> bytes:
    """A staged batch, as far as it is there. Raises `Damaged`."""
    with readable():
        return file.read(header.size, offset)


def is_intact(raw: Buffer, header: Header) -> bool:
    """Return True if a staged batch matches its header, which has been checked."""
    return len(raw) == header.size and batch.is_body_of(header, memoryview(raw)[batch.HEADER_BYTES :])


def _amount(attempts: Iterable[Attempt]) -> Amount:
    there = list(attempts)
    return Amount(
        len(there),
        sum(one.batches for one in there),
        sum(one.records for one in there),
        sum(one.bytes for one in there),
    )


def _gone_on_us(options: LogOptions) -> int:
    """Return how long batches are added to one file, whose beginning says about when the last one came."""
    return options.staged_age_us // SHARE
