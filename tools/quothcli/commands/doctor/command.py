"""The command `quoth doctor`: every check, a line each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quothcli.cli import exit_status
from quothcli.cli.address import is_here
from quothcli.cli.command import command
from quothcli.cli.options import Form, Timeout, Url
from quothcli.cli.session import Chosen, chosen
from quothcli.commands.doctor.finding import Finding, Findings, Verdict, fail
from quothcli.printing.output import Printer, printable
from quothwire.errors import QuothError

if TYPE_CHECKING:
    from quoth import Status
    from quothd.config.config import Config


def add(app: typer.Typer) -> None:
    """Put `doctor` into the command."""
    command(app, "doctor", "quoth doctor", "quoth doctor /var/lib/quoth --format json")(doctor)


def doctor(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="A data directory, even one to come (default: the broker's, if it runs here, else that "
            "of `quoth serve`).",
        ),
    ] = None,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> int:
    """Check the machine, the data directory and the broker.

    A line for each check: ok, warn or fail, what was found, what to do. Exit status 1 says that something
    fails. It measures a hundred fsyncs in the directory; a broker that answers gets two records in a topic
    whose name begins with _quoth.doctor, which are read back and removed. Nothing is left there, nothing else
    is changed.
    """
    asked = chosen(context, url, timeout, form)
    printer = Printer(asked.format)
    failed = False
    for found in _findings(asked, data):
        advice = f"; {found.advice}" if found.advice else ""
        printer.answer(
            f"{found.verdict:<4}  {found.check:<14} {found.text}{advice}",
            found._asdict(),
            f"{found.verdict} {found.check}",
        )
        printer.flush()
        failed = failed or found.verdict is Verdict.FAIL
    return exit_status.Status.FAILED if failed else exit_status.Status.DONE


def _findings(asked: Chosen, data: Path | None) -> Findings:
    from quothcli.commands.doctor import directory, machine

    config, wrong = _config()
    yield from wrong
    status, of_broker = _broker(asked)
    beside = status if status is not None and is_here(asked.address) else None
    yield from machine.versions()
    yield from machine.clock()
    yield from machine.boot()
    yield from machine.memory(config)
    yield from machine.descriptors(config, beside.pid if beside is not None else None)
    own = Path(beside.directory) if beside is not None else config.dir
    yield from directory.check(data or own, config)
    yield from of_broker


def _config() -> tuple[Config, list[Finding]]:
    """The configuration that a broker would have that is started here."""
    from quothd.config.config import Config
    from quothd.config.sources import load

    try:
        return load({}), []
    except QuothError as problem:
        return Config(), [fail("environment", printable(problem.text), problem.hint)]


def _broker(asked: Chosen) -> tuple[Status | None, list[Finding]]:
    """The broker's status, if it answers, and what there is to say of it."""
    from quoth import Disconnected
    from quothcli.commands.doctor import broker, probe

    try:
        with replace(asked, timeout=asked.timeout or broker.ANSWER_S).connect() as client:
            first, status = broker.reachable(client)
            found = [first, *broker.answering(client, status)]
    except Disconnected as problem:
        return None, list(broker.silent(asked.place, problem))
    try:
        with replace(asked, timeout=asked.timeout or probe.ANSWER_S).connect() as client:
            return status, [*found, *probe.probe(client)]
    except Disconnected as problem:
        return status, [*found, fail("publish", problem.text, problem.hint)]
