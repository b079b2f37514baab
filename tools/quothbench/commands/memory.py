"""`quoth bench memory`: the command."""

from __future__ import annotations

from typing import Annotated

import typer

from quothbench.commands.options import PAIRS_MIN, Directory, Pairs, folder
from quothbench.instruments.growth import FewMany
from quothbench.instruments.memory import COLUMNS, RECORDS, Bench, Plan
from quothbench.load.driver import VALUE
from quothbench.report import Report
from quothcli.cli.command import command
from quothcli.cli.options import Form
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(bench, "memory", "quoth bench memory", "quoth bench memory --sizes 64 4096 --pairs 21")(memory)


def memory(
    context: typer.Context,
    batches: Annotated[
        int,
        typer.Option("--batches", metavar="N", min=1, help="Batches behind which a topic's memory counts."),
    ] = 20_000,
    topics: Annotated[int, typer.Option("--topics", metavar="N", min=1, help="Topics that sleep.")] = 10_000,
    waits: Annotated[int, typer.Option("--waits", metavar="N", min=1, help="Fetches that wait.")] = 10_000,
    sizes: Annotated[
        tuple[int, int],
        typer.Option("--sizes", metavar="FEW MANY", help="MiB of data that a broker starts with."),
    ] = (64, 1_024),
    records: Annotated[
        tuple[int, int],
        typer.Option("--records", metavar="FEW MANY", help="Records of a topic that is appended to."),
    ] = (10_000, 10_000_000),
    pairs: Pairs = PAIRS_MIN,
    directory: Directory = None,
    form: Form = None,
) -> None:
    """Measure what records, topics and waits take, and what grows.

    First bytes of memory: of a record while its topic is active, of a topic that sleeps, of a fetch that
    waits. Then, in turn, what must not grow with the data: the time of a start with little and with much of
    it, and the time of a publish to a topic with few and with many records.
    """
    plan = Plan(
        batches, topics, waits, _ascending("--sizes", sizes, 2**20), _ascending("--records", records), pairs
    )
    printer = Printer(chosen(context, form=form).format)
    with folder(directory) as made:
        conditions = {"records": f"{RECORDS} x {len(VALUE)} B a batch", "pairs": pairs}
        Bench(made, Report(printer, "memory", conditions, COLUMNS), plan).run()


def _ascending(option: str, numbers: tuple[int, int], unit: int = 1) -> FewMany:
    """Two numbers that were typed, in a unit of theirs."""
    few, many = numbers
    if not 0 < few <= many:
        raise typer.BadParameter(f"{few} {many} are not a small number and a large one", param_hint=option)
    return FewMany(few * unit, many * unit)
