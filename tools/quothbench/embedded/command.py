"""`quoth bench embedded`: the command, its rounds and its table. All stores are in this process."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from quothbench import options
from quothbench.embedded.ways import COMPARISONS
from quothbench.embedded.work import PROMISES, Comparison, EmbeddedWay, StorageLevel, TimeUsed, Workload
from quothbench.figures import Spread, rotate
from quothbench.peers.work import foreign, python_library
from quothbench.report import Report, ReportColumn, count, number, published, spread
from quothcli.cli.command import command, group
from quothcli.cli.exit_status import CommandStatus
from quothcli.cli.options import WithoutBroker
from quothcli.cli.quantities import size
from quothcli.printing.progress import Advance, progress
from quothwire.errors import QuothError

SIZE = 20
"""Bytes of a value of queuefka's benchmark."""
QUEUEFKA_NOTE = "ns/op published in 2016: Core2 P8600, 2.4 GHz, 20 bytes (measured: Go 1.19, 2 vCPU)"
FEWER = 10
"""By so much is the number of records smaller that are written one by one."""
UNKNOWN = (None,) * 5
"""The figures of a row that could not be measured."""
_NO_TIME = TimeUsed(0.0, 0.0)


def nanoseconds(figure: Spread) -> str:
    """Print the median, the smallest and the largest of some times for people."""
    return f"{figure.median:,.0f} ({figure.low:,.0f}-{figure.high:,.0f})"


COLUMNS = (
    ReportColumn("way", "way", width=23),
    ReportColumn("system", "system", width=7),
    ReportColumn("level", "level", width=7),
    ReportColumn("records_per_call", "a call", count, 6),
    ReportColumn("records", "records", count),
    ReportColumn("nanoseconds_per_record", "ns a record", nanoseconds, 27),
    ReportColumn("processor_nanoseconds_per_record", "processor", lambda figure: count(figure.median)),
    ReportColumn("records_per_second", "records/s", count, 10),
    ReportColumn("bytes_per_record", "bytes", number, 6),
    ReportColumn("ratio_to_quoth", "to quoth", spread, 18),
    ReportColumn("queuefka_row", "row of queuefka", width=15),
    ReportColumn("queuefka", "its ns", published, 11),
    ReportColumn("problem", "problem", width=0),
)


