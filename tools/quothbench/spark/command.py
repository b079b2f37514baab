"""`quoth bench spark`: the command."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

import quoth
from quothbench import options
from quothbench.load.servers import own_broker
from quothbench.report import Report
from quothcli.cli.command import command, group
from quothcli.cli.options import WithoutBroker
from quothcli.cli.quantities import size
from quothcli.commands.pipeline.running import installed

SIZES = (100, 1_000)


class Figure(StrEnum):
    """The ways that are compared, each with another one."""

    SOURCE = "source"
    PARTITIONS = "foreach_partition"
    SINK = "sink"
    ARCHIVE = "archive"


app = group()


@command(app, "spark", "quoth bench spark", "quoth bench spark --figure source --size 100 --rounds 21")
def spark(
    session: WithoutBroker,
    figures: Annotated[
        list[Figure] | None, typer.Option("--figure", help="Which rows; may be repeated (default: all).")
    ] = None,
    rows: Annotated[
        int, options.number("rows", "Messages of 100 bytes; of larger ones as many bytes in all.")
    ] = 4_000_000,
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            parser=size("--size"),
            help="Bytes of a message; may be repeated (default: 100 and 1000).",
        ),
    ] = None,
    rounds: Annotated[int, options.number("rounds", "Measurements of each way.")] = options.PAIRS_MIN,
    directory: options.Directory = None,
) -> None:
    """Compare what Spark does with topics to what it does with Parquet.

    All ways are measured in turn, after a round that does not count. Each row shows the medians, the median
    of the ratios of the same round with the smallest and the largest one, what this project demands of
    itself, and the processor time of a row. Spark runs here, on all cores; it needs `pip install
    'quoth[spark]'` and Java 17.
    """
    with installed():
        from quothbench.spark.ways import REPORTED, SparkBench, SparkPlan, conditions

    plan = SparkPlan(figures or list(Figure), rows, sizes or SIZES, rounds)
    with (
        options.folder(directory) as made,
        own_broker(made / "data") as broker,
        quoth.connect(broker.url) as client,
    ):
        report = Report(session.printer, "spark", conditions(plan), REPORTED)
        SparkBench(report, broker, client, made, plan).run()
