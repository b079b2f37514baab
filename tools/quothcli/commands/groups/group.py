"""`quoth group`: lists, shows, makes, changes, moves, pauses and deletes consumer groups."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter

from quothcli.cli.command import argument, command, group, option
from quothcli.cli.exit_status import say
from quothcli.cli.options import GroupName, Topic, WithBroker, Yes, topic_names
from quothcli.cli.questions import confirm
from quothcli.commands.groups import dead
from quothcli.groups.settings import (
    GroupSettingsTyped,
    Start,
    parsed_settings,
    place_typed,
    settings_in_words,
)
from quothcli.printing.output import Format, Printer
from quothcli.printing.progress import progress
from quothcli.printing.table import print_table
from quothcli.printing.text import (
    counted,
    printable,
    records_text,
    span_text,
    time_or_dash,
)
from quothwire.errors import AuthError, NotFound, error

if TYPE_CHECKING:
    from quoth import Client, PendingRange
    from quothwire.protocol.group_messages import GroupInfo


_SomeTopic = Annotated[
    str | None, argument("TOPIC", "The topic's name; without it, all topics.", autocompletion=topic_names)
]
_HEADINGS = ("TOPIC", "GROUP", "MODE", "LAG", "BEHIND", "IN FLIGHT", "DEAD", "IDLE", "PROBLEM")
_RIGHT = {"LAG", "BEHIND", "IN FLIGHT", "DEAD", "IDLE"}
"""Columns of numbers."""
_NAMED_MAX = 5
"""Topics that a line of stderr names."""


app = group("Consumer groups: list, show, make, change, move, pause, delete.")
app.add_typer(dead.app, name="dead")


@command(app, "ls", "quoth group ls", "quoth group ls orders --format json | jq .lag")
def ls(session: WithBroker, topic: _SomeTopic = None) -> None:
    """List the groups of a topic, or of all topics: lag, dead letters.

    LAG is how many records are not finished, and BEHIND how long ago the oldest of them was published. IN
    FLIGHT are records under a lease, DEAD those that became dead letters. IDLE is the time since the last
    request. PROBLEM says that a group is paused, that its dead letters cannot be written, or that it was not
    used for longer than the broker's `group_idle`.
    """
    printer = session.printer
    with session.connect() as client, progress("looking at topics", counts=False) as advance:
        found = _groups(client, topic) if topic is not None else _described(client, client.topics(), advance)
        if printer.form is Format.TEXT:
            _print_table(printer, list(found), with_topic=topic is None)
        else:
            for name, info in found:
                printer.answer(info.group, _object(name, info))
    printer.flush()


@command(app, "info", "quoth group info orders billing")
def info(session: WithBroker, topic: Topic, name: GroupName) -> None:
    """Show everything about one group: members, lag, settings."""
    with session.connect() as client:
        found = client.group(topic, name, create=False)
        _print(session.printer, topic, found.info(), found.pending())


@command(
    app,
    "create",
    "quoth group create orders billing --lease 2m --max-attempts 3",
    "quoth group create orders audit --start -7d --backoff 1,5,30,5m --dead-letter audit.failed",
)
def create(
    session: WithBroker, topic: Topic, name: GroupName, settings: GroupSettingsTyped, start: Start = None
) -> None:
    """Make a group; a topic that does not exist is made, too.

    `quoth consume` and `Client.group` make a group by its first use. Made before, it has the settings that
    are given here for all of them.
    """
    wanted = parsed_settings(settings)
    with session.connect() as client:
        made = client.group(topic, name, start=start or "begin", **wanted)  # it checks the names first
        with suppress(NotFound):
            client.group(topic, name, create=False).info()
            raise error("group_exists", f"topic {topic!r} has a group {name!r}")
        _print(session.printer, topic, made.info(), [])


@command(app, "set", "quoth group set orders billing --lease 5m --max-in-flight 200")
def change(session: WithBroker, topic: Topic, name: GroupName, settings: GroupSettingsTyped) -> None:
    """Change settings of a group; those that are not given stay."""
    wanted = parsed_settings(settings)
    if not wanted:
        raise BadParameter("say what to change, like --lease 2m")
    with session.connect() as client:
        found = client.group(topic, name, create=False)
        _print(session.printer, topic, found.update(**wanted), found.pending())


@command(
    app,
    "seek",
    "quoth group seek orders billing --to -1h",
    "quoth group seek orders billing --to end",
    "quoth group seek orders billing --to 1767323045000001",
)
def seek(
    session: WithBroker,
    topic: Topic,
    name: GroupName,
    to: Annotated[
        Any,
        option(
            "--to WHERE",
            "begin, end, or a time or pointer as for --since: its record is the first one to come.",
            parser=place_typed,
        ),
    ],
) -> None:
    """Let a group go on at another place.

    All records from there on are handed out, again or for the first time, and those before count as finished.
    No lease is left: what members hold now has no effect when they acknowledge it. stderr tells the way back.
    """
    with session.connect() as client:
        found = client.group(topic, name, create=False)
        before = found.info()
        moved = found.seek(to)
        _print(session.printer, topic, moved, [])
    where = f"--to {before.after + 1}" if before.after else "--to begin"
    say(f"quoth: it was at {time_or_dash(before.after)}; `quoth group seek ... {where}` goes back")


@command(app, "pause", "quoth group pause orders billing")
def pause(session: WithBroker, topic: Topic, name: GroupName) -> None:
    """Hand out nothing of a group, until it is resumed.

    What members have goes on: they may acknowledge it, and their leases expire.
    """
    with session.connect() as client:
        found = client.group(topic, name, create=False)
        _print(session.printer, topic, found.pause(), found.pending())


@command(app, "resume", "quoth group resume orders billing")
def resume(session: WithBroker, topic: Topic, name: GroupName) -> None:
    """End the pause of a group."""
    with session.connect() as client:
        found = client.group(topic, name, create=False)
        _print(session.printer, topic, found.resume(), found.pending())


@command(app, "rm", "quoth group rm orders billing", "quoth group rm orders billing --yes")
def remove(session: WithBroker, topic: Topic, name: GroupName, yes: Yes = False) -> None:
    """Delete a group: where it is, its leases, its settings.

    The records of the topic and the dead letters stay. It asks first; without a terminal it needs --yes.
    """
    with session.connect() as client:
        found = client.group(topic, name, create=False)
        left = records_text(found.info().lag)
        about = f"group {printable(name)!r} of topic {printable(topic)!r}"
        confirm(f"Delete {about}, which has not finished {left}?", yes=yes)
        last = found.delete()
    text = f"deleted {about}, which had finished all up to {time_or_dash(last.after)}"
    session.printer.answer(text, _object(topic, last), last.group)


@command(app, "pending", "quoth group pending orders billing")
def pending(session: WithBroker, topic: Topic, name: GroupName) -> None:
    """List what a group has handed out and not finished.

    A line for each range of records: its first and last pointer, how often it was handed out, and the member
    that has its lease, with the time that is left; or when it is handed out again.
    """
    with session.connect() as client:
        ranges = client.group(topic, name, create=False).pending()
    for one in ranges:
        bounds = f"{one.first} {one.last}"
        content = {"topic": topic, "group": name, **one._asdict()}
        session.printer.answer(f"{bounds}  {_state_text(one)}", content, bounds)


# -- what is printed ----------------------------------------------------------------------------------------


def _described(client: Client, topics: Sequence[str], advance: Any) -> Iterator[tuple[str, GroupInfo]]:
    """Yield each group of all topics, but for what is deleted meanwhile or denied, and say what is denied."""
    denied: dict[str, AuthError] = {}
    for topic in topics:
        try:
            yield from _groups(client, topic)
        except NotFound:
            continue
        except AuthError as problem:
            if problem.code != "denied":
                raise
            denied[topic] = problem
        advance(1, 0)
    if denied and len(denied) == len(topics):
        raise denied[topics[0]]
    if denied:
        names = ", ".join([*list(denied)[:_NAMED_MAX], *(["..."] if len(denied) > _NAMED_MAX else [])])
        say(f"quoth: without {counted(len(denied), 'topic')} whose groups this client may not see: {names}")


def _groups(client: Client, topic: str) -> Iterator[tuple[str, GroupInfo]]:
    """Yield each group of a topic, but for those that are deleted meanwhile."""
    for one in client.groups(topic):
        with suppress(NotFound):
            yield topic, client.group(topic, one.group, create=False).info()


def _behind(info: GroupInfo) -> float:
    """Return the seconds since the oldest record that is not finished was published; 0 if there is none."""
    return max(0.0, time.time() - info.oldest / 1e6) if info.oldest else 0.0


def _object(topic: str, info: GroupInfo) -> dict[str, Any]:
    return {"topic": topic, **asdict(info), "lag_seconds": round(_behind(info), 6)}


def _print_table(printer: Printer, rows: Sequence[tuple[str, GroupInfo]], *, with_topic: bool) -> None:
    """Print a line for each group, below the headings; nothing if there is none."""
    skipped = 0 if with_topic else 1
    lines = [_columns(topic, info)[skipped:] for topic, info in rows]
    print_table(printer, _HEADINGS[skipped:], lines, _RIGHT)


def _columns(topic: str, info: GroupInfo) -> tuple[str, ...]:
    problems = [*(["paused"] if info.paused else []), *([info.problem] if info.problem else [])]
    return (
        printable(topic),
        printable(info.group),
        info.settings["mode"],
        f"{info.lag:,}",
        span_text(_behind(info)) if info.lag else "-",
        f"{info.in_flight:,}",
        f"{info.dead:,}",
        span_text(info.idle),
        printable(", ".join(problems)),
    )


def _print(printer: Printer, topic: str, info: GroupInfo, pending: Sequence[PendingRange]) -> None:
    """Print everything about a group."""
    if printer.form is Format.JSON:
        oldest = pending[0]._asdict() if pending else None
        printer.object({**_object(topic, info), "oldest_pending": oldest})
        return
    if printer.form is Format.RAW:
        printer.line(info.group)
        return
    rows = {
        "topic": printable(topic),
        "group": printable(info.group) + (", paused" if info.paused else ""),
        "finished": f"up to {info.after}  {time_or_dash(info.after)}",
        "handed out": f"up to {info.cursor}  {time_or_dash(info.cursor)}",
        "newest": f"{info.newest}  {time_or_dash(info.newest)}",
        "lag": _lag_text(info),
        "in flight": records_text(info.in_flight),
        "pending": _pending_text(info, pending),
        "counts": f"{info.redelivered:,} redelivered, {info.dead:,} dead, {info.gone:,} gone",
        "idle": span_text(info.idle),
        **settings_in_words(topic, info.group, info.settings),
        **({"problem": printable(info.problem)} if info.problem else {}),
    }
    width = max(map(len, rows)) + 2
    for name, value in rows.items():
        printer.line(f"{name:<{width}}{value}")
    for member in info.members:
        text = f"{records_text(member['in_flight'])} in flight, seen {span_text(member['idle'])} ago"
        printer.line(f"{'member':<{width}}{_member_text(member['name'])}: {text}")


def _lag_text(info: GroupInfo) -> str:
    if not info.lag:
        return "none"
    oldest = f"; the oldest is {info.oldest}  {time_or_dash(info.oldest)}" if info.oldest else ""
    return f"{records_text(info.lag)}, {span_text(_behind(info))}{oldest}"


def _pending_text(info: GroupInfo, pending: Sequence[PendingRange]) -> str:
    text = records_text(info.pending)
    if not pending:
        return text
    first = max(pending[0].first, info.oldest)  # after a crash the range begins in front of its first record
    return f"{text}; the oldest is {first}: {_state_text(pending[0])}"


def _state_text(one: PendingRange) -> str:
    attempts = counted(one.attempts, "attempt")
    if one.is_leased:
        return f"{attempts}, {_member_text(one.member)} has it for {span_text(one.seconds)}"
    return f"{attempts}, handed out again in {span_text(one.seconds)}" if one.seconds else f"{attempts}, free"


def _member_text(name: str) -> str:
    """Format the name of a member. Workers that speak the simple protocol have none."""
    return printable(name) or "a member without a name"
