"""The reads of an open log: by cursor, by range, as records, as columns, as stored bytes, as places in files.

Each sees the log as far as its option `synced_reads` says, or as far as the read itself asks for:

    durability="written"   all that was appended: it may be lost with the power
    durability="synced"    what survives a loss of power; behind its end such a read finds nothing

Neither shows a transaction before it is synced, nor a pointer beyond the horizon, see `log`. No read syncs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import starmap

from quothlog.appender import Appender
from quothlog.file_format import LogPosition
from quothlog.reading.log_batch import LogBatch
from quothlog.reading.range_query import UNBOUNDED, FileRange, LogSurvey
from quothlog.reading.read_request import (
    DEFAULT_BYTES,
    UNLIMITED,
    ReadLoss,
    ReadRequest,
    batches_above,
    loss_before,
    records_above,
)
from quothlog.reading.segment_reader import Extract
from quothlog.reading.slices import LogSlice, SliceBuilder
from quothlog.sealed import SealedSegments
from quothwire.errors import error, shown
from quothwire.pointer import POINTER_MAX, check_pointer
from quothwire.record import Record
from quothwire.settings import DURABILITIES, Durability


class LogReads:
    """The calls of a `Log` that change nothing. They belong to its owner, as the log does.

    durability: how far this one read sees, ``written`` or ``synced``; None: as far as the log lets all see.
    """

    appender: Appender
    log_id: int
    _sealed: SealedSegments
    _first: int | None
    """The pointer of the oldest record that can be read, None if it is not known."""

    # -- how far readers see ----------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The newest pointer that readers may see, 0 if there is none."""
        return self.appender.visible.pointer

    @property
    def end_ordinal(self) -> int:
        """Records that the log ever held, as far as readers may see."""
        return self.appender.visible.ordinal

    @property
    def first_ordinal(self) -> int:
        """The ordinal of the oldest record: so many records are not kept any more."""
        return (self._sealed.oldest() or self.appender.active).start.ordinal

    def visible_at(self, durability: Durability | None) -> LogPosition:
        """Return the end of what a read of a level sees. Raises ``bad_request`` for what is no level."""
        if durability is None:
            return self.appender.visible
        if durability not in DURABILITIES:
            raise error("bad_request", f"durability is {' or '.join(DURABILITIES)}, not {shown(durability)}")
        return self.appender.synced if durability == "synced" else self.appender.written

    def covers(self, pointer: int, *, durability: Durability | None = None) -> bool:
        """True if a pointer lies between those of the oldest and the newest record, both included.

        It may be a time in between at which there is no record. A cursor below the oldest record has missed
        some, unless it is 0; one above the newest record has read everything.
        """
        end = self.visible_at(durability)
        return 0 < self._first_up_to(end) <= check_pointer(pointer) <= end.pointer

    # -- by cursor --------------------------------------------------------------------------------------

    def lookup(
        self,
        after: int,
        records_max: int = UNLIMITED,
        bytes_max: int = DEFAULT_BYTES,
        durability: Durability | None = None,
    ) -> ReadRequest | None:
        """Find where the first records above `after` lie; None if the read may not see any yet."""
        check_pointer(after)
        appender = self.appender
        visible = appender.visible if durability is None else self.visible_at(durability)
        if after >= visible.pointer:
            return None
        active = appender.active
        if after + 1 >= active.floor or not self._sealed:
            return ReadRequest(active, active.view_up_to(visible), after, after, records_max, bytes_max)
        one, following = self._sealed.holding(after)
        self._sealed.keep(one)
        beyond = min((following or active).floor - 1, POINTER_MAX)
        return ReadRequest(one, None, after, beyond, records_max, bytes_max)

    def fetch(
        self,
        after: int,
        records_max: int = UNLIMITED,
        bytes_max: int = DEFAULT_BYTES,
        *,
        durability: Durability | None = None,
    ) -> Extract | None:
        """Read the stored bytes of the first batches with records above `after`, across segments."""
        while (request := self.lookup(after, records_max, bytes_max, durability)) is not None:
            found = request.read()
            if found is not None or not request.sealed:
                return found
            after = request.beyond
        return None

    def read(
        self, after: int = 0, limit: int | None = None, *, durability: Durability | None = None
    ) -> Iterator[Record]:
        """Yield records with pointers above `after`, oldest first, until there are no more.

        A batch that does not check raises `Damaged`, whose hint has the pointer to read on after.
        """
        return records_above(after, self.log_id, self._fetch_at(durability), limit)

    def batches(self, after: int = 0, *, durability: Durability | None = None) -> Iterator[LogBatch]:
        """Yield the same records as columns, see `LogBatch`: a quarter of the time of `read`."""
        return starmap(LogBatch.of, batches_above(after, self.log_id, self._fetch_at(durability)))

    def loss(self, after: int, ordinal: int, found: Extract) -> ReadLoss:
        """Count what is missing between a cursor and an extract. ordinal: -1 if the reader knows none."""
        return loss_before(found, after, ordinal, self._sealed, self.appender.active)

    # -- by range ---------------------------------------------------------------------------------------

    def survey(self, after: int, *, durability: Durability | None = None) -> LogSurvey:
        """Make a view of the visible log, for queries on ranges above a pointer."""
        check_pointer(after)
        active, visible = self.appender.active, self.visible_at(durability)
        sealed = [] if after + 1 >= active.floor else self._sealed
        return LogSurvey([*sealed, active.as_of(visible)], visible)

    def slice(
        self,
        after: int,
        until: int | None = None,
        *,
        durability: Durability | None = None,
        records_max: int = UNLIMITED,
        bytes_max: int = DEFAULT_BYTES,
    ) -> LogSlice:
        """Return the records above `after` up to `until` as the stored bytes of whole batches.

        `quothlog.decode` makes records of them, here or elsewhere:

            cursor = 0
            while piece := log.slice(cursor):
                send(piece.log_id, piece.data)
                cursor = piece.next

        until: None for what is there now. records_max: exactly so many records, if there are; a batch that
        they divide is also in the next slice. bytes_max: at least one batch, then as many as fit, across
        segments. A slice without records is false; its `next` is `until` if no more can appear up to there.
        Checks the headers of the batches, not their bodies. Raises `RequestError` ``bad_pointer`` or
        ``bad_request``, or OSError.
        """
        check_pointer(after)
        end = self.visible_at(durability).pointer
        for name, limit in (("records_max", records_max), ("bytes_max", bytes_max)):
            if limit < 1:
                raise error("bad_request", f"{name} is {shown(limit)}: it must be 1 or more")
        fetch = partial(self.fetch, durability=durability)
        return SliceBuilder(self.log_id, after, _end_of_range(after, until), end).gather(
            fetch, records_max, bytes_max
        )

    def file_ranges(
        self, after: int, until: int | None = None, *, durability: Durability | None = None
    ) -> list[FileRange]:
        """Return where the batches of a range lie in the files of the segments, to be sent or mapped as such.

        They are the batches of `slice`, of the whole range, for `os.sendfile` and `mmap`: of each `path`, the
        `length` bytes at `offset`. Damaged bytes between them are included. The bytes stay what they are, but
        retention may remove a file before it is opened, and a loss of power may cut off what is not synced.
        until: None for what is there now. Raises as `slice` does.
        """
        return self.survey(after, durability=durability).files(after, _end_of_range(after, until))

    def advance(self, after: int, records: int, *, durability: Durability | None = None) -> int:
        """Return the pointer of the record that lies so many behind a cursor; the newest if there are fewer.

        Reads no records. Damaged ones count; if the last one is among them, the pointer is that in front of
        the damage, or behind it if nothing lies in front. Raises `RequestError` ``bad_pointer``, or
        ``bad_request`` for a number below 0.
        """
        if records < 0:
            raise error("bad_request", f"records is {shown(records)}: it must be 0 or more")
        if not records or after >= self.visible_at(durability).pointer:
            return check_pointer(after)
        found, _ = self.survey(after, durability=durability).advance(after, records, UNBOUNDED)
        return found.until if found.records else after

    # -- inside -----------------------------------------------------------------------------------------

    def _fetch_at(self, durability: Durability | None) -> partial[Extract | None]:
        """Return the fetch of a level, which is checked now."""
        self.visible_at(durability)
        return partial(self.fetch, durability=durability)

    def _first_up_to(self, end: LogPosition) -> int:
        """Return the oldest pointer that can be read in front of a position, 0 if there is none."""
        if self.first_ordinal >= end.ordinal:
            return 0
        if self._first is None:
            firsts = (one.first() for one in (*self._sealed, self.appender.active))
            self._first = next((first.base for first in firsts if first is not None), None)
        return self._first or 0


def _end_of_range(after: int, until: int | None) -> int:
    """Return the last pointer of a range. Raises ``bad_request`` if that lies in front of the first one."""
    if until is None:
        return POINTER_MAX
    if check_pointer(until) < after:
        raise error("bad_request", f"a range that begins after {after} and ends at {until}", "swap the two")
    return until
