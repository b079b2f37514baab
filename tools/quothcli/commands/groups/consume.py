"""`quoth consume`: a member of a consumer group that prints records, or runs a command for them."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from typer import BadParameter

from quothcli.cli.command import command, group, option
from quothcli.cli.exit_status import CommandStatus, say, terminable
from quothcli.cli.options import Limit, Pointers, Template, Topic, Wait, WithBroker, group_names
from quothcli.cli.session import Session
from quothcli.groups.settings import GroupSettingsTyped, Start, parsed_settings
from quothcli.printing.output import Format, Printer
from quothcli.printing.record_printer import GapReporter, end_with_reader
from quothcli.printing.rows import line_of
from quothcli.printing.template import template_of
from quothcli.printing.text import time_or_dash
from quothwire.errors import NotFound
from quothwire.text.suggestion import nearest

if TYPE_CHECKING:
    from quoth import Client


CONCURRENCY_MAX = 1_000
BATCH_MAX = 10_000

_Group = Annotated[
    str,
    option(
        "--group -g GROUP",
        "The group. The first use makes it, with the settings that are given.",
        autocompletion=group_names,
    ),
]
_Exec = Annotated[
    str | None,
    option(
        "--exec CMD",
        "Run this line of the shell for each record, with the value on its stdin. Status 0 acknowledges the "
        "record, 65 makes a dead letter of it, any other one gives it back.",
    ),
]
_Batch = Annotated[
    int | None,
    option(
        "--batch N",
        "Take up to N records at once, as lines of JSON: for the stdin of --exec, whose status is about all "
        "of them, or for stdout.",
        min=1,
        max=BATCH_MAX,
    ),
]
_Concurrency = Annotated[
    int,
    option("--concurrency N", "Run up to N commands at once.", min=1, max=CONCURRENCY_MAX),
]
_UntilEmpty = Annotated[
    bool,
    option(
        "--until-empty",
        "End when there is nothing to hand out: what others have, or what waits for its backoff, is left.",
    ),
]
_Member = Annotated[
    str | None,
    option("--member NAME", "The name that `quoth group info` shows (default: user@host:pid-number)."),
]


app = group()


@command(
    app,
    "consume",
    "quoth consume orders --group billing",
    "quoth consume orders --group billing --until-empty --format json | jq .value",
    "quoth consume orders --group billing --exec './bill \"$QUOTH_KEY\"' --concurrency 4",
    "quoth consume orders --group index --batch 500 --exec './index-lines' --lease 5m",
)
def consume(
    session: WithBroker,
    settings: GroupSettingsTyped,
    topic: Topic,
    name: _Group,
    line: _Exec = None,
    batch: _Batch = None,
    concurrency: _Concurrency = 1,
    limit: Limit = None,
    until_empty: _UntilEmpty = False,
    member: _Member = None,
    start: Start = None,
    wait: Wait = True,
    pointers: Pointers = False,
    template: Template = None,
) -> int:
    """Print or handle the records of a group, until Ctrl-C.

    Each record of the topic goes to one member of the group: start this command as often as you like. A
    record is acknowledged once it was printed, or once its command has ended with status 0. What is not
    acknowledged, because a member dies, is handed out again after its lease.

    A command finds QUOTH_TOPIC, QUOTH_GROUP, QUOTH_POINTER, QUOTH_ATTEMPTS, QUOTH_KEY and, for each header,
    QUOTH_HEADER_NAME in its environment, and TRACEPARENT, TRACESTATE and BAGGAGE if the record belongs to a
    trace; with --batch QUOTH_TOPIC, QUOTH_GROUP and QUOTH_RECORDS, their number. A `quoth` in it asks the
    same broker, with the same key. The lease is extended while it runs. If it cannot be started, status 126
    or 127, the record is released and this command ends.

    Ctrl-C and SIGTERM let it finish what it is at, unless the reader of its output takes nothing; a second
    signal ends the commands, too. The end of that reader ends it, and what is not printed is released. The
    exit status is 1 if a command has failed.
    """
    from quothcli.groups.consuming import Consumption
    from quothcli.groups.execution import ShellCommand
    from quothcli.groups.stopping import StopRequest
    from quothwire.protocol.group_settings import CURSOR

    printer = _printer(session, line, batch, concurrency, template)
    wanted = parsed_settings(settings)
    if wanted.get("mode") == CURSOR:
        raise BadParameter("a cursor has no members, see `quoth group create`", param_hint="--mode")
    is_plain = session.form is not None or template is not None or batch is not None
    shown = line_of(printer, in_columns=not is_plain and sys.stdout.isatty(), pointers=pointers)
    gaps, stop = GapReporter(), StopRequest()
    try:
        with terminable(), session.connect(wait=wait and not until_empty) as client, stop:
            group = client.group(topic, name, start=start or "begin", member=member, on_gap=gaps, **wanted)
            notice = _notice(client, topic, name, start)
            with Consumption(group, stop, limit, until_empty=until_empty) as work:
                if notice:
                    say(notice)
                end_with_reader(stop.ask)
                if line is not None:
                    key = session.broker.key
                    in_shell = ShellCommand(line, client.url, None if key is None else key.path)
                    work.execute(in_shell, batch, concurrency)
                else:
                    work.print(shown, batch)
    except KeyboardInterrupt:
        if stop.status is not None or until_empty:  # the second one, or it was to end by itself
            raise
        return CommandStatus.DONE
    if stop.status is not None:
        return CommandStatus.INTERRUPTED if until_empty and stop.is_interrupted else stop.status
    return CommandStatus.FAILED if work.failures else gaps.status


def _printer(
    session: Session, line: str | None, batch: int | None, concurrency: int, template: str | None
) -> Printer:
    """Return what prints the records. Raises `BadParameter` for options that do not go together."""
    if line is None and concurrency > 1:
        raise BadParameter("it is for the commands of --exec", param_hint="--concurrency")
    if line is not None and not line.strip():
        raise BadParameter("it is empty: say what to run", param_hint="--exec")
    if line is not None and (template is not None):
        raise BadParameter("it is for what is printed, not for --exec", param_hint="--template")
    if batch is None:
        return Printer(session.format, template_of(template, session.form))
    if template is not None or session.form in (Format.TEXT, Format.RAW):
        raise BadParameter("it gives lines of JSON: leave --template and --format away", param_hint="--batch")
    return Printer(Format.JSON)


def _notice(client: Client, topic: str, name: str, start: int | str | None) -> str:
    """Return what a person is to know of the group, empty for nothing: a new one may be a mistake."""
    try:
        client.group(topic, name, create=False).info()
    except NotFound as problem:
        near = None
        with suppress(NotFound):
            near = nearest(name, [one.group for one in client.groups(topic)])
        made = f"group {name!r} of topic {topic!r}"
        if problem.code == "unknown_topic":
            made = f"topic {topic!r} and its group {name!r}"
        begins = {None: "the oldest record", "begin": "the oldest record", "end": "what comes now"}
        where = time_or_dash(start + 1) if isinstance(start, int) else begins[start]
        text = f"quoth: made {made}, which begins with {where}"
        return text + (f"; did you mean {near!r}?" if near else "")
    if start is not None:
        return f"quoth: group {name!r} goes on where it is; --start says where a new one begins"
    return ""
