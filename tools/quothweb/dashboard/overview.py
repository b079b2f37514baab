"""The overview: what the broker does now, and what needs a person."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest

from quoth.monitoring.alarms import KINDS, Severity, lag_seconds
from quothweb.dashboard import figures
from quothweb.dashboard.markup import section, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothweb.dashboard.widgets.line_chart import BYTES, LATENCY, RECORDS, LineChart
from quothweb.monitoring.history import TrafficRates

SHOWN = 8
ALARMS_SHOWN = 20
AVERAGED_S = 60
LEVELS = {0: ("enough", "good"), 1: ("low", "warning"), 2: ("publishes are refused", "critical")}


async def overview(view: PageView) -> None:
    """Build the page, from what is known already."""
    tag("h1", "Overview")
    with tag("div", classes="cards"):
        _cards(view)
    with tag("div", classes="wide"):
        _charts(view)
    _alarms(view)
    with tag("div", classes="wide"):
        _busiest(view)
        _lagging(view)
    url = view.config.url
    copy_buttons(command(url, "status"), program(url, "print(client.status())"))


class Card:
    """A figure with a note and, where it has a limit, a bar."""

    def __init__(self, name: str, limit: str = "") -> None:
        with tag("dl", classes="card figure"):
            tag("dt", name)
            self._value = tag("dd")
            self._note = tag("dd", classes="note")
            self._bar = tag("dd") if limit else None
            if self._bar is not None:
                with self._bar:
                    self._progress = tag("progress", aria_label=limit, max=100, value=0)

    def show(self, value: str, note: str = "", tone: str = "", share: float | None = None) -> None:
        """Show other figures. share: of the limit, 0 to 1."""
        self._value.set_text(value)
        self._note.set_text(note)
        self._note.classes(replace=f"note {tone}")
        if self._bar is not None:
            self._bar.set_visibility(share is not None)
            if share is not None:
                self._progress.props["value"] = round(100 * share, 1)


def _cards(view: PageView) -> None:
    disk, memory = Card("Disk", "Used part of the disk"), Card("Memory", "Used part of memory_max")
    connections, topics = Card("Connections", "Used part of connections_max"), Card("Topics")
    lag, uptime = Card("Worst group lag"), Card("Up for")

    def refresh() -> None:
        metrics = view.observer.metrics
        if metrics is None:
            for card in (disk, memory, connections, topics, lag, uptime):
                card.show(figures.NONE)
            return
        counters = metrics.counters
        free, total = counters.get("disk_free_bytes", 0), counters.get("disk_total_bytes", 0)
        level, tone = LEVELS.get(counters.get("disk_level", 0), LEVELS[0])
        of_disk = f"free of {figures.size(total)}, {level}"
        disk.show(figures.size(free), of_disk, tone, 1 - free / total if total else None)
        used, limit = counters.get("memory_used", 0), counters.get("memory_max", 0)
        of_memory = f"of {figures.size(limit)} at most" if limit else "no limit"
        memory.show(figures.size(used), of_memory, share=used / limit if limit else None)
        opened, most = counters.get("connections", 0), counters.get("connections_max", 0)
        share = opened / most if most else None
        connections.show(figures.count(opened), f"of {most:,} at most" if most else "", share=share)
        topics.show(figures.count(metrics.topics), f"{counters.get('active', 0):,} active")
        rows = [(lag_seconds(group, view.now), name, group) for name, group in view.observer.lagging_groups()]
        seconds, name, group = max(rows, key=lambda row: row[0], default=(0.0, "", {"group": ""}))
        lag.show(figures.span(seconds), f"{group['group']} of {name}" if name else "no group is behind")
        uptime.show(figures.span(int(metrics.uptime)), metrics.server)

    view.live(refresh)


def _charts(view: PageView) -> None:
    records, size = LineChart("Records", "count", "/s"), LineChart("Bytes", "bytes", "/s")
    latency = LineChart("Time of a publish", "seconds", empty="No publishes yet")

    def refresh() -> None:
        samples = [*view.observer.history.broker]
        records.show(samples, RECORDS)
        size.show(samples, BYTES)
        latency.show(samples, LATENCY)

    view.live(refresh)


def _alarms(view: PageView) -> None:
    with section("Alarms"):
        listed = tag("div", classes="section")
    shown: list[object] = []

    def refresh() -> None:
        found = view.observer.alarms()
        if found == shown and listed.default_slot.children:
            return
        shown[:] = found
        listed.clear()
        with listed:
            for alarm in found[:ALARMS_SHOWN]:
                tone = "critical" if alarm.severity is Severity.CRITICAL else "warning"
                with tag("article", classes=f"card alarm {tone}"):
                    tag("h3", f"{alarm.subject + ': ' if alarm.subject else ''}{alarm.text}")
                    tag("p", _without_marks(KINDS[alarm.code].meaning))
                    tag("p", _without_marks(KINDS[alarm.code].action), "note")
            if len(found) > ALARMS_SHOWN:
                tag("p", f"and {len(found) - ALARMS_SHOWN:,} more, which `quoth check` prints", "muted")
            if not found:
                tag("p", "None." if view.observer.rounds else "The broker was not asked yet.", "muted")

    view.live(refresh)


def _without_marks(text: str) -> str:
    """Return a text of the documents without their marks of code."""
    return text.replace("`", "")


def _averages(view: PageView) -> Iterator[tuple[str, TrafficRates]]:
    """Yield the topics that have changed in the last minute, with their rates over all of it.

    A server that was started just now has seen less of it.
    """
    observer = view.observer
    seen = len(observer.history.broker) * observer.interval
    share = observer.interval / max(observer.interval, min(AVERAGED_S, seen))
    for name, samples in observer.history.recent(view.now - AVERAGED_S * 1_000_000):
        sums = (sum(column) for column in zip(*(one.rates for one in samples), strict=True))
        yield name, TrafficRates(*(amount * share for amount in sums))


def _busiest(view: PageView) -> None:
    columns = (
        TableColumn("name", "Topic"),
        TableColumn("in", "Records in", numeric=True),
        TableColumn("bytes", "Bytes in", numeric=True),
        TableColumn("out", "Records out", numeric=True),
    )
    with section("Busiest topics of the last minute"):
        table = DataTable("Busiest topics", columns, "No topic has changed in the last minute.")

    def refresh() -> None:
        busiest = nlargest(SHOWN, _averages(view), key=lambda row: row[1].bytes_in + row[1].bytes_out)
        table.show(
            DataRow(
                name,
                (
                    {"text": name, "href": view.topic_url(name)},
                    figures.rate(rates.records_in),
                    f"{figures.size(rates.bytes_in)}/s",
                    figures.rate(rates.records_out),
                ),
            )
            for name, rates in busiest
        )

    view.live(refresh)


def _lagging(view: PageView) -> None:
    columns = (
        TableColumn("group", "Group"),
        TableColumn("topic", "Topic"),
        TableColumn("records", "Records behind", numeric=True),
        TableColumn("lag", "Lag", numeric=True),
    )
    with section("Groups that are behind"):
        table = DataTable("Groups that are behind", columns, "No group is behind.")

    def refresh() -> None:
        rows = ((lag_seconds(group, view.now), name, group) for name, group in view.observer.lagging_groups())
        table.show(
            DataRow(
                f"{name}/{group['group']}",
                (
                    {"text": group["group"], "href": view.topic_url(name, "group", group["group"])},
                    {"text": name, "href": view.topic_url(name)},
                    figures.count(group["lag"]),
                    figures.span(seconds),
                ),
            )
            for seconds, name, group in nlargest(SHOWN, rows, key=lambda row: row[0])
        )

    view.live(refresh)
