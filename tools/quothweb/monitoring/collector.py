"""Makes metrics for Prometheus of the last state of the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, islice
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from quoth.monitoring.alarms import Severity, lag_seconds
from quothweb.monitoring.metric_table import (
    DURATIONS,
    OF_BROKER,
    OF_GROUP,
    OF_TOPIC,
    PREFIX,
    REQUESTS,
    Metric,
)
from quothweb.monitoring.observer import BrokerObserver, Row

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(observer: BrokerObserver, topics_max: int) -> bytes:
    """Return the metrics in Prometheus' text format. topics_max: topics with metrics of their own."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(observer, topics_max))
    return generate_latest(registry)


class BrokerCollector(Collector):
    """Collects the metrics of a broker. Topics beyond `topics_max` are only counted."""

    def __init__(self, observer: BrokerObserver, topics_max: int) -> None:
        self._observer = observer
        self._topics_max = topics_max

    def describe(self) -> Iterable[Family]:
        """Return no metrics: they depend on the broker."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield the metrics."""
        observer = self._observer
        yield _single("up", "1 if the broker has answered in the last round.", float(observer.is_reachable))
        yield _alarms(observer)
        metrics = observer.metrics
        if metrics is None:
            return
        yield _single("observation_age_seconds", "Time since the last answer of the broker.", observer.age)
        build = GaugeMetricFamily(f"{PREFIX}build_info", "The version of the broker.", labels=("version",))
        build.add_metric((metrics.server.rpartition(" ")[2],), 1.0)
        yield build
        yield _single("uptime_seconds", "Time since the start of the broker.", metrics.uptime)
        yield _single("topics", "Topics.", metrics.topics)
        if (active := metrics.counters.get("active")) is not None:
            yield _single("topics_hibernating", "Topics without a thread.", metrics.topics - active)
        yield from _of_counters(metrics.counters)
        errors = CounterMetricFamily(f"{PREFIX}errors", "Refused requests by code.", labels=("code",))
        for code, number in sorted(metrics.errors.items()):
            errors.add_metric((code,), number)
        yield errors
        requests = HistogramMetricFamily(PREFIX + REQUESTS.name, REQUESTS.help, labels=("operation",))
        for operation, found in sorted(metrics.requests.items()):
            requests.add_metric((operation,), _buckets(found), found["sum"])
        yield requests
        for name, metric in DURATIONS.items():
            if (found := metrics.durations.get(name)) is not None:
                family = HistogramMetricFamily(PREFIX + metric.name, metric.help)
                family.add_metric((), _buckets(found), found["sum"])
                yield family
        rows = [observer.topics[name] for name in islice(observer.names(), self._topics_max)]
        yield from _of_topics(rows)
        hidden = len(observer.topics) - len(rows)
        yield _single("topics_without_metrics", "Topics beyond `topics_shown_max`.", hidden)
        yield from _of_groups(rows, metrics.time)


def _of_counters(counters: Mapping[str, float]) -> Iterator[Family]:
    """Yield the metrics of counters of the broker; one that is not known is a gauge with its name."""
    for name, number in counters.items():
        metric = OF_BROKER.get(name) or Metric(name, "A counter of a later broker.")
        family = _family(metric)
        family.add_metric((), number * metric.scale)
        yield family


def _of_topics(rows: Iterable[Row]) -> Iterator[Family]:
    opened = [row for row in rows if "last" in row]
    for key, metric in OF_TOPIC.items():
        family = _family(metric, ("topic",))
        for row in opened:
            family.add_metric((row["name"],), row[key] * metric.scale)
        yield family


def _of_groups(rows: Iterable[Row], now: int) -> Iterator[Family]:
    groups = [((row["name"], one["group"]), one) for row in rows for one in row.get("groups", ())]
    labels = ("topic", "group")
    for key, metric in OF_GROUP.items():
        family = _family(metric, labels)
        for names, one in groups:
            family.add_metric(names, one[key] * metric.scale)
        yield family
    lag = GaugeMetricFamily(
        f"{PREFIX}group_lag_seconds",
        "Age of the oldest record that is not finished, 0 for none.",
        labels=labels,
    )
    idle = GaugeMetricFamily(f"{PREFIX}group_idle_seconds", "Time since the last request.", labels=labels)
    for names, one in groups:
        lag.add_metric(names, lag_seconds(one, now))
        idle.add_metric(names, max(0.0, (now - one["used"]) / 1e6))
    yield lag
    yield idle


def _alarms(observer: BrokerObserver) -> Family:
    """Return the number of alarms of each kind; how many of each severity there are follows."""
    family = GaugeMetricFamily(f"{PREFIX}alarms", "Alarms by kind.", labels=("alarm", "severity"))
    counted = Counter((one.code, one.severity) for one in observer.alarms())
    for (code, severity), number in sorted(counted.items()):
        family.add_metric((code, Severity(severity).name.lower()), number)
    return family


def _buckets(found: Mapping[str, Any]) -> list[tuple[str, float]]:
    bounds = [*(f"{bound:g}" for bound in found["buckets"]), "+Inf"]
    return [*zip(bounds, accumulate(found["counts"]), strict=True)]


def _family(metric: Metric, labels: tuple[str, ...] = ()) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
    return kind(PREFIX + metric.name, metric.help, labels=labels)


def _single(name: str, text: str, number: float) -> Family:
    family = GaugeMetricFamily(PREFIX + name, text)
    family.add_metric((), number)
    return family
