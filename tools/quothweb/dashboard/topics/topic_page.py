"""The page of one topic: its figures, its groups, its settings and its segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import RedirectResponse, Response

from quoth.monitoring.alarms import lag_seconds
from quothweb.dashboard import figures
from quothweb.dashboard.groups.group_list import state_cell
from quothweb.dashboard.markup import banner, facts, section, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program, topic_words
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.topics.topic_head import topic_head
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothweb.dashboard.widgets.line_chart import BYTES, LATENCY, RECORDS, LineChart
from quothweb.monitoring.history import TrafficRates, TrafficSample
from quothwire.errors import QuothError
from quothwire.protocol.messages import TopicInfo
from quothwire.text.quantity import format_size, format_span

GROUPS = (
    TableColumn("group", "Group"),
    TableColumn("mode", "Mode"),
    TableColumn("records", "Records behind", numeric=True),
    TableColumn("lag", "Lag", numeric=True),
    TableColumn("flight", "In flight", numeric=True),
    TableColumn("dead", "Dead letters", numeric=True),
    TableColumn("state", "State"),
)
WHENCE = (
    "They were given at its creation or by an update; the others are the defaults that the broker had when "
    "the topic was created. It does not report which these are."
)
GAP = 2.5
"""Rounds without a sample after which a topic was silent; a round may be late."""
STATES = {"w": "active", "r": "open", "h": "hibernating"}
SPANS, SIZES = ("max_age", "age_limit"), ("max_bytes", "size_limit")
MEANINGS = {
    "durability": "the level of a publish that names none",
    "max_age": "older records are removed, a whole segment at a time",
    "max_bytes": "above it the oldest segments are removed",
    "size_limit": "a larger segment is sealed",
    "count_limit": "a segment with more records is sealed",
    "age_limit": "an older segment is sealed",
    "retention": "until_acked removes what all groups have finished, too",
}


async def topic_page(view: PageView) -> Response | None:
    """Build the page, from the last known state while the broker is away."""
    topic: str = view.request.path_params["topic"]
    if at := view.query("at"):
        return RedirectResponse(view.topic_url(topic, "records", at=at, record=view.query("record")), 307)
    info: TopicInfo | None = None
    try:
        info = await view.ask(lambda client: client.topic(topic))
    except QuothError as problem:
        if problem.code == "unknown_topic" or topic not in view.observer.topics:
            raise
    topic_head(view, topic, "")
    if info is not None and info.problem:
        banner(info.problem, "critical")
    _figures(view, topic, info)
    _charts(view, topic)
    _groups(view, topic)
    with tag("div", classes="wide"):
        _settings(info)
        _segments(info)
    url = view.config.url
    call = f"print(client.topic({topic!r}))"
    copy_buttons(command(url, *topic_words(topic, "topic", "info")), program(url, call))
    return None


def _figures(view: PageView, topic: str, info: TopicInfo | None) -> None:
    names = ("Records", "Bytes", "Records in", "Oldest", "Newest", "Segments")
    with tag("div", classes="cards"):
        values = {}
        for name in names:
            with tag("dl", classes="card figure"):
                tag("dt", name)
                values[name] = (tag("dd"), tag("dd", classes="note"))

    def refresh() -> None:
        row: dict[str, Any] = dict(view.observer.topics.get(topic, {}))
        if "count" not in row and info is not None:
            row |= {name: getattr(info, name) for name in ("count", "bytes", "first", "last", "segments")}
        rates = view.observer.rates.get(topic)
        first, last = row.get("first", 0), row.get("last", 0)
        shown = {
            "Records": (figures.count(row.get("count")), ""),
            "Bytes": (figures.size(row.get("bytes")), ""),
            "Records in": (figures.rate(rates.records_in if rates else 0.0), ""),
            "Oldest": (figures.age(first, view.now), figures.second(first)),
            "Newest": (figures.age(last, view.now), figures.second(last)),
            "Segments": (figures.count(row.get("segments")), ""),
        }
        for name, (value, note) in shown.items():
            values[name][0].set_text(value)
            values[name][1].set_text(note)

    view.live(refresh)


def _charts(view: PageView, topic: str) -> None:
    with tag("div", classes="wide"):
        records = LineChart("Records", "count", "/s", "No records in the last minutes")
        size = LineChart("Bytes", "bytes", "/s", "No records in the last minutes")
        latency = LineChart("Publish, whole broker", "seconds", empty="No publishes yet")

    def refresh() -> None:
        samples = without_gaps(view.observer.history.of_topic(topic), view.now, view.observer.interval)
        records.show(samples, RECORDS)
        size.show(samples, BYTES)
        latency.show([*view.observer.history.broker], LATENCY)

    view.live(refresh)


def without_gaps(samples: Sequence[TrafficSample], now: int, interval: float) -> list[TrafficSample]:
    """Add samples of 0 where a topic has none, since it has not changed.

    now: the time of the last round. interval: seconds between two rounds.
    """
    step = round(interval * 1e6)
    found: list[TrafficSample] = []
    for sample in samples:
        if found and sample.time - found[-1].time > GAP * step:
            found += [_silent(found[-1].time + step), _silent(sample.time - step)]
        found.append(sample)
    if found and now - found[-1].time > GAP * step:
        found.append(_silent(found[-1].time + step))
    if found and now > found[-1].time:
        found.append(_silent(now))
    return found


def _silent(time: int) -> TrafficSample:
    return TrafficSample(time, TrafficRates())


def _groups(view: PageView, topic: str) -> None:
    with section("Groups"):
        table = DataTable("Groups of the topic", GROUPS, "No group reads this topic. Reading needs none.")

    def refresh() -> None:
        groups = view.observer.topics.get(topic, {}).get("groups", ())
        table.show(
            DataRow(
                group["group"],
                (
                    {
                        "text": printable(group["group"]),
                        "href": view.topic_url(topic, "group", group["group"]),
                    },
                    group["mode"],
                    figures.count(group["lag"]),
                    figures.span(lag_seconds(group, view.now)),
                    figures.count(group["in_flight"]),
                    figures.count(group["dead"]),
                    state_cell(group),
                ),
            )
            for group in groups
        )

    view.live(refresh)


def _settings(info: TopicInfo | None) -> None:
    with section("Settings"):
        if info is None:
            tag("p", "Not known while the broker is away.", "muted")
            return
        with tag("div", classes="card section"):
            facts(
                [
                    (name, f"{_setting(name, value)} - {MEANINGS.get(name, '')}".removesuffix(" - "))
                    for name, value in info.settings.items()
                ]
            )
            tag("p", WHENCE, "note")


def _setting(name: str, value: Any) -> str:
    if value in (0, 0.0):
        return "no limit"
    if name in SPANS:
        return format_span(value)
    return format_size(value) if name in SIZES else f"{value:,}" if isinstance(value, int) else str(value)


def _segments(info: TopicInfo | None) -> None:
    with section("Segments and log"):
        if info is None:
            tag("p", "Not known while the broker is away.", "muted")
            return
        counts = {name: info.states.count(letter) for letter, name in STATES.items()}
        events = [(name.replace("_", " "), f"{value:,}") for name, value in info.counters.items() if value]
        with tag("div", classes="card"):
            facts(
                [
                    ("segments", f"{info.segments:,}"),
                    *((name, f"{count:,}") for name, count in counts.items() if count),
                    ("log", f"{info.log:016x}"),
                    ("records ever", f"{info.first_ordinal + info.count:,}"),
                    *events,
                ]
            )
