"""`quoth log`: list, print, verify and repair the files of a log, with or without a broker; import others.

All but a repair and an import lock and change nothing, so they may run beside a broker. A repair takes the
lock of the directory, an import makes a new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quothcli.cli.command import command, group, option
from quothcli.cli.exit_status import say
from quothcli.cli.options import After, Limit, Template, WithoutBroker
from quothcli.commands.files import log_export, log_import
from quothcli.commands.files.logs import (
    REBUILT,
    Directory,
    Findings,
    Only,
    Rate,
    damage_objects,
    limit_of,
    missing_text,
    print_done,
)
from quothcli.printing.output import Format, Printer
from quothcli.printing.progress import byte_progress
from quothcli.printing.template import template_of
from quothcli.printing.text import bytes_text, counted, printable, records_text, time_or_dash
from quothwire.errors import error

if TYPE_CHECKING:
    from quothlog.datadir.discovery import FoundLog
    from quothlog.recovery.repair import Mended
    from quothlog.recovery.verify import Summary


_NAMES_MAX = 3
_HEADINGS = (
    f"{'SEGMENT':<21}  {'FIRST':<27}  {'LAST':<27}  {'RECORDS':>10}  {'BYTES':>11}  STATE   DAMAGED  TOPIC"
)


app = group("Look at a log's files, repair, import and export them.")


@command(app, "ls", "quoth log ls /var/lib/quoth", "quoth log ls quoth-data --quick --format json")
def ls(
    session: WithoutBroker,
    directory: Directory,
    only: Only = None,
    quick: Annotated[
        bool, option("--quick", "Take the footers of sealed segments as they are, verify nothing.")
    ] = False,
) -> int:
    """List the segments of a log, verified.

    Every checksum is verified; what is damaged is reported on stderr and makes the exit status 1.
    """
    from quothlog.datadir.discovery import places
    from quothlog.recovery import verify

    printer = session.printer
    findings = Findings()
    headings = [_HEADINGS] if printer.form is Format.TEXT else []
    for place in places(directory, only):
        with findings.of(place, directory):
            for summary in verify.summaries(place.directory, log_id=place.log_id, quick=quick):
                while headings:
                    printer.line(headings.pop())
                _print_segment(printer, place, summary)
                for damage in summary.unmended:
                    findings.add(damage)
    return findings.status


@command(
    app,
    "dump",
    "quoth log dump quoth-data --topic orders --format json",
    "quoth log dump device/readings --after 1767323045000001 --limit 10",
    "quoth log dump quoth-data --template '{topic} {pointer} {value}'",
)
def dump(
    session: WithoutBroker,
    directory: Directory,
    only: Only = None,
    after: After = None,
    limit: Limit = None,
    template: Template = None,
) -> int:
    """Print the records of a log.

    What is damaged is reported on stderr, stepped over, and makes the exit status 1.
    """
    from quoth import Message
    from quothlog.datadir.discovery import places
    from quothlog.recovery import verify
    from quothlog.recovery.verify import Damage, Unfinished

    printer = Printer(session.format, template_of(template, session.form))
    findings = Findings()
    count = 0
    logs = places(directory, only)
    for place in logs:
        if count == limit:
            break
        with findings.of(place, directory):
            for found in verify.records(place.directory, after or 0, log_id=place.log_id):
                if isinstance(found, Damage | Unfinished):
                    printer.flush()
                    findings.add(found)
                    continue
                printer.message(Message(place.topic, *found), with_topic=len(logs) > 1)
                count += 1
                if count == limit:
                    break
    return findings.status


@command(app, "verify", "quoth log verify /var/lib/quoth", "quoth log verify quoth-data --rate 20000000")
def verify(session: WithoutBroker, directory: Directory, only: Only = None, rate: Rate = None) -> int:
    """Read every byte of a log and verify every checksum.

    It prints a line for each log. Damage is reported on stderr, with the records that are missing, and makes
    the exit status 1. Records that a repair removed are reported, too, but do not count as damage. Neither
    does a footer or an index that a crash left unfinished: no record is missing, and the next opening writes
    it again.
    """
    from quothlog.datadir.discovery import places, with_groups

    findings = Findings()
    logs = [*with_groups(places(directory, only))]
    with byte_progress("verifying", _bytes_of(logs), limit_of(rate)) as advance:
        for place in logs:
            with findings.of(place, directory):
                _verify(session.printer, findings, place, advance)
    return findings.status


@command(app, "repair", "quoth log repair /var/lib/quoth", "quoth log repair device/readings")
def mend(session: WithoutBroker, directory: Directory, only: Only = None) -> int:
    """Rewrite damaged segments without what is damaged.

    Nothing is destroyed: a segment that is rewritten is kept beside it as it was, under a name that ends in
    .damaged, a torn end under one in .torn. Delete them when you need them no more. Records that cannot be
    read stay missing. The broker must not be running.
    """
    from quothlog.datadir.discovery import places, with_groups

    findings = Findings()
    logs = [*with_groups(places(directory, only))]
    with _owned(directory), byte_progress("repairing", _bytes_of(logs)) as advance:
        for place in logs:
            mended = 0
            with findings.of(place, directory):
                for one in _repaired(place, advance):
                    mended += 1
                    _print_mended(session.printer, findings, place, one)
                if not mended:
                    say(f"quoth: {place.topic}: nothing to repair")
            _check_settings(findings, place)
    return findings.status


command(
    app,
    "import",
    "quoth log import /var/lib/poe /var/lib/quoth",
    "quoth log import /var/lib/poe quoth-data --topic orders --topic events",
    "quoth log import device/appendix device/readings --format appendix",
    "quoth log import /var/spool/queuefka/topic device/readings",
)(log_import.import_log)
command(
    app,
    "export",
    "quoth log export device/readings slabs --format slab",
    "quoth log export /var/lib/quoth slabs --format slab --topic orders --slab-bytes 16MiB",
)(log_export.export_log)


def _print_segment(printer: Printer, place: FoundLog, found: Summary) -> None:
    state = "sealed" if found.sealed else "active"
    lost = sum(max(damage.end - damage.start, 0) for damage in found.damages)
    content = {
        "topic": place.topic,
        "segment": str(found.path),
        "floor": found.floor,
        "first": found.first,
        "first_time": time_or_dash(found.first),
        "last": found.last,
        "last_time": time_or_dash(found.last),
        "records": found.records,
        "bytes": found.bytes,
        "state": state,
        "unfinished_bytes": found.unfinished,
        "damages": damage_objects(found.damages),
    }
    damaged = str(lost) if lost else "missing" if found.damages else "-"
    text = (
        f"{found.path.name:<21}  {time_or_dash(found.first):<27}  {time_or_dash(found.last):<27}  "
        f"{found.records:>10}  {found.bytes:>11}  {state}  {damaged:>7}  {printable(place.topic)}"
    )
    printer.answer(text, content, str(found.path))


def _repaired(place: FoundLog, advance: Callable[[int], None]) -> Iterator[Mended]:
    """Repair one log. Raises `QuothError`, also if its disk fails, or FileNotFoundError."""
    from quothlog.datadir import topic_file
    from quothlog.recovery.repair import repair

    others = topic_file.OTHERS if place.log_id else ()
    try:
        yield from repair(place.directory, log_id=place.log_id, others=others, advance=advance)
    except FileNotFoundError:
        raise
    except OSError as problem:
        where = f"{os.fsdecode(problem.filename)}: " if problem.filename else ""
        raise error("storage_failed", f"{where}{problem.strerror}") from problem


def _bytes_of(logs: list[FoundLog]) -> int:
    """Count the bytes to read."""
    from quothlog.datadir.discovery import bytes_of_segments

    return sum(bytes_of_segments(place.directory) for place in logs)


@contextmanager
def _owned(directory: Path) -> Iterator[None]:
    """Lock a data directory meanwhile. Raises `Conflict` ``locked`` beside a broker."""
    from quothlog.datadir.discovery import data_directory
    from quothlog.storage.dirlock import DirectoryLock

    root = data_directory(directory)
    lock = DirectoryLock(root) if root is not None else None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _verify(printer: Printer, findings: Findings, place: FoundLog, advance: Callable[[int], None]) -> None:
    """Verify one log and print the result."""
    from quothlog import file_format
    from quothlog.recovery import snapshot
    from quothlog.recovery import verify as inspection
    from quothlog.recovery.verify import Unfinished

    _check_settings(findings, place)
    found: list[Summary] = []
    for one in inspection.summaries(place.directory, log_id=place.log_id, advance=advance):
        found.append(one)
        for damage in one.damages:
            if damage.closed and not damage.is_derived:
                say(f"quoth: {damage.path}: gone for good: {missing_text(damage)}")
            else:
                findings.add(damage)
        if one.unfinished:
            findings.add(Unfinished(one.path, one.bytes - one.unfinished, one.bytes))
    unindexed = sum(one.sealed and not one.indexed for one in found)
    if derived := sum(one.derived for one in found):
        parts = "1 derived part is" if derived == 1 else f"{derived:,} derived parts are"
        without = f", {counted(unindexed, 'segment')} without an index" if unindexed else ""
        say(f"quoth: {place.topic}: {parts} to be rebuilt{without}; no record is missing there; {REBUILT}")
    false_segments = snapshot.false_segments_in(place.directory, place.log_id)
    for name in false_segments:
        say(f"quoth: {place.topic}: {name} is no segment of this log: the next opening quarantines it")
    quarantined = [path for path in place.directory.iterdir() if file_format.is_quarantined(path.name)]
    if quarantined:
        size = bytes_text(sum(path.stat().st_size for path in quarantined))
        names = ", ".join(sorted(path.name for path in quarantined)[:_NAMES_MAX])
        names += ", ..." * (len(quarantined) > _NAMES_MAX)
        say(f"quoth: {place.topic}: {size} quarantined in {names}: delete it if it is not needed")
    others = {"strays": false_segments, "set_aside": [str(path) for path in quarantined]}
    _print_verified(printer, place, found, {"derived": derived, "unindexed": unindexed, **others})


def _check_settings(findings: Findings, place: FoundLog) -> None:
    from quothlog.datadir import topic_file

    if place.problem:
        findings.fail(
            f"damaged: {place.directory / topic_file.NAME}: {place.problem}; nothing is removed from this "
            "topic until `quoth topic set` writes its settings again"
        )


def _print_verified(
    printer: Printer, place: FoundLog, found: list[Summary], more: Mapping[str, object]
) -> None:
    """Print the totals of one log. more: members of its object."""
    records, size = sum(one.records for one in found), sum(one.bytes for one in found)
    damages = [damage for one in found for damage in one.damages]
    unmended = sum(len(one.unmended) for one in found)
    missing = sum(max(0, damage.records) for damage in damages)
    words = f"{unmended} damaged" if unmended else "whole"
    gone = f", {records_text(missing)} missing" if missing else ""
    amounts = f"{counted(len(found), 'segment')}, {records_text(records)}, {bytes_text(size)}"
    content = {
        "topic": place.topic,
        "directory": str(place.directory),
        "segments": len(found),
        "records": records,
        "bytes": size,
        "whole": not unmended,
        "missing": missing,
        "damages": damage_objects(damages),
        **more,
        "settings": place.problem,
    }
    printer.answer(f"{printable(place.topic)}: {amounts}: {words}{gone}", content, place.topic)


def _print_mended(printer: Printer, findings: Findings, place: FoundLog, one: Mended) -> None:
    if one.problem:
        findings.fail(f"{one.path}: {one.problem}; it is as it was")
        return
    done = f"{one.bytes:,} bytes were no batches, kept in {one.kept.name}" if one.kept else "index rebuilt"
    kept = str(one.kept) if one.kept else None
    content = {"topic": place.topic, "segment": str(one.path), "kept": kept, "bytes": one.bytes}
    print_done(printer, f"{printable(place.topic)}: {one.path.name}: {done}", content, str(one.path))
