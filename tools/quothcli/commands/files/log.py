"""`quoth log`: look at a log's files without a broker, or beside one; these lock and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quothcli.cli.command import command, group
from quothcli.cli.exit_status import Status
from quothcli.cli.options import After, Form, Limit, Template, moment
from quothcli.cli.session import chosen
from quothcli.commands.files import verify
from quothcli.commands.files.logs import Directory, Only, readable, report
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer, moment_text, printable
from quothcli.printing.template import chosen_template

if TYPE_CHECKING:
    from quothlog.datadir.discovery import FoundLog
    from quothlog.recovery.verify import Summary


def add(app: typer.Typer) -> None:
    """Put `log` and its commands into the command."""
    log = group("Look at a log's files, with or without a broker; repair them.")
    app.add_typer(log, name="log")
    command(log, "ls", "quoth log ls /var/lib/quoth", "quoth log ls quoth-data --quick --format json")(ls)
    command(
        log,
        "dump",
        "quoth log dump quoth-data --topic orders --format json",
        "quoth log dump device/readings --after 1767323045000001 --limit 10",
        "quoth log dump quoth-data --template '{topic} {pointer} {value}'",
    )(dump)
    verify.add(log)


def ls(
    context: typer.Context,
    directory: Directory,
    only: Only = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Believe what sealed segments say of themselves, verify nothing.")
    ] = False,
    form: Form = None,
) -> int:
    """List the segments of a log, verified.

    Every checksum is verified; what is damaged is reported on stderr and makes the exit status 1.
    """
    from quothlog.datadir.discovery import places
    from quothlog.recovery import verify

    printer = Printer(chosen(context, form=form).format)
    status = Status.DONE
    headings = [_HEADINGS] if printer.form is Format.TEXT else []
    for place in places(directory, only):
        with readable(place, directory) as trouble:
            for summary in verify.summaries(place.directory, log_id=place.log_id, quick=quick):
                while headings:
                    printer.line(headings.pop())
                _print(printer, place, summary)
                printer.flush()
                for damage in summary.unmended:
                    status = max(status, report(damage))
        status = max(status, *trouble)
    return status


def dump(
    context: typer.Context,
    directory: Directory,
    only: Only = None,
    after: After = None,
    limit: Limit = None,
    form: Form = None,
    template: Template = None,
) -> int:
    """Print the records of a log.

    What is damaged is reported on stderr, stepped over, and makes the exit status 1.
    """
    from quoth import Message
    from quothlog.datadir.discovery import places
    from quothlog.recovery import verify
    from quothlog.recovery.verify import Damage, Unfinished

    asked = chosen(context, form=form)
    printer = Printer(asked.format, chosen_template(template, asked.form))
    begin = moment(after) or 0
    status = Status.DONE
    count = 0
    logs = places(directory, only)
    for place in logs:
        if count == limit:
            break
        with readable(place, directory) as trouble:
            for found in verify.records(place.directory, begin, log_id=place.log_id):
                if isinstance(found, Damage | Unfinished):
                    printer.flush()
                    status = max(status, report(found))
                    continue
                printer.message(Message(place.topic, *found), with_topic=len(logs) > 1)
                count += 1
                if count == limit:
                    break
        status = max(status, *trouble)
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
        "first_time": moment_text(found.first),
        "last": found.last,
        "last_time": moment_text(found.last),
        "records": found.records,
        "bytes": found.bytes,
        "state": state,
        "unfinished_bytes": found.unfinished,
        "damages": [damage._asdict() | {"path": str(damage.path)} for damage in found.damages],
    }
    damaged = str(lost) if lost else "missing" if found.damages else "-"
    text = (
        f"{found.path.name:<21}  {moment_text(found.first):<27}  {moment_text(found.last):<27}  "
        f"{found.records:>10}  {found.bytes:>11}  {state}  {damaged:>7}  {printable(place.topic)}"
    )
    printer.answer(text, content, str(found.path))
