"""`quoth pipeline stats`: records, bytes, rates, keys and gaps of topics by windows of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quothcli.cli.command import command, spread
from quothcli.cli.exit_status import say
from quothcli.cli.options import Since, Timeout, Topics, Url
from quothcli.cli.quantities import span
from quothcli.cli.session import chosen
from quothcli.commands.pipeline.running import OF_SPARK, run
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job


def add(pipeline: typer.Typer) -> None:
    """Put `stats` into `quoth pipeline`."""
    command(
        pipeline,
        "stats",
        "quoth pipeline stats orders --since -1h",
        "quoth pipeline stats 'orders.*' --window 1d --format json",
        "quoth pipeline stats orders --follow 5 --checkpoint stats-of-orders --out orders-by-minute",
    )(spread("spark", OF_SPARK)(stats))


def stats(
    context: typer.Context,
    topics: Topics,
    window: Annotated[
        str, typer.Option("--window", metavar="SPAN", help="The length of a window: 10s, 1m, 1h, 1d.")
    ] = "1m",
    since: Since = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Stop before this time.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Keep windows and gaps there, as Parquet.")
    ] = None,
    follow: Annotated[
        float | None,
        typer.Option(
            "--follow",
            metavar="SPAN",
            parser=span("--follow", least=0.1),
            help="Go on for ever, looking so often for ended windows.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="Remembers how far --follow is, for the next one."),
    ] = None,
    url: Url = None,
    timeout: Timeout = None,
    *,
    spark: dict[str, Any],
) -> int:
    """Tell what topics hold, window by window.

    A line for each window with records: how many and how large, rates, different keys (about: within 3 % in
    two cases of three, exactly up to 1,023), the largest record, records that are missing, records behind the
    newest one; --format json and --out tell more. With --follow a window is printed once a record lies
    behind it. Damaged records make the exit status 1.
    """
    asked = chosen(context, url, timeout, spark["form"])

    def prepare() -> Job:
        from quoth.spark.jobs import stats

        stats.refuse_together(follow, until, checkpoint)
        broker, wait, tell = asked.address, asked.patience, lambda text: say(f"quoth: {text}")
        if follow is None:
            return stats.job(
                topics, url=broker, timeout=wait, window=window, since=since, until=until, out=out, tell=tell
            )
        printer = Printer(asked.format)

        def write(lines: str) -> None:
            printer.line(lines)
            printer.flush()

        show = stats.shown(write, as_json=printer.form is Format.JSON)
        return stats.following(
            topics, every=follow, checkpoint=checkpoint, url=broker, timeout=wait, window=window, since=since,
            out=out, show=show, tell=tell,
        )  # fmt: skip

    return run(context, "stats", prepare, **spark)
