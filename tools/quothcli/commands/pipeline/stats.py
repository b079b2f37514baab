"""`quoth pipeline stats`: records, bytes, rates, keys and gaps of topics by windows of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from quothcli.cli.command import command, group
from quothcli.cli.options import Since, Topics, WithBroker
from quothcli.cli.quantities import span_option
from quothcli.commands.pipeline.running import OnSpark, report, run
from quothcli.printing.output import Format

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job

_Window = Annotated[str, Option("--window", metavar="SPAN", help="The length of a window: 10s, 1m, 1h, 1d.")]
_Until = Annotated[str | None, Option("--until", metavar="TIME", help="Stop before this time.")]
_Out = Annotated[str | None, Option("--out", metavar="DIR", help="Keep windows and gaps there, as Parquet.")]
_Follow = Annotated[
    float | None, span_option("--follow", "Go on for ever, looking so often for ended windows.", least=0.1)
]
_Checkpoint = Annotated[
    str | None,
    Option("--checkpoint", metavar="DIR", help="Keeps the progress of --follow, for the next one."),
]

app = group()


@command(
    app,
    "stats",
    "quoth pipeline stats orders --since -1h",
    "quoth pipeline stats 'orders.*' --window 1d --format json",
    "quoth pipeline stats orders --follow 5 --checkpoint stats-of-orders --out orders-by-minute",
)
def stats(
    session: WithBroker,
    spark: OnSpark,
    topics: Topics,
    window: _Window = "1m",
    since: Since = None,
    until: _Until = None,
    out: _Out = None,
    follow: _Follow = None,
    checkpoint: _Checkpoint = None,
) -> int:
    """Tell what topics hold, window by window.

    A line for each window with records: how many and how large, rates, different keys (about: within 3 % in
    two cases of three, exactly up to 1,023), the largest record, records that are missing, records behind the
    newest one; --format json and --out tell more. With --follow a window is printed once a record lies
    behind it. Damaged records make the exit status 1.
    """

    def prepare() -> Job:
        from quoth.spark.jobs import stats

        stats.refuse_together(follow, until, checkpoint)
        url, timeout = session.broker.url, session.timeout_s
        if follow is None:
            return stats.job(
                topics,
                url=url,
                timeout=timeout,
                window=window,
                since=since,
                until=until,
                out=out,
                tell=report,
            )
        printer = session.printer

        def write(lines: str) -> None:
            printer.line(lines)
            printer.flush()

        show = stats.shown(write, as_json=printer.form is Format.JSON)
        return stats.following(
            topics, every=follow, checkpoint=checkpoint, url=url, timeout=timeout, window=window, since=since,
            out=out, show=show, tell=report,
        )  # fmt: skip

    return run(session, spark, "stats", prepare)
