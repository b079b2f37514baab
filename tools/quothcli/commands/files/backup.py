"""`quoth backup` and `quoth restore`: topics as of one time, without a broker or beside one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quoth.timestamps import as_pointer, now
from quothcli.cli.command import argument, command, group, option
from quothcli.cli.exit_status import say
from quothcli.cli.options import WithoutBroker
from quothcli.commands.files.logs import Findings, Rate, damage_objects, limit_of, print_done
from quothcli.printing.output import Printer
from quothcli.printing.progress import byte_progress
from quothcli.printing.text import bytes_text, printable, records_text, time_or_dash
from quothwire.errors import error

if TYPE_CHECKING:
    from quothd.datadir.backup import Outcome
    from quothlog.datadir.topic_folder import TopicFolder


_Topics = Annotated[list[str] | None, option("--topic TOPIC", "Only this topic; may be given several times.")]
_Until = Annotated[
    int | None,
    option("--until TIME", "As it was then: 2026-01-02T03:04:05Z, -15m, or a pointer.", parser=as_pointer),
]
_Data = Annotated[Path, argument("DATADIR", "A broker's data directory.")]
_Backup = Annotated[Path, argument("BACKUP", "The backup's folder.")]


app = group()


@command(
    app,
    "backup",
    "quoth backup /var/lib/quoth /mnt/backup/quoth --rate 20000000",
    "quoth backup quoth-data monday --topic orders --until 2026-01-05T00:00:00Z",
)
def backup(
    session: WithoutBroker,
    directory: _Data,
    to: _Backup,
    topics: _Topics = None,
    until: _Until = None,
    rate: Rate = None,
) -> int:
    """Copy topics, as they are now or were at a time, into a folder.

    Beside a running broker, which goes on meanwhile, or without one. All topics are copied as of the same
    time: a batch is in the backup if its first record is not younger. Another backup into the same folder
    copies what is new and replaces the last one when it is finished; topics that are left out this time, or
    are not there any more, stay as they were. Damaged records are copied as they are, reported on stderr, and
    make the exit status 1.
    """
    from quothd.datadir import backup as saving
    from quothlog.datadir.discovery import bytes_of_segments

    printer = session.printer
    begin = now() if until is None else until  # before the topics are listed
    if begin > now():
        raise error(
            "bad_pointer",
            f"{time_or_dash(begin)} is still to come",
            "leave --until away for all that is there",
        )
    folders = _folders(directory, topics or ())
    if to.resolve().is_relative_to(directory.resolve()):
        raise error("bad_request", f"{to} lies in {directory}", "a backup belongs on another disk")
    findings = Findings()
    size = sum(bytes_of_segments(folder.path) for folder in folders)
    with byte_progress("copying", size, limit_of(rate)) as advance:
        for outcome in saving.backup(folders, to, begin, advance, exact=until is not None):
            _print_outcome(printer, findings, outcome)
    say(f"quoth: {to} holds these topics as they were at {time_or_dash(begin)}")
    return findings.status


@command(
    app,
    "restore",
    "quoth restore /mnt/backup/quoth /var/lib/quoth",
    "quoth restore monday quoth-data --topic orders --until -1h --as orders-an-hour-ago",
)
def restore(
    session: WithoutBroker,
    source: _Backup,
    directory: _Data,
    topics: _Topics = None,
    until: _Until = None,
    rename: Annotated[str | None, option("--as TOPIC", "Another name for the one topic.")] = None,
) -> None:
    """Put topics of a backup into the data directory of a broker.

    The broker must not be running. Every checksum of the backup is verified first. A topic that exists is
    never overwritten, and each one appears whole or not at all. Pointers stay, so consumers go on with their
    cursors, and none that was assigned after the backup is assigned again.
    """
    from quothd.datadir import restore as restoring

    wanted = restoring.select(source, topics or (), until)
    if rename is not None and len(wanted) != 1:
        raise error("bad_request", f"--as is for one topic, these are {len(wanted)}", "name it with --topic")
    size = sum(one.bytes for one in wanted)
    with byte_progress("checking", size) as advance:
        restoring.check(source, wanted, advance)
    with byte_progress("restoring", size) as advance:
        for found in restoring.restore(source, wanted, directory, rename or "", until, advance):
            upto = f" up to {time_or_dash(found.last)}" if found.records else ""
            amount = {"records": found.records, "last": found.last}
            content = {"topic": found.name, "directory": str(found.path), **amount}
            text = f"{printable(found.name)}: {records_text(found.records)}{upto}"
            print_done(session.printer, text, content, found.name)


def _folders(directory: Path, names: Sequence[str]) -> list[TopicFolder]:
    """List the topics of a data directory. Raises `NotFound`, ``bad_request``, or FileNotFoundError."""
    from quothlog.datadir import topic_folder

    below = directory / "topics"
    if directory.is_dir() and not below.is_dir():
        raise error("bad_request", f"{directory} is no broker's data directory", "one has a folder `topics`")
    found = [
        folder for path in sorted(below.iterdir()) if path.is_dir() and (folder := topic_folder.at(path))
    ]
    missing = set(names) - {folder.topic.name for folder in found}
    if missing:
        text = f"{directory} holds no topic {', '.join(map(repr, sorted(missing)))}"
        raise error("unknown_topic", text, "`quoth log ls DIR` lists them")
    return [folder for folder in found if not names or folder.topic.name in names]


def _print_outcome(printer: Printer, findings: Findings, outcome: Outcome) -> None:
    from quothlog.datadir import topic_file

    name, saved, problem = outcome.folder.topic.name, outcome.saved, outcome.problem
    for damage in outcome.damages:
        findings.add(damage)
    if outcome.folder.problem:
        path = outcome.folder.path / topic_file.NAME
        findings.fail(f"damaged: {path}: {outcome.folder.problem}; once restored, the topic keeps everything")
    if problem is not None:
        findings.fail(f"{problem.code}: {name}: {problem.text}")
    elif saved is None:
        say(f"quoth: {name}: was deleted")
    if saved is None:
        return
    archive = saved.archive
    amounts = f"{records_text(archive.records)}, {bytes_text(archive.bytes)}"
    content = {
        "topic": name,
        "folder": saved.folder,
        "until": archive.until,
        "records": archive.records,
        "last": archive.last,
        "segments": len(archive.segments),
        "bytes": archive.bytes,
        "copied": outcome.copied,
        "damages": damage_objects(outcome.damages),
    }
    text = f"{printable(name)}: {amounts}, of which {bytes_text(outcome.copied)} are new"
    print_done(printer, text, content, name)
