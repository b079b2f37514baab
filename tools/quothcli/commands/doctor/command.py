"""`quoth doctor`: checks the machine, the data directory and the broker, a line for each check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quothcli.cli.command import argument, command, group
from quothcli.cli.exit_status import CommandStatus
from quothcli.cli.options import WithBroker
from quothcli.cli.session import Session, is_here
from quothcli.commands.doctor import Finding, Findings, fail
from quothcli.printing.text import printable
from quothwire.errors import AuthError, QuothError, RequestError

if TYPE_CHECKING:
    from quoth import Status


app = group()


@command(app, "doctor", "quoth doctor", "quoth doctor /var/lib/quoth --format json")
def doctor(
    session: WithBroker,
    data: Annotated[
        Path | None,
        argument(
            "DIR",
            "A data directory, even one to come (default: the broker's, if it runs here, else that "
            "of `quoth serve`).",
        ),
    ] = None,
) -> int:
    """Check the machine, the data directory and the broker.

    A line for each check: ok, warn or fail, what was found, what to do. Exit status 1 says that something
    fails. It measures a hundred fsyncs in the directory; a broker that answers gets two records in a topic
    whose name begins with _quoth.doctor, which are read back and removed. Nothing is left there, nothing else
    is changed.
    """
    printer = session.printer
    status = CommandStatus.DONE
    for found in _findings(session, data):
        advice = f"; {found.advice}" if found.advice else ""
        text = f"{found.verdict:<4}  {found.check:<14} {found.text}{advice}"
        printer.answer(text, found._asdict(), f"{found.verdict} {found.check}")
        if found.verdict == "fail":
            status = CommandStatus.FAILED
    return status


def _findings(session: Session, data: Path | None) -> Findings:
    from quothcli.commands.doctor import directory, limits, machine
    from quothcli.commands.doctor.broker import own_keys
    from quothd.config.config import Config
    from quothd.config.sources import load

    try:
        config = load({})
    except QuothError as problem:
        yield fail("environment", printable(problem.text), problem.hint)
        config = Config()
    status, of_broker = _broker(session)
    beside = status if status is not None and is_here(session.broker.url) else None
    yield machine.versions()
    yield machine.hot_path()
    yield machine.clock()
    yield from limits.check(config, beside.pid if beside is not None else None)
    own = Path(beside.directory) if beside is not None else config.dir
    yield from directory.check(data or own, config)
    yield from own_keys(config)
    yield from of_broker


def _broker(session: Session) -> tuple[Status | None, list[Finding]]:
    """Return the status of the broker, None if it does not answer, and the findings about it."""
    from quoth import Disconnected
    from quothcli.commands.doctor import broker, probe

    status: Status | None = None
    found: list[Finding] = []
    address = session.broker
    try:
        if address.key is not None:
            address.key.checked()
    except RequestError as problem:
        return None, [fail("key", problem.text, problem.hint)]
    try:
        with replace(session, timeout=session.timeout or broker.ANSWER_S).connect() as client:
            first, status = broker.reachable(client)
            found += [first, broker.guarded(address, status), *broker.answering(client, status)]
        with replace(session, timeout=session.timeout or probe.ANSWER_S).connect() as client:
            found += probe.probe(client)
    except Disconnected as problem:
        if status is None:
            return None, list(broker.silent(address, problem))
        found.append(fail("publish", problem.text, problem.hint))
    except AuthError as problem:
        found.append(fail("key", f"{problem.code}: {problem.text}", problem.hint))
    return status, found
