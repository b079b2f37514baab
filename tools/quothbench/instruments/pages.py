"""`quoth bench pages`: the time of the dashboard's pages beside a broker with many topics and a load.

In turn the broker is left alone with its load, and pages are viewed beside it; single publishes are timed in
both. Load, viewer, server and broker are processes of their own. The server and the viewer have the last core
for themselves, so that the figures show what pages cost the broker, unless all share all cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

import quoth
from quothbench import options
from quothbench.figures import Spread, alternate, quantiles
from quothbench.load.cores import Cores, divided, on_cores
from quothbench.load.many_topics import make_topics
from quothbench.load.servers import Target, own_broker, serving
from quothbench.report import Report, ReportColumn, count, seconds, spread
from quothcli.cli.command import command, group
from quothcli.cli.exit_status import say
from quothcli.cli.options import WithoutBroker
from quothcli.printing.output import Printer
from quothwire.errors import error

PAGES = ("/", "/topics", "/topics?search=9", "/topic/topic-000007", "/topic/topic-000007/records", "/groups")
"""The pages that are viewed, one after the other."""
VIEWS_PER_S = 5.0
"""Several persons who click all the time."""
PROBE_S = 0.005
OPENED_S = 3_600.0
_WEB_READY, _LOAD_READY = "quoth-web: ready ", "paced: ready "

COLUMNS = (
    ReportColumn("figure", "figure", width=34),
    ReportColumn("calls", "calls", count, 7),
    *(ReportColumn(f"{name}_seconds", name, seconds) for name in ("p50", "p95", "p99", "max")),
    ReportColumn("ratio", "ratio", spread, 17),
)


class Probed(NamedTuple):
    """The durations of publishes, and of the pages that were viewed meanwhile."""

    publishes: list[float]
    pages: dict[str, list[float]]


class PagesBench(NamedTuple):
    """Measures both, in turn. lasts: seconds of each measurement."""

    client: quoth.Client
    web: Target
    cores: Cores
    report: Report
    lasts: float
    pairs: int

    def run(self) -> None:
        """Measure, then print a row for the publishes of each kind and one for each page."""
        pairs = alternate(self._alone, self._viewed, self.pairs)
        tails = [(quantiles(one.publishes)["p99"], quantiles(other.publishes)["p99"]) for one, other in pairs]
        self._row("publish, alone", [took for one, _ in pairs for took in one.publishes], None)
        ratio = Spread.of_ratios(tails)
        self._row("publish, beside pages: p99", [took for _, one in pairs for took in one.publishes], ratio)
        views: dict[str, list[float]] = {}
        for _, one in pairs:
            for path, took in one.pages.items():
                views.setdefault(path, []).extend(took)
        for path, took in views.items():
            self._row(f"page {path}", took, None)
        self._row("all pages", [one for took in views.values() for one in took], None)

    def _row(self, figure: str, took: list[float], ratio: Spread | None) -> None:
        found = quantiles(took)
        p95 = sorted(took)[max(0, round(0.95 * len(took)) - 1)]
        self.report.row(figure, len(took), found["p50"], p95, found["p99"], max(took), ratio)

    def _alone(self) -> Probed:
        return Probed(self._publishes(), {})

    def _viewed(self) -> Probed:
        with on_cores(self.cores.beside):
            viewer = subprocess.Popen(
                [sys.executable, "-c", "from quothbench.load.page_views import main; main()", self.web.url,
                 str(self.lasts), str(VIEWS_PER_S), *PAGES],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        try:
            publishes = self._publishes()
            out, problem = viewer.communicate(timeout=self.lasts + 120)
        finally:
            viewer.kill()
        if viewer.returncode:
            raise error("internal", f"the viewer of pages ended: {problem.strip()[-300:]}")
        return Probed(publishes, json.loads(out))

    def _publishes(self) -> list[float]:
        """Time single publishes, one every few milliseconds."""
        took, end = [], time.monotonic() + self.lasts
        while (began := time.monotonic()) < end:
            self.client.publish("probe", b"x")
            now = time.monotonic()
            took.append(now - began)
            time.sleep(max(0.0, PROBE_S - (now - began)))
        return took


def _wait_until_opened(client: quoth.Client) -> None:
    """Wait until the broker has opened each topic once, as it does after its start."""
    end = time.monotonic() + OPENED_S
    while (left := client.metrics(since=1 << 62).counters["unopened"]) > 0:
        if time.monotonic() > end:
            raise error("timed_out", f"{left:,} topics are not open yet")
        say(f"{left:,} topics are to be opened")
        time.sleep(min(5.0, 0.1 + left / 1_000))


app = group()


@command(app, "pages", "quoth bench pages", "quoth bench pages --topics 1000 --pairs 1 --seconds 5s")
def pages(
    session: WithoutBroker,
    topics: Annotated[int, options.number("topics", "Topics of the broker.")] = 100_000,
    rate: Annotated[int, options.number("rate", "Records a second that are published meanwhile.")] = 50_000,
    size: options.Size = 100,
    lasts: Annotated[float, options.seconds("Length of each measurement.")] = 20.0,
    pairs: options.Pairs = 3,
    shares: Annotated[
        bool, typer.Option("--shared-cores", help="Let quoth-web and the viewer use all cores, too.")
    ] = False,
    directory: options.Directory = None,
) -> None:
    """Measure the dashboard's pages beside many topics and a load.

    The last column is the p99 of publishes while pages are viewed, divided by that without, with the smallest
    and the largest ratio. The level of durability is written.
    """
    with options.folder(directory) as made:
        data = made / "data"
        say(f"making {topics:,} topics in {data}")
        make_topics(data, topics, b"x" * size)
        cores = Cores() if shares else divided()
        with on_cores(cores.broker):
            _measure(session.printer, data, cores, topics, rate, size, lasts, pairs)


def _measure(
    printer: Printer, data: Path, cores: Cores, topics: int, rate: int, size: int, lasts: float, pairs: int
) -> None:
    conditions: dict[str, object] = {"topics": topics, "records_per_second": rate, "value_bytes": size}
    conditions |= {"level": "written", "cores": "the last one for pages" if cores.beside else "shared"}
    web = [sys.executable, "-c", "from quothweb.main import main; main()", "--port", "0", "--url"]
    load = [sys.executable, "-c", "from quothbench.load.paced import main; main()", _LOAD_READY]
    with own_broker(data, topics_max=topics + 1_000) as broker, quoth.connect(broker.url) as client:
        _wait_until_opened(client)
        with (
            serving("the load", [*load, broker.url, "load", str(rate), str(size)], _LOAD_READY),
            ExitStack() as stack,
        ):
            with on_cores(cores.beside):
                server = stack.enter_context(serving("quoth web", [*web, broker.url], _WEB_READY))
            report = Report(printer, "pages", {**conditions, "seconds": lasts, "pairs": pairs}, COLUMNS)
            PagesBench(client, server, cores, report, lasts, pairs).run()
