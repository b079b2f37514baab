"""`quoth log ls` and `quoth log dump`: read the files of a log, without a lock and without a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from quothcli.cli.command import command, group
from quothcli.cli.exit_status import CommandStatus
from quothcli.cli.options import After, Limit, Template, WithoutBroker, pointer_of
from quothcli.commands.files.logs import Directory, Only, damage_objects, readable, report
from quothcli.printing.output import Format, Printer
from quothcli.printing.template import template_of
from quothcli.printing.text import printable, time_or_dash

if TYPE_CHECKING:
    from quothlog.datadir.discovery import FoundLog
    from quothlog.recovery.verify import Summary


app = group()


@command(app, "ls", "quoth log ls /var/lib/quoth", "quoth log ls quoth-data --quick --format json")
def ls(
    session: WithoutBroker,
    directory: Directory,
    only: Only = None,
    quick: Annotated[
        bool, Option("--quick", help="Take the footers of sealed segments as they are, verify nothing.")
    ] = False,
) -> int:
    """List the segments of a log, verified.

    Every checksum is verified; what is damaged is reported on stderr and makes the exit status 1.
    """
    from quothlog.datadir.discovery import places
    from quothlog.recovery import verify

    printer = session.printer
    status = CommandStatus.DONE
    headings = [_HEADINGS] if printer.form is Format.TEXT else []
    for place in places(directory, only):
        with readable(place, directory) as statuses:
            for summary in verify.summaries(place.directory, log_id=place.log_id, quick=quick):
                while headings:
                    printer.line(headings.pop())
                _print(printer, place, summary)
                printer.flush()
                for damage in summary.unmended:
                    status = max(status, report(damage))
        status = max(status, *statuses)
    return status


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
    begin = pointer_of(after) or 0
    status = CommandStatus.DONE
    count = 0
    logs = places(directory, only)
    for place in logs:
        if count == limit:
            break
        with readable(place, directory) as statuses:
            for found in verify.records(place.directory, begin, log_id=place.log_id):
                if isinstance(found, Damage | Unfinished):
                    printer.flush()
                    status = max(status, report(found))
                    continue
                printer.message(Message(place.topic, *found), with_topic=len(logs) > 1)
                count += 1
                if count == limit:
                    break
        status = max(status, *statuses)
    return status


_HEADINGS = (
    f"{'SEGMENT':<21}  {'FIRST':<27}  {'LAST':<27}  {'RECORDS':>10}  {'BYTES':>11}  STATE   DAMAGED  TOPIC"
)


def _print(printer: Printer, place: FoundLog, found: Summary) -> None:
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