class EmbeddedPlan(NamedTuple):
    """The sizes of the measurements.

    records: of most of them. batch: records of a batch. syncs: calls of a measurement whose calls are synced.
    rounds: measurements of each way, after one that does not count.
    """

    levels: Collection[StorageLevel]
    records: int
    size: int
    batch: int
    syncs: int
    rounds: int

    def workload(self, compared: Comparison) -> Workload:
        """Draw the records of a measurement: fewer if each of them is a call that writes or syncs."""
        records = self.records
        if compared.level is StorageLevel.SYNCED:
            records = self.syncs * (self.batch if compared.batched else 1)
        elif compared.level is StorageLevel.WRITTEN and not compared.batched:
            records = max(1, records // FEWER)
        return Workload(records, self.size, self.batch)


class _Measurements:
    """The measurements of one way, until one fails. problem: of that one, or what is missing."""

    def __init__(self, way: EmbeddedWay, folder: Path, work: Workload, advance: Advance) -> None:
        self._way = way
        self._folder = folder
        self._work = work
        self._advance = advance
        self.problem = way.missing()
        self.failed = False
        self.bytes = 0

    def once(self) -> TimeUsed:
        """Store or read all records; return the nanoseconds of one, 0 after a problem."""
        if self.problem:
            return _NO_TIME
        try:
            with foreign(self._way.system):
                took = self._measure()
        except QuothError as problem:
            self.problem, self.failed = problem.text, True
            return _NO_TIME
        self._advance(len(self._work.values), len(self._work.values) * self._work.size)
        return TimeUsed(*(seconds / len(self._work.values) * 1e9 for seconds in took))

    def _measure(self) -> TimeUsed:
        """Measure in a new folder; what is read stays for the next time."""
        fill = self._way.fill
        if not self._folder.exists():
            self._folder.mkdir()
            if fill is not None:
                fill(self._folder, self._work)
        took = self._way.measure(self._folder, self._work)
        self.bytes = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        if fill is None:
            shutil.rmtree(self._folder)
        return took


def run(
    report: Report, directory: Path, plan: EmbeddedPlan, comparisons: Sequence[Comparison] = COMPARISONS
) -> bool:
    """Measure the comparisons of the levels of a plan, a row for each way.

    Returns True unless a row could not be measured that does not lack its library.
    """
    whole = True
    for compared in comparisons:
        if compared.level in plan.levels:
            with options.folder(directory) as made:
                whole &= _compare(report, made, compared, plan)
    return whole


def _compare(report: Report, directory: Path, compared: Comparison, plan: EmbeddedPlan) -> bool:
    """Measure the ways of one comparison in turn."""
    work = plan.workload(compared)
    present = [way for way in compared.ways if not way.missing()]
    whole = (plan.rounds + 1) * len(present) * len(work.values) * work.size
    with progress(f"{compared.level}, {'batches' if compared.batched else 'one by one'}", whole) as advance:
        measured = [
            _Measurements(way, directory / str(number), work, advance)
            for number, way in enumerate(compared.ways)
        ]
        rounds = rotate([one.once for one in measured], plan.rounds)
    columns = list(zip(*rounds, strict=True))
    for way, one, took in zip(compared.ways, measured, columns, strict=True):
        a_call = plan.batch if compared.batched else 1
        cells = (way.name, way.system, compared.level, a_call, len(work.values))
        figures = UNKNOWN if one.problem else _figures(took, one.bytes / len(work.values), columns[0])
        report.row(*cells, *figures, *_published(way, plan.size), one.problem or None)
    return not any(one.failed for one in measured)


def _figures(
    took: Sequence[TimeUsed], stored: float, first: Sequence[TimeUsed]
) -> tuple[Spread, Spread, float, float, Spread | None]:
    """Return the figures of a row. stored: bytes of a record. first: the times of the first row, of Quoth."""
    by_clock, by_processor = map(Spread.of, zip(*took, strict=True))
    pairs = [(own.clock, one.clock) for own, one in zip(first, took, strict=True)]
    ratios = Spread.of_ratios(pairs) if took is not first and all(own for own, _ in pairs) else None
    return by_clock, by_processor, 1e9 / by_clock.median, stored, ratios


def _published(way: EmbeddedWay, value_bytes: int) -> tuple[str, dict[str, int | None]] | tuple[None, None]:
    """Return the row of queuefka's benchmark and its figures, if it had one of such values."""
    if way.queuefka is None or value_bytes != SIZE:
        return None, None
    name, *figures = way.queuefka
    return name, dict(zip(("published", "measured"), figures, strict=True))


def _conditions(plan: EmbeddedPlan, directory: Path) -> dict[str, object]:
    """Return what the figures depend on, and the meaning of the levels."""
    from importlib.metadata import version  # loads much of Python's email, which --help does not need

    libraries = {way.library for compared in COMPARISONS for way in compared.ways} - {""}
    return {
        "value_bytes": plan.size,
        "rounds": plan.rounds,
        **{level: PROMISES[level] for level in StorageLevel if level in plan.levels},
        **{name: python_library(name) or version(name) for name in sorted(libraries)},
        "queuefka": QUEUEFKA_NOTE,
        "directory": str(directory),
    }


app = group()


@command(
    app,
    "embedded",
    "quoth bench embedded",
    "quoth bench embedded --level memory --level read --records 1000000",
    "quoth bench embedded --level synced --size 100 --dir /var/lib --format json",
)
def embedded(
    session: WithoutBroker,
    levels: Annotated[
        list[StorageLevel] | None,
        typer.Option("--level", help="Which rows; may be repeated (default: all)."),
    ] = None,
    records: Annotated[
        int, options.number("records", "Records of a measurement; written one by one a tenth.")
    ] = 500_000,
    value_bytes: Annotated[
        int,
        typer.Option("--size", metavar="SIZE", parser=size("--size"), help="Bytes of a value: 20, 1KiB."),
    ] = SIZE,
    batch: Annotated[int, options.number("batch", "Records of a batch.")] = 100,
    syncs: Annotated[int, options.number("syncs", "Calls of a measurement whose calls are synced.")] = 200,
    rounds: Annotated[int, options.number("rounds", "Measurements of each way.")] = options.PAIRS_MIN,
    directory: options.Directory = None,
) -> int:
    """Compare the embedded log with LevelDB, LMDB and plain files.

    It is the comparison of queuefka, an ancestor in Go, in one process without a server. All are measured
    in turn. A row stands beside rows of the same level only: of `memory` a crash of the process takes
    what it has gathered; of `written` the operating system has the records of each call; of `synced` they
    survive a power cut. `read` reads what is in the page cache. Each row shows the nanoseconds of a
    record, the median with the smallest and the largest, those of processor time, which other programs
    disturb less, the bytes on the disk, how many times as long as Quoth's first row of the same group it
    takes, and what queuefka's README has for the same in 2016; in brackets what it reached on 2 virtual
    cores.

    A row without its library says how to get it: pip install 'quoth[bench]'. A row that cannot be measured
    names its problem, the others are measured all the same, and the exit status is 1.
    """
    plan = EmbeddedPlan(levels or tuple(StorageLevel), records, value_bytes, batch, syncs, rounds)
    with options.folder(directory) as made:
        report = Report(session.printer, "embedded", _conditions(plan, made), COLUMNS)
        measured = run(report, made, plan)
    return CommandStatus.DONE if measured else CommandStatus.FAILED
