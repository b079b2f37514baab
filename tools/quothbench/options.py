"""The options that the commands share, and what they all prepare: a directory, a broker, a report."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import quoth
from quoth import AuthError, Disconnected
from quoth.core.options import DEFAULT_TIMEOUT_S
from quothbench.load.servers import Target, own_broker, running_broker
from quothbench.load.topics import BenchTopics
from quothbench.report import Report, ReportColumn
from quothcli.cli.command import SharedOptions
from quothcli.cli.options import Form
from quothcli.cli.quantities import size, span
from quothcli.cli.session import Session, session_of
from quothcli.printing.output import Printer

PAIRS_MIN = 9
"""Below that a median says little on a shared machine."""
SECONDS_MAX = 600


class Level(StrEnum):
    """The durability levels."""

    WRITTEN = "written"
    SYNCED = "synced"


def number(name: str, text: str, least: float = 1) -> Any:
    """Make an option that takes a number."""
    return typer.Option(f"--{name}", metavar="N", min=least, help=text)


def seconds(text: str) -> Any:
    """Make the option of the length of a measurement."""
    return typer.Option("--seconds", metavar="SPAN", parser=span("--seconds", 0.01, SECONDS_MAX), help=text)


Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIRECTORY", help="Where the data lies while it is measured (default: the system's)."
    ),
]
Pairs = Annotated[int, number("pairs", "Measurements of each of the two.")]
Levels = Annotated[
    list[Level] | None,
    typer.Option("--durability", help="Which durability levels; may be repeated (default: both)."),
]
_Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="A broker without keys that is running (default: one of its own, which ends with it).",
    ),
]
MeasuredBroker = Annotated[Session, SharedOptions({"url": _Url, "form": Form}, session_of)]
"""The session of a benchmark that a running broker can take part in."""
Records = Annotated[int, number("records", "Messages of a call.")]
Size = Annotated[
    int, typer.Option("--size", metavar="SIZE", parser=size("--size"), help="Bytes of a message: 100, 1KiB.")
]


class OnBroker(NamedTuple):
    """A broker to measure, a client of it, and topics for the benchmark."""

    broker: Target
    client: quoth.Client
    topics: BenchTopics
    printer: Printer

    def report(self, name: str, conditions: Mapping[str, Any], columns: Sequence[ReportColumn]) -> Report:
        """Begin a report with the conditions, and where the broker and its data are."""
        where = {"broker": self.broker.url, "directory": self.client.status().directory}
        return Report(self.printer, name, {**conditions, **where}, columns)


@contextmanager
def on_broker(session: Session, directory: Path | None) -> Iterator[OnBroker]:
    """Prepare a benchmark on the broker at a URL, or on one of its own. Raises `Disconnected` or OSError.

    A URL in the environment does not count: it does not ask for load on that broker.
    """
    with (
        _target(session, directory) as broker,
        quoth.connect(broker.url) as client,
        BenchTopics(client) as topics,
    ):
        yield OnBroker(broker, client, topics, session.printer)


@contextmanager
def folder(directory: Path | None) -> Iterator[Path]:
    """Make a temporary directory. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="quoth-bench-", dir=directory) as made:
        yield Path(os.path.realpath(made))


@contextmanager
def _target(session: Session, directory: Path | None) -> Iterator[Target]:
    if session.url is None:
        with folder(directory) as made, own_broker(made / "data") as broker:
            yield broker
    elif directory is not None:
        raise typer.BadParameter("a broker that is running has its own", param_hint="--dir")
    else:
        yield _running(session.url, session.timeout)


def _running(url: str, timeout: float | None) -> Target:
    """Return a broker that is running. Raises `AuthError` if it wants a key, for all clients go without."""
    try:
        with quoth.connect(url, timeout=timeout or DEFAULT_TIMEOUT_S) as client:
            return running_broker(client)
    except AuthError as problem:
        text = f"the broker at {url} wants a key, and the clients of a benchmark have none"
        hint = "measure without --url, or a broker without keys; `quoth bench ratio --curve` has its own"
        raise AuthError(problem.code, text, hint) from problem
    except Disconnected as problem:
        raise Disconnected(problem.code, f"{problem.text} (from --url)", problem.hint) from problem
