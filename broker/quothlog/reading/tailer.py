"""Follows a log that another process may be writing: returns the stored batches behind a cursor.

No lock is taken and nothing is written, see `snapshot`. One segment is open at a time, and what has been
added to it is read from where the last read ended; when the log has rolled, the next one begins with the same
ordinal. Where it does not go on like that, `verify` finds what is damaged and where the next batch lies. A
batch is returned only if all of it checks; one that does not, at the end of the last segment, may be one that
is being written, or one that the log's next opening will cut off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from quothlog import file_format, segment
from quothlog.datadir.foreign import refuse_foreign
from quothlog.file_format import LogPosition
from quothlog.reading.directory_watch import DirectoryWatch, take_in_time
from quothlog.recovery import verify
from quothlog.recovery.scan import Found, are_of_one, is_open
from quothlog.recovery.snapshot import DISK, Part, floors_in
from quothlog.recovery.verify import Damage, Unfinished
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.filesystem import File
from quothwire import batch
from quothwire.batch import Header, Stored
from quothwire.errors import QuothError, error
from quothwire.pointer import check_pointer
from quothwire.text.paths import given_path

TAKE_BYTES = 2**20


class Missing(NamedTuple):
    """Records that are not there any more: behind the pointer `after` and before `next`.

    records: how many, ordinal: that of the first of them, each -1 if it cannot be known. reason: ``trimmed``,
    so removed on purpose, or ``damaged``. text: what is known beyond that, for people.
    """

    after: int
    next: int
    records: int
    ordinal: int
    reason: Literal["trimmed", "damaged"]
    text: str = ""


class Tailer:
    """A cursor on the log in a directory. Not thread-safe.

    after: the pointer up to which everything was returned or reported. log_id: 0 until a batch was found.
    durable: return only what survives a loss of power. on_missing: called with what will never be returned.
    An empty directory is an empty log. Raises FileNotFoundError if there is no such directory, and
    `RequestError` ``bad_setting`` if it holds something else than a log.
    """

    def __init__(
        self,
        directory: str | Path,
        after: int = 0,
        *,
        log_id: int = 0,
        durable: bool = False,
        on_missing: Callable[[Missing], None],
        clock: Clock | None = None,
    ) -> None:
        self.directory = given_path(directory, "directory")
        refuse_foreign(self.directory)
        self.log_id = log_id
        self._durable = durable
        self._on_missing = on_missing
        self._clock = clock or SystemClock()
        self._names = DirectoryWatch(self.directory, self._clock)
        self._floors: list[int] = []
        self.seek(after)

    def seek(self, after: int) -> None:
        """Go on behind a pointer."""
        self.after = check_pointer(after)
        self._ordinal = -1
        self._file: File | None = None
        self._floor = 0
        self._here = LogPosition(0, 0, 0)
        self._vain: object = None

    def seek_to_end(self) -> None:
        """Go on behind the newest record that is there now."""
        with suppress(FileNotFoundError):
            floors = floors_in(self.directory)
            self.seek(floors[-1] - 1 if floors else 0)
            while self.take():
                pass

    def take(self) -> list[Stored]:
        """The next batches, about `TAKE_BYTES` of them and at least one if there is any; none at the end.

        Raises OSError, or `Damaged` if the directory holds another log now.
        """
        return self._read_on() or self._look_around()

    def wait(self, seconds: float | None) -> list[Stored]:
        """`take`, as soon as there is something; none after so many seconds, None: it waits for ever."""
        return take_in_time(self.take, seconds, self._clock)

    def close(self) -> None:
        """Close the segment. `seek` opens one again."""
        self._file = None

    # -- inside -----------------------------------------------------------------------------------------

    def _read_on(self) -> list[Stored]:
        """Read what follows in the open segment."""
        file, here = self._file, self._here
        room = file.size() - here.offset if file is not None else 0
        if file is None or room < batch.HEADER_BYTES:
            return []
        data = memoryview(file.read(min(room, TAKE_BYTES), here.offset))
        with suppress(QuothError):
            size = batch.parse_header(data, self.log_id).size
            if len(data) < size <= room:
                data = memoryview(file.read(size, here.offset))
        end, _, _ = batch.whole(data, self.log_id, here.pointer, here.ordinal)
        found: list[Stored] = []
        with suppress(QuothError):
            for raw in batch.split(data[:end], self.log_id):
                found.append(Stored(batch.check(raw, self.log_id), raw))
        is_last = not self._floors or self._floor >= self._floors[-1]  # else nothing is added any more
        if found and is_last and is_open(found[-1].header):
            self._hold_back(file, found)
        if found and self._durable:
            file.sync()  # of all that was read before, whichever process has written it
        for header, _ in found:
            self._here = LogPosition(self._here.offset + header.size, header.last, header.end_ordinal)
        if found:
            self.after, self._ordinal = self._here.pointer, self._here.ordinal
        return found

    def _hold_back(self, file: File, found: list[Stored]) -> None:
        """Leave a transaction away that is not all there yet."""
        offset = self._here.offset + sum(header.size for header, _ in found)
        last = found[-1].header
        while (header := self._header_at(file, offset)) is not None and are_of_one(header, last):
            if not is_open(header):
                return
            offset += header.size
        while found and are_of_one(found[-1].header, last):
            found.pop()

    def _header_at(self, file: File, offset: int) -> Header | None:
        with suppress(QuothError):
            header = batch.parse_header(file.read(batch.HEADER_BYTES, offset), self.log_id)
            if offset + header.size <= file.size():
                return header
        return None

    def _look_around(self) -> list[Stored]:
        """Read what follows elsewhere: in the next segment, or behind damage."""
        try:
            floors = self._listed()
            sight = self._sight(floors)
            if sight == self._vain:
                return []
            if self._step_over(floors):
                return self.take()
            if self._find():
                return self._read_on()
        except FileNotFoundError:  # there is no log yet, or retention was faster
            if not self.directory.is_dir():
                raise
            return []
        self._vain = sight
        return []

    def _listed(self) -> list[int]:
        """The floors of the segments, listed anew if they may be others by now."""
        if self._names.may_differ():
            try:
                self._floors = floors_in(self.directory, self.log_id)
            except (OSError, QuothError):
                self._names.forget()
                raise
        return self._floors

    def _sight(self, floors: list[int]) -> object:
        """Return a value that changes once there is more to be found."""
        if not floors:
            return None, 0, 0
        state = (self.directory / file_format.segment_name(floors[-1])).stat()
        return floors[-1], state.st_size, state.st_mtime_ns

    def _step_over(self, floors: list[int]) -> bool:
        """Open the next segment, if it goes on exactly where the one ends that is open."""
        row = bisect_right(floors, self._floor)
        if self._file is None or row == len(floors):
            return False
        following = floors[row]
        file = DISK.open(self.directory / file_format.segment_name(following))
        try:
            block = segment.read_block(file)
        except QuothError:
            return False
        here = self._here
        if (block.log_id, block.floor) != (self.log_id, following):
            return False
        if block.start[1:] != here[1:]:
            return False
        self._file, self._floor, self._here = file, following, block.start
        return True

    def _find(self) -> bool:
        """Look for the next batch, wherever it lies, and report what is missing before it."""
        wrong: list[Damage | Unfinished] = []
        for part, step in verify.steps(self.directory, self.after, log_id=self.log_id, bodies=True):
            if isinstance(step, Found):
                self._open(part, step)
                self._report_missing(wrong, part, step.header)
                return True
            wrong.append(step)
        return False

    def _open(self, part: Part, found: Found) -> None:
        if self.log_id not in (0, part.log_id):
            raise error("damaged", f"{self.directory} holds another log now, {part.log_id:016x}")
        self._file = DISK.open(part.path)
        self.log_id, self._floor = part.log_id, part.floor
        self._here = LogPosition(found.offset, found.header.base - 1, found.header.ordinal)

    def _report_missing(self, wrong: list[Damage | Unfinished], part: Part, first: Header) -> None:
        """Report the records that are missing between the cursor and a batch."""
        expected = self._ordinal
        reason: Literal["trimmed", "damaged"] = "trimmed"
        text = ""
        if first.base <= self.after:
            return
        for one in wrong:
            if not isinstance(one, Damage) or not one.records:
                continue
            said = f"{one.path}: {one.text}"
            if one.records < 0 <= expected:  # how many, the gap tells
                reason, text = "damaged", said
                continue
            self._on_missing(Missing(one.after, one.next, one.records, one.ordinal, "damaged", said))
            expected += one.records if expected >= 0 else 0
        if 0 <= expected < first.ordinal:
            gap = first.ordinal - expected
            self._on_missing(Missing(self.after, first.base, gap, self._ordinal, reason, text))
        elif expected < 0 and not wrong and part.block is not None and 0 < self.after < part.block.previous:
            self._on_missing(Missing(self.after, first.base, -1, -1, "trimmed"))
