"""Imports one log: appends the values of a source under their pointers, from the first or where it was ended.

A log allocates base = max(now, last + 1), so a clock that shows the pointer of the next record gives each
the one that it has in the source, as long as they rise. A record whose pointer does not gets the last one
+ 1, and is counted. Consecutive pointers become one batch, any others a batch each.

The log has the records of the source in their order, so its number of records says where to go on, provided
that it ends with the record that this count leads to.

Records with an address become batches of a producer that counts addresses, see `slab_addresses`: one of
records that lie side by side, with the address of the first + 1 as its sequence.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from quothlog.appender import AHEAD_US, Appended
from quothlog.importing.import_report import BoundedFindings, ImportReport
from quothlog.importing.source import (
    Advance,
    ImportedRecord,
    ImportFinding,
    LogSource,
    counted,
    shown_path,
)
from quothlog.log import Log
from quothlog.retention import LogOptions
from quothlog.slabs.slab_addresses import import_producer
from quothlog.slabs.slab_format import SlabRecord
from quothlog.storage.clock import SystemClock
from quothlog.storage.filesystem import FileSystem
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import Damaged, QuothError
from quothwire.pointer import POINTER_MAX

POINTER_KEPT_MAX = POINTER_MAX - 2**50
"""The highest pointer that is kept, in the year 4217: one above it can only be damage, and behind one at the
end of the 56 bits the log could not go on."""

_BATCH_RECORDS = 1_000
_BATCH_BYTES = 2**20
"""Limits of a batch of several records: readers take whole batches."""

_OPTIONS = LogOptions(synced_reads=True)
"""Without readers nothing has to be synced before the end, however far the pointers are apart."""


class BeginAnew(Exception):
    """Raised if a log is not as an import that ended leaves it: its directory is to be removed."""


class PointerClock(SystemClock):
    """A clock that shows a pointer; 0: the time of the machine."""

    def __init__(self) -> None:
        self.pointer = 0

    def now(self) -> int:
        """See `Clock.now`."""
        return self.pointer or super().now()


class LogImport:
    """The import of one source into the log of a directory, begun there or gone on with.

    log_id: 0 for any. others: as for `Log.open`.
    """

    def __init__(
        self,
        source: LogSource,
        directory: Path,
        filesystem: FileSystem,
        *,
        log_id: int = 0,
        others: Collection[str] = (),
    ) -> None:
        self.report = ImportReport(source.topic, source.original)
        self._findings = BoundedFindings()
        self._source = source
        self._clock = PointerClock()
        self._directory = directory
        self._filesystem = filesystem
        self._log_id = log_id
        self._others = others
        self._last = 0
        self._first_change = ""

    def run(self, advance: Advance) -> ImportReport:
        """Import; everything is synced then. Raises `BeginAnew`, what `Log.append` does, or OSError.

        An exception leaves a log that the next run goes on with, as far as the disk permits.
        """
        records = self._source.records(advance, self._findings.add)
        first = next(records, None)
        if first is not None:
            self._clock.pointer = self._wished(first)  # the name of the first segment, too
        log = self._open()
        try:
            writer = _BatchWriter(log, self._clock)
            while first is not None:
                self._take(first, writer)
                first = next(records, None)
            if self.report.records < writer.stored:
                raise BeginAnew(f"it has {writer.stored} records, the source {self.report.records}")
            writer.flush()
            log.sync()
            self._finish(log)
        except BaseException as problem:
            if isinstance(problem, BeginAnew):
                log.discard()
            else:
                with suppress(Exception):  # the reason for this end is the one to be raised
                    log.close()
            raise
        log.close()
        return self.report

    def _open(self) -> Log:
        """Open the log. Raises `BeginAnew` if the opening has changed more than what is derived."""
        try:
            log = Log.open(
                self._directory,
                options=_OPTIONS,
                log_id=self._log_id,
                filesystem=self._filesystem,
                clock=self._clock,
                others=self._others,
            )
        except Damaged as problem:
            raise BeginAnew(problem.text) from problem
        found, end = log.findings, log.appender.active.end.pointer
        is_changed = found.quarantined or found.false_segments or found.damaged_bytes or found.lost_records
        goes_on_above = log.end_ordinal and log.appender.pointers.last != end
        if is_changed or goes_on_above or log.first_ordinal:
            log.discard()
            raise BeginAnew("it was damaged, or the machine was started again")
        return log

    def _take(self, record: ImportedRecord, writer: _BatchWriter) -> None:
        """Append a record, or pass over it if the log holds it already."""
        report, pointer = self.report, record.pointer
        wished = self._wished(record)
        if wished != pointer:
            if not report.changed:
                where = f"byte {record.offset} of {shown_path(record.file)}"
                self._first_change = f"the first one, at {where}, {wished} instead of {pointer}"
            report.changed += 1
        report.records += 1
        report.bytes += len(record.value)
        self._last = wished
        if report.records > writer.stored:
            writer.add(wished, record)
        elif report.records == writer.stored and wished != writer.last:
            raise BeginAnew(f"its record {writer.stored} has the pointer {writer.last}, not {wished}")

    def _wished(self, record: ImportedRecord) -> int:
        """Return the pointer that a record gets."""
        pointer, least = record.pointer, self._last + 1
        return pointer if least <= pointer <= POINTER_KEPT_MAX else least

    def _finish(self, log: Log) -> None:
        """Complete the report."""
        report = self.report
        info = log.info()
        report.first, report.last = info.first, info.last
        report.findings = self._findings.all()
        if report.changed:
            why = "got another pointer, since theirs did not rise"
            text = f"{counted(report.changed, 'record')} {why}: {self._first_change}"
            report.findings.append(ImportFinding(text))
        ahead = report.last - SystemClock().now()
        if ahead > AHEAD_US:
            seconds = ahead // 1_000_000
            text = f"the last pointer is {seconds} s ahead of the clock: new records get those behind it"
            report.findings.append(ImportFinding(text))


class _BatchWriter:
    """Appends records, those with consecutive pointers as one batch. stored: records that the log held."""

    def __init__(self, log: Log, clock: PointerClock) -> None:
        self.stored = log.end_ordinal
        self.last = log.newest
        self._log = log
        self._clock = clock
        self._values: list[bytes] = []
        self._base = self._bytes = 0
        self._address: int | None = None
        """The address of the first record of the batch, if records have addresses."""
        self._next: int | None = None

    def add(self, pointer: int, record: ImportedRecord) -> None:
        """Append a record now or later."""
        count, value, address = len(self._values), record.value, record.address
        if count and (
            pointer != self._base + count
            or address != self._next
            or count >= _BATCH_RECORDS
            or self._bytes + len(value) > _BATCH_BYTES
        ):
            self.flush()
        if not self._values:
            self._base, self._bytes, self._address = pointer, 0, address
        self._values.append(value)
        self._bytes += len(value)
        self._next = None if address is None else SlabRecord(address, value).next

    def flush(self) -> None:
        """Append what waits. Raises `BeginAnew` if the log has allocated another pointer."""
        if self._values:
            self._clock.pointer = self._base
            appended = self._append()
            if appended.first != self._base:
                raise BeginAnew(f"it goes on at {appended.first}, not at {self._base}")
            self._values = []

    def _append(self) -> Appended:
        """Append the batch, under its address if it has one."""
        if self._address is None:
            return self._log.append(self._values)
        producer = import_producer(self._log.log_id)
        is_known = self._log.appender.last_written(producer) is not None
        flags = Flag.SPARSE if is_known else Flag.SPARSE | Flag.START
        raw = batch.encode(self._values, producer=producer, sequence=self._address + 1, flags=flags)
        (outcome,) = self._log.append_batches([raw])
        if isinstance(outcome, QuothError):
            raise outcome
        return outcome
