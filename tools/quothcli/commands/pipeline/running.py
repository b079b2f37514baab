"""How a job on Spark becomes a command: the options of all of them, the summary printed, the exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from quothcli.cli.exit_status import Refused, Status, terminable
from quothcli.cli.options import Form
from quothcli.cli.session import chosen
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job, JobSummary

Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Where Spark runs (default local[*,4]: here, on all cores).",
    ),
]  # fmt: skip
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]

OF_SPARK = {"master": Master, "conf": Conf, "form": Form}
"""What every job takes: where it runs, with which settings, and how its summary is printed."""
_NEEDED = ("pyspark", "pyarrow", "pandas", "py4j")


def run(
    context: typer.Context,
    what: str,
    prepare: Callable[[], Job | JobSummary],
    *,
    master: str | None,
    conf: list[str] | None,
    form: Format | None,
) -> int:
    """Run a job and print its summary; returns the exit status.

    what: what is being done, in a word. prepare: makes the job, may import what needs Spark, and refuses what
    can be refused without it. Raises `Refused` ``no_spark`` or ``spark_failed``.
    """
    printer = Printer(chosen(context, form=form).format)
    with installed():
        from quoth.spark.jobs import session

        settings = _settings(session, conf or [])
        job = prepare()
    summary = performed(what, job, master, settings)
    if printer.form is Format.JSON:
        printer.object(summary.content)
    else:
        for line in summary.lines:
            printer.line(line)
    return Status.DONE if summary.good else Status.FAILED


def performed(
    what: str, job: Job | JobSummary, master: str | None, settings: Sequence[tuple[str, str]] = ()
) -> JobSummary:
    """Run a job; returns what it tells. settings: of Spark. Raises as `run`."""
    from quoth.spark.jobs import session

    try:
        with terminable():
            return session.perform(what, job, master, settings)
    except session.SparkFailed as problem:
        raise Refused(problem.code, problem.text, problem.hint) from problem


def _settings(session: ModuleType, conf: list[str]) -> list[tuple[str, str]]:
    """Settings of Spark as they were typed. Raises typer.BadParameter."""
    try:
        return [session.setting(one) for one in conf]
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--conf") from problem


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
