"""Runs a job on Spark as a command: its options, its summary, its exit status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import BadParameter, Context

from quothcli.cli.command import SharedOptions, option
from quothcli.cli.exit_status import CommandStatus, Refused, say, terminable
from quothcli.cli.session import Session
from quothcli.printing.text import printable

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job, JobBroker, JobSummary

_NEEDED = ("pyspark", "pyarrow", "pandas", "py4j")


class SparkChoice(NamedTuple):
    """The options of a job. master: where Spark runs, None for here. conf: settings, names and values."""

    master: str | None
    conf: Sequence[tuple[str, str]]


def _choice(_context: Context, master: str | None, conf: list[str] | None) -> SparkChoice:
    return SparkChoice(master, [_setting(text) for text in conf or ()])


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--conf")
    return name, value


_Master = Annotated[
    str | None, option("--master URL", "Where Spark runs (default local[*,4]: here, on all cores).")
]
_Conf = Annotated[list[str] | None, option("--conf NAME=VALUE", "A setting of Spark; may be repeated.")]
OnSpark = Annotated[SparkChoice, SharedOptions({"master": _Master, "conf": _Conf}, _choice)]
"""The parameter of a job for its options."""


def run(session: Session, spark: SparkChoice, what: str, job: Job | JobSummary) -> int:
    """Run a job and print its summary; returns the exit status. what: the job, in a word.

    Raises `SparkFailed`, or `Refused` if Spark is not installed.
    """
    with session.naming_key():
        summary = performed(what, job, spark.master, spark.conf)
    session.printer.answer("\n".join(map(printable, summary.lines)), summary.content)
    return CommandStatus.DONE if summary.good else CommandStatus.FAILED


def performed(
    what: str, job: Job | JobSummary, master: str | None, settings: Sequence[tuple[str, str]] = ()
) -> JobSummary:
    """Run a job; returns its summary. settings: of Spark. Raises as `run`."""
    from quoth.spark.jobs import session

    with terminable():
        return session.perform(what, job, master, settings)


def broker_of(session: Session) -> JobBroker:
    """The broker of a job, with the options of its command. Raises `RequestError` for its key file."""
    from quoth.spark.jobs.session import JobBroker

    broker = session.broker
    path = None if broker.key is None else str(broker.key.checked().absolute())
    return JobBroker(broker.url, session.timeout_s, report, path)


def report(text: str) -> None:
    """Write a line about the progress of a job on stderr."""
    say(f"quoth: {text}")


@contextmanager
def installed() -> Iterator[None]:
    """Import inside what needs Spark. Raises `Refused` ``no_spark`` if that is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in _NEEDED:
            raise
        text = f"this runs on Spark, and {name} is not installed"
        hint = "pip install 'quoth[spark]'; it needs Java 17 or newer, too"
        raise Refused("no_spark", text, hint) from None
