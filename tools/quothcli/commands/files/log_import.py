"""`quoth log import`: a log, or a data directory with all its topics, out of the files of another program."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quothcli.cli.command import argument, option
from quothcli.cli.exit_status import say
from quothcli.commands.files.logs import Findings, Printing, print_done
from quothcli.printing.output import Printer
from quothcli.printing.progress import byte_progress
from quothcli.printing.text import bytes_text, printable, records_text, time_or_dash

if TYPE_CHECKING:
    from quothlog.importing.import_report import ImportReport
    from quothlog.importing.importer import Importer
    from quothlog.importing.source import ImportFinding


class SourceFormat(StrEnum):
    """A format that can be imported, as it is typed. The help is shown without loading `quothlog`."""

    APPENDIX = "appendix"
    POE = "poe"
    SLAB = "slab"


def import_log(
    session: Printing,
    source: Annotated[
        Path, argument("SOURCE", "Poe's data directory, or the directory of a log or of slabs.")
    ],
    target: Annotated[Path, argument("TARGET", "A new directory for the result, or an empty one.")],
    source_format: Annotated[
        SourceFormat | None,
        option("--format", "The format of the source (default: the one that its file names show)."),
    ] = None,
    topics: Annotated[
        list[str] | None, option("--topic TOPIC", "Only this topic; may be given several times.")
    ] = None,
) -> int:
    """Make logs of the files of appendix, Poe or queuefka.

    The program that writes them has to be stopped. A directory with PREFIX_data files or slabs becomes a log,
    a data directory of Poe one for a broker, topic by topic. Records keep their values, their order and their
    pointers, as far as those rise; slabs have none, and get the time of their last change. Everything that
    had to be changed or left out is reported on stderr; damage makes the exit status 1, an unfinished write
    at the end of the newest file does not. The source stays as it is.

    The result is built in TARGET.importing and gets its name at the end. An import that was interrupted, by
    Ctrl-C, an error or a kill, goes on when the same command is run again.

    `quoth --format json log import ...` prints an object for each log.
    """
    from quothlog.importing.formats import open_source
    from quothlog.importing.importer import KEPT, Importer
    from quothlog.importing.work_folder import is_begun

    importer = Importer(partial(open_source, source, source_format), target, topics or ())
    findings = Findings()
    for finding in importer.findings:
        _print_finding(findings, finding, "")
    try:
        _run(session.printer, importer, findings)
    except (KeyboardInterrupt, OSError) as problem:
        if is_begun(target):
            say(f"quoth: {'interrupted' if isinstance(problem, KeyboardInterrupt) else 'ended'}: {KEPT}")
        raise
    return findings.status


def _run(printer: Printer, importer: Importer, findings: Findings) -> None:
    """Import, and print the report of each log. Raises as `Importer.run` does."""
    with byte_progress("importing", importer.bytes) as advance:
        for report in importer.run(advance):
            for finding in report.findings:
                _print_finding(findings, finding, report.topic)
            _print_report(printer, report, importer.target)


def _print_finding(findings: Findings, finding: ImportFinding, topic: str) -> None:
    where = f"{topic}: " if topic else ""
    if finding.is_damage:
        findings.fail(f"damaged: {where}{finding.text}")
    else:
        say(f"quoth: {where}{finding.text}")


def _print_report(printer: Printer, report: ImportReport, target: Path) -> None:
    name = report.topic or target.name
    upto = f", {time_or_dash(report.first)} to {time_or_dash(report.last)}" if report.records else ""
    changed = f", {report.changed:,} with another pointer" if report.changed else ""
    damaged = ", damaged" if report.is_damaged else ""
    content = {
        "topic": report.topic,
        "original": report.original,
        "directory": str(target),
        "records": report.records,
        "bytes": report.bytes,
        "first": report.first,
        "last": report.last,
        "changed": report.changed,
        "whole": not report.is_damaged,
        "findings": [{"text": one.text, "damage": one.is_damage} for one in report.findings],
    }
    amounts = f"{records_text(report.records)}, {bytes_text(report.bytes)}"
    print_done(printer, f"{printable(name)}: {amounts}{upto}{changed}{damaged}", content, name)
