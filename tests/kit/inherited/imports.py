"""Imports into a target, and the logs that they leave."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

from kit.disk.doubles import FaultyDisk
from quothlog import Log
from quothlog.datadir import discovery, topic_file
from quothlog.importing.formats import open_source
from quothlog.importing.import_report import ImportReport
from quothlog.importing.importer import Importer
from quothlog.recovery import verify
from quothlog.recovery.snapshot import DISK
from quothlog.storage.filesystem import FileSystem
from quothwire.record import Record

ImportedLogs = dict[str, tuple[list[tuple[int, bytes]], int]]
"""By topic: pointers and values of all records, and the ordinal behind the last one."""


def unwatched(_size: int) -> None:
    """Take in the progress of an import."""


def import_into(
    target: Path,
    source: Path,
    *topics: str,
    filesystem: FileSystem = DISK,
    advance: Callable[[int], None] = unwatched,
) -> list[ImportReport]:
    """Import a source; returns the reports."""
    return list(Importer(partial(open_source, source), target, topics, filesystem).run(advance))


def import_first(target: Path, source: Path, number: int, *topics: str) -> list[ImportReport]:
    """Import so many logs, and end behind the last of them; returns their reports."""
    return list(islice(Importer(partial(open_source, source), target, topics).run(unwatched), number))


def imported(target: Path) -> ImportedLogs:
    """The logs of a result, each verified: every byte checks, nothing is unfinished or unknown."""
    found: ImportedLogs = {}
    for place in discovery.places(target):
        records = list(verify.records(place.directory, log_id=place.log_id))
        assert all(isinstance(one, Record) for one in records), records
        others = topic_file.OTHERS if place.log_id else ()
        unsynced = FaultyDisk(syncs=False)
        with Log.open(place.directory, log_id=place.log_id, others=others, filesystem=unsynced) as log:
            assert log.findings.counters() == dict.fromkeys(log.findings.counters(), 0)
            assert log.findings.gauges() == dict.fromkeys(log.findings.gauges(), 0)
            rows = [(one.pointer, one.value) for one in log.read()]
            assert (len(rows), log.first_ordinal) == (len(records), 0)
            found[place.topic] = rows, log.end_ordinal
    return found


def only_log(target: Path) -> list[tuple[int, bytes]]:
    """The records of a result that is one log."""
    ((rows, _),) = imported(target).values()
    return rows
