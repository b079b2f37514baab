"""A dashboard for Grafana, made of a table of its panels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

WIDTH, HEIGHT = 24, 8
"""Columns of a dashboard, and rows of a panel."""
SMALL_WIDTH, SMALL_HEIGHT = 4, 4
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_ON = 'instance=~"$instance"'


class Panel(NamedTuple):
    """A panel. queries: each with its legend. unit: as Grafana names it."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: str = ""


def _quantiles(metric: str, more: str = "") -> tuple[tuple[str, str], ...]:
    labels = f"{_ON}{', ' if more else ''}{more}"
    return tuple(
        (
            f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{{labels}}}[$__rate_interval])))",
            f"p{share * 100:g}",
        )
        for share in (0.5, 0.95, 0.99)
    )


def _rate(metric: str, legend: str, by: str = "") -> tuple[str, str]:
    rate = f"rate({metric}{{{_ON}}}[$__rate_interval])"
    return (f"topk(10, sum by ({by}) ({rate}))" if by else f"sum({rate})", legend)


FIGURES = (
    Panel("Broker", "none", ((f"min(quoth_up{{{_ON}}})", "answers"),), "1 while the broker answers."),
    Panel(
        "Critical alarms", "none", ((f'sum(quoth_alarms{{{_ON}, severity="critical"}}) or vector(0)', ""),)
    ),
    Panel("Worst group lag", "s", ((f"max(quoth_group_lag_seconds{{{_ON}}})", ""),)),
    Panel("Free disk", "bytes", ((f"min(quoth_disk_free_bytes{{{_ON}}})", ""),)),
    Panel("Topics", "none", ((f"sum(quoth_topics{{{_ON}}})", ""),)),
    Panel("Connections", "none", ((f"sum(quoth_connections{{{_ON}}})", ""),)),
)
"""One number each, in the first row."""
CHARTS = (
    Panel(
        "Records a second",
        "ops",
        (_rate("quoth_records_in_total", "in"), _rate("quoth_records_out_total", "out")),
    ),
    Panel(
        "Bytes a second", "Bps", (_rate("quoth_bytes_in_total", "in"), _rate("quoth_bytes_out_total", "out"))
    ),
    Panel("Duration of publishes", "s", _quantiles("quoth_request_seconds", 'operation="publish"')),
    Panel("Duration of fetches", "s", _quantiles("quoth_request_seconds", 'operation="fetch"')),
    Panel("Duration of writes", "s", _quantiles("quoth_append_seconds")),
    Panel("Duration of fsyncs", "s", _quantiles("quoth_fsync_seconds")),
    Panel("Busiest topics", "ops", (_rate("quoth_topic_records_in_total", "{{topic}}", "topic"),)),
    Panel("Largest topics", "bytes", ((f"topk(10, quoth_topic_size_bytes{{{_ON}}})", "{{topic}}"),)),
    Panel(
        "Lag of groups in seconds",
        "s",
        ((f"topk(10, quoth_group_lag_seconds{{{_ON}}})", "{{topic}}/{{group}}"),),
        "Age of the oldest record that is not finished.",
    ),
    Panel(
        "Lag of groups in records",
        "none",
        ((f"topk(10, quoth_group_lag_records{{{_ON}}})", "{{topic}}/{{group}}"),),
    ),
    Panel(
        "Redelivered records and dead letters a second",
        "ops",
        (
            _rate("quoth_group_redelivered_records_total", "redelivered"),
            _rate("quoth_group_dead_letters_total", "dead letters"),
        ),
    ),
    Panel("Refused requests a second", "ops", (_rate("quoth_errors_total", "{{code}}", "code"),)),
    Panel(
        "Memory",
        "bytes",
        (
            (f"sum(quoth_memory_used_bytes{{{_ON}}})", "used"),
            (f"sum(quoth_memory_max_bytes{{{_ON}}})", "limit"),
        ),
    ),
    Panel(
        "Topics and fetches that wait",
        "none",
        (
            (f"sum(quoth_topics_active{{{_ON}}})", "active topics"),
            (f"sum(quoth_waits{{{_ON}}})", "waiting fetches"),
        ),
    ),
)
"""Charts over time, two in a row."""


def dashboard() -> dict[str, Any]:
    """Return the dashboard, to be imported into Grafana. Its data source is a variable."""
    return {
        "title": "Quoth",
        "uid": "quoth-broker",
        "schemaVersion": 39,
        "tags": ["quoth"],
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [*_variables()]},
        "panels": [*_panels()],
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    yield {
        "name": "instance",
        "label": "Broker",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(quoth_up, instance)", "refId": "instances"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    number = 0
    for row, panel in enumerate(FIGURES):
        number += 1
        place = {"x": SMALL_WIDTH * row, "y": 0, "w": SMALL_WIDTH, "h": SMALL_HEIGHT}
        yield _panel(number, panel, "stat", place)
    for row, panel in enumerate(CHARTS):
        number += 1
        column, line = row % 2, row // 2
        half = WIDTH // 2
        place = {"x": half * column, "y": SMALL_HEIGHT + HEIGHT * line, "w": half, "h": HEIGHT}
        yield _panel(number, panel, "timeseries", place)


def _panel(number: int, panel: Panel, kind: str, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + row),
            "datasource": _SOURCE,
            "expr": query,
            "legendFormat": legend or "__auto",
        }
        for row, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "title": panel.title,
        "description": panel.about,
        "type": kind,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if kind == "stat" else {},
        "targets": targets,
    }
