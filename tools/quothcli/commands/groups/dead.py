"""`quoth group dead`: lists, prints, retries and drops the dead letters of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from typer import BadParameter

from quoth.timestamps import as_pointer
from quothcli.cli.command import argument, command, group, option
from quothcli.cli.exit_status import say
from quothcli.cli.options import GroupName, Limit, Template, Topic, WithBroker
from quothcli.cli.session import Session
from quothcli.printing.output import Format, Printer, headers_texts
from quothcli.printing.progress import progress
from quothcli.printing.record_printer import GapReporter
from quothcli.printing.template import template_of
from quothcli.printing.text import bytes_text, counted, printable, shown
from quothwire.pointer import time_text

if TYPE_CHECKING:
    from quoth.groups.letters.dead_letters import StoredLetter
    from quothcli.groups.letters import LetterBox


_Pointers = Annotated[
    list[int] | None,
    argument("POINTER", "The pointers of letters, as `ls` prints them first.", parser=as_pointer),
]
_All = Annotated[bool, option("--all", "All letters that are neither retried nor dropped.")]
_DROPPED = 1_000
"""Letters that are dropped at once."""


app = group("Dead letters of a group: list, show, retry, drop.")


@command(
    app,
    "ls",
    "quoth group dead ls orders billing",
    "quoth group dead ls orders billing --format json | jq -r .reason | sort | uniq -c",
)
def ls(session: WithBroker, topic: Topic, name: GroupName, limit: Limit = None) -> int:
    """List the dead letters that are neither retried nor dropped.

    A line has the pointer of the letter, its time, the pointer of its record, how often that was handed out,
    and the reason of the last time.
    """
    gaps = GapReporter()
    printer = session.printer
    with _box(session, topic, name, gaps) as box:
        for letter in islice(box.unhandled(), limit):
            reason = printable(letter.reason)
            attempts = counted(letter.attempts, "attempt")
            text = f"{letter.pointer}\t{time_text(letter.pointer)}\t{letter.original}\t{attempts}\t{reason}"
            printer.answer(text, _object(box, letter), letter.pointer)
    return gaps.status


@command(
    app,
    "show",
    "quoth group dead show orders billing 1767323045000001",
    "quoth group dead show orders billing 1767323045000001 --format raw > record",
)
def show(
    session: WithBroker,
    topic: Topic,
    name: GroupName,
    pointer: Annotated[int, argument("POINTER", "The pointer of the letter.", parser=as_pointer)],
    template: Template = None,
) -> None:
    """Print one dead letter whole: where it comes from, its record.

    --format json prints it as `quoth get` does, with its headers quoth-topic, quoth-pointer and so on.
    """
    printer = Printer(session.format, template_of(template, session.form))
    with _box(session, topic, name, GapReporter()) as box:
        letter = box.letter(pointer)
        if template is None and printer.form is Format.TEXT:
            _print(printer, box, letter)
        else:
            printer.message(letter.message)


@command(
    app,
    "retry",
    "quoth group dead retry orders billing 1767323045000001",
    "quoth group dead retry orders billing --all",
)
def retry(
    session: WithBroker, topic: Topic, name: GroupName, pointers: _Pointers = None, every: _All = False
) -> int:
    """Publish the records of dead letters again, each once.

    The record comes at the end of its topic, for all its groups, with its value, key and headers. Then `ls`
    does not show its letter any more. If the command is killed in between, do it again within a week: what
    was published is recognised, and stored once. So are letters that two commands retry at a time.

    A log deletes no single record, so the letter stays in its topic. The group `quoth-handled` of that topic
    acknowledges it; `quoth group seek` moves that back to see letters again that are done. One that is
    retried then is stored again, unless it is among the last 64.
    """
    from quoth.groups.letters.letter_retry import CHUNK
    from quothcli.groups.letters import Redelivery

    gaps = GapReporter()
    with _box(session, topic, name, gaps) as box, progress("retrying", counts=True) as advance:
        chosen, handled = _selected(box, pointers, every=every)
        letters = Redelivery(box)
        for part in _reported(chosen, CHUNK, letters.retry, "retried"):
            advance(len(part), sum(len(one.message.value) for one in part))
    counts = letters.counts
    handled += counts.handled
    text = _done_text("retried", counts.retried, box, handled)
    if counts.duplicates:
        text += f"; {counted(counts.duplicates, 'record')} of them had been published by an earlier retry"
    content = {"topic": topic, "group": name, "letters": box.letters, **asdict(counts) | {"handled": handled}}
    session.printer.answer(text, content, counts.retried)
    return gaps.status


@command(
    app,
    "drop",
    "quoth group dead drop orders billing 1767323045000001",
    "quoth group dead drop orders billing --all",
)
def drop(
    session: WithBroker, topic: Topic, name: GroupName, pointers: _Pointers = None, every: _All = False
) -> int:
    """Let `ls` not show dead letters any more, without a retry.

    The letters stay in their topic until its retention removes them: the group `quoth-handled` of that topic
    acknowledges them, see `quoth group dead retry`. With `--retention until_acked` that topic removes what is
    retried or dropped.
    """
    gaps = GapReporter()
    dropped = 0
    with _box(session, topic, name, gaps) as box, progress("dropping", counts=True) as advance:
        chosen, handled = _selected(box, pointers, every=every)
        for part in _reported(chosen, _DROPPED, box.finish, "dropped"):
            dropped += len(part)
            advance(len(part), 0)
    text = _done_text("dropped", dropped, box, handled)
    content = {"topic": topic, "group": name, "letters": box.letters, "dropped": dropped, "handled": handled}
    session.printer.answer(text, content, dropped)
    return gaps.status


# -- which letters ------------------------------------------------------------------------------------------


@contextmanager
def _box(session: Session, topic: str, name: str, gaps: GapReporter) -> Iterator[LetterBox]:
    from quothcli.groups.letters import LetterBox

    with session.connect() as client:
        yield LetterBox(client, topic, name, gaps)


def _selected(
    box: LetterBox, pointers: list[int] | None, *, every: bool
) -> tuple[Iterable[StoredLetter], int]:
    """Return the letters that were typed and are left, in their order, and how many of them are not left.

    Raises `BadParameter` unless either pointers or --all are typed, `NotFound` for one that is no letter.
    """
    if every == bool(pointers):
        raise BadParameter("give the POINTERs of letters, or --all")
    if every:
        return box.unhandled(), 0
    letters = [box.letter(pointer) for pointer in sorted(set(pointers or ()))]
    left = box.left()
    chosen = [one for one in letters if left.has(one.pointer)]
    return chosen, len(letters) - len(chosen)


def _reported(
    letters: Iterable[StoredLetter], size: int, work: Callable[[list[StoredLetter]], None], done: str
) -> Iterator[list[StoredLetter]]:
    """Execute work for some letters at a time, and yield them. An error reports how many are done."""
    count = 0
    rows = iter(letters)
    try:
        while part := list(islice(rows, size)):
            work(part)
            count += len(part)
            yield part
    except (Exception, KeyboardInterrupt):
        say(f"quoth: {done} {counted(count, 'letter')}, and perhaps some more")
        raise


# -- what is printed ----------------------------------------------------------------------------------------


def _done_text(done: str, count: int, box: LetterBox, handled: int) -> str:
    text = f"{done} {counted(count, 'letter')} of {printable(box.letters)}"
    return text + (f"; {counted(handled, 'other')} had been retried or dropped before" if handled else "")


def _object(box: LetterBox, letter: StoredLetter) -> dict[str, object]:
    return {
        "letters": box.letters,
        "pointer": letter.pointer,
        "time": time_text(letter.pointer),
        "topic": box.topic,
        "group": box.group,
        "original": letter.original,
        "attempts": letter.attempts,
        "member": letter.member,
        "reason": letter.reason,
        "bytes": len(letter.message.value),
    }


def _print(printer: Printer, box: LetterBox, letter: StoredLetter) -> None:
    message = letter.message._replace(headers=letter.headers)
    rows = {
        "letter": f"{letter.pointer}  {time_text(letter.pointer)}, in {printable(box.letters)}",
        "record": f"{letter.original}  {time_text(letter.original)}, in {printable(box.topic)}",
        "group": printable(box.group),
        "attempts": f"{letter.attempts}, the last one by {printable(letter.member) or 'an unknown member'}",
        "reason": printable(letter.reason),
        **({"key": shown(message.key)} if message.key is not None else {}),
        **({"headers": "\t".join(headers_texts(message))} if letter.headers else {}),
        "value": f"{bytes_text(len(message.value))}, {shown(message.value)}",
    }
    width = max(map(len, rows)) + 2
    for row, value in rows.items():
        printer.line(f"{row:<{width}}{value}")
