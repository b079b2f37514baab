"""Composes the commands of `quoth`, runs one, and turns its outcome into an exit status."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from typer._completion_classes import completion_init
from typer.completion import shell_complete

from quothcli.cli.command import Group, LazyCommand, app, built, examples_text, option, show_help
from quothcli.cli.exit_status import CommandStatus, guarded, open_streams, report_error
from quothcli.cli.options import COMPLETION_VARIABLE, Ctx, Form, Key, Timeout, Url
from quothcli.cli.session import Session
from quothcli.cli.usage import UsageError, text_and_hint
from quothwire import VERSION
from quothwire.text.variables import check_variables

COMMANDS = {
    name: LazyCommand(module if module.startswith("quothbench") else f"quothcli.{module}", sentence)
    for name, module, sentence in (
        ("serve", "commands.broker.serve", "Run a broker in the foreground until SIGTERM or Ctrl-C."),
        ("web", "commands.broker.web", "Serve topics over HTTP until SIGTERM or Ctrl-C."),
        ("config", "commands.about.config", "The configuration of a broker: show it, check it, begin one."),
        (
            "service",
            "commands.broker.service",
            "The broker as a service of systemd: install, uninstall, log.",
        ),
        ("demo", "commands.about.demo", "Publish the lines of a file, read them back, compare."),
        ("pub", "commands.records.publish", "Publish every VALUE, every FILE, or every line of stdin."),
        ("tail", "commands.records.reading", "Print records as they come, until Ctrl-C."),
        ("read", "commands.records.reading", "Print the records that are there now, oldest first, and end."),
        ("consume", "commands.groups.consume", "Print or handle the records of a group, until Ctrl-C."),
        ("get", "commands.records.reading", "Print the record with exactly this pointer."),
        ("count", "commands.records.reading", "Count records, without reading them."),
        ("split", "commands.records.reading", "Divide records into parts that are about equal."),
        (
            "forward",
            "commands.records.forward",
            "Carry a log to a topic of a broker, each record exactly once.",
        ),
        ("topic", "commands.broker.topics", "List, show, make, change, trim and delete topics."),
        ("group", "commands.groups.group", "Consumer groups: list, show, make, change, move, pause, delete."),
        (
            "transaction",
            "commands.broker.transaction",
            "Show and abort transactions, which a topic gets whole or not.",
        ),
        ("rule", "commands.rules.rule", "Routing rules: try, add, list, show and remove them."),
        ("status", "commands.broker.status", "Show all topics in a table: what each holds and keeps."),
        ("ping", "commands.broker.status", "Measure one round trip to the broker."),
        (
            "check",
            "commands.broker.check",
            "Check the broker, its topics and groups, and print alarms.",
        ),
        ("top", "commands.broker.top", "Watch the broker and its busiest topics, until Ctrl-C."),
        ("ctx", "commands.about.ctx", "Name brokers, and choose the one that commands ask."),
        ("key", "commands.about.key", "Make the keys of clients and of a broker, and show them."),
        (
            "log",
            "commands.files.log",
            "Look at a log's files, repair, import and export them.",
        ),
        ("backup", "commands.files.backup", "Copy topics, as they are now or were at a time, into a folder."),
        ("restore", "commands.files.backup", "Put topics of a backup into the data directory of a broker."),
        ("generate", "commands.about.generate", "Write files for Prometheus and Grafana."),
        ("doctor", "commands.doctor.command", "Check the machine, the data directory and the broker."),
        (
            "pipeline",
            "commands.pipeline.command",
            "Jobs on Spark: look after topics too large for one process.",
        ),
        ("bench", "quothbench.commands", "Measure how fast the broker is on this machine."),
        ("errors", "commands.about.pages", "Explain the codes of errors: what happened, what to do."),
        ("help", "commands.about.pages", "Print a page about Quoth, or the help of a command."),
        (
            "completion",
            "commands.about.reference",
            "Print the script that lets a shell complete what is typed.",
        ),
        ("reference", "commands.about.reference", "Print a page with all commands, in Markdown."),
    )
}
"""All commands in the order of the help. Each is loaded when it is typed, since loading all takes longer than
most of them do."""
_EXAMPLES = (
    "quoth serve --dir quoth-data",
    "quoth pub greetings 'hello, world'",
    "quoth tail greetings --since -1h",
    "quoth demo",
)


def run(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit status."""
    open_streams()
    return guarded(_run)(arguments)


def root() -> Group:
    """Make the group of all commands; each is loaded when it is typed."""
    text = "Quoth, a log-based message broker: what was said, in order, for as long as you keep it."
    return built(app(_before, text, epilog=examples_text(_EXAMPLES), rows=COMMANDS))


def tree() -> Group:
    """Make the group of all commands and load them."""
    group = root()
    group.load()
    return group


def _run(arguments: Sequence[str]) -> int:
    """Parse and invoke. Typer's own handling of errors is not used: `guarded` does it."""
    try:
        group = root()
        if instruction := os.environ.get(COMPLETION_VARIABLE):
            completion_init()
            return shell_complete(group, {}, "quoth", COMPLETION_VARIABLE, instruction)
        with group.make_context("quoth", list(arguments)) as context:
            return int(group.invoke(context) or CommandStatus.DONE)
    except typer.Exit as end:
        return end.exit_code
    except UsageError as problem:
        report_error("usage", *text_and_hint(problem, arguments))
        return CommandStatus.USAGE


def _version(wanted: bool) -> None:
    if wanted:
        from quothwire.native import implementation

        print(f"quoth {VERSION}, hot path in {implementation()}")
        raise typer.Exit


def _keys() -> Iterable[str]:
    """Return the daemon's keys; an unknown variable is compared with them."""
    from quothd.config.config import KEYS

    return KEYS


def _before(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  its callback ends the command
        bool, option("--version", "Print the version and end.", is_eager=True, callback=_version)
    ] = False,
    url: Url = None,
    ctx: Ctx = None,
    key_file: Key = None,
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Keep the options before the command. Raises ``bad_setting`` for a variable that does not exist."""
    check_variables(os.environ, _keys)
    context.obj = Session(url, timeout, form, ctx, key_file)
    show_help(context)
