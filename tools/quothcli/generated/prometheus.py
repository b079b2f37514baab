"""A configuration of Prometheus: what it scrapes of `quoth web`, and alerts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ALERTS_FILE = "quoth-alerts.yml"


class Alert(NamedTuple):
    """An alert. holds: for how long its expression has to be true. severity: warning, or critical."""

    name: str
    expression: str
    holds: str
    severity: str
    summary: str
    description: str


ALERTS = (
    Alert(
        "QuothUnreachable",
        "quoth_up == 0",
        "1m",
        "critical",
        "The broker does not answer",
        "quoth web at {{ $labels.instance }} gets no answer of its broker. systemctl status quothd",
    ),
    Alert(
        "QuothWebDown",
        'up{job="quoth"} == 0',
        "2m",
        "critical",
        "The metrics of the broker cannot be scraped",
        "{{ $labels.instance }} does not answer. systemctl status quoth-web",
    ),
    Alert(
        "QuothAlarmCritical",
        'quoth_alarms{severity="critical", alarm!="unreachable"} > 0',
        "1m",
        "critical",
        "Alarm {{ $labels.alarm }}",
        "{{ $value }} times. quoth check names the topics, and says what to do.",
    ),
    Alert(
        "QuothAlarmWarning",
        'quoth_alarms{severity="warning", alarm!~"opening|group_lag"} > 0',
        "15m",
        "warning",
        "Alarm {{ $labels.alarm }}",
        "{{ $value }} times. quoth check names the topics, and says what to do.",
    ),
    Alert(
        "QuothGroupBehind",
        "quoth_group_lag_seconds > 300",
        "5m",
        "warning",
        "Group {{ $labels.group }} of {{ $labels.topic }} is behind",
        "Its oldest record is {{ $value | humanizeDuration }} old. quoth group info shows its members.",
    ),
    Alert(
        "QuothGroupUnused",
        "quoth_group_idle_seconds > 3600 and quoth_group_lag_records > 0",
        "5m",
        "warning",
        "Group {{ $labels.group }} of {{ $labels.topic }} has no member",
        "It has unfinished records, and was not used for {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "QuothDiskFills",
        "predict_linear(quoth_disk_free_bytes[6h], 86400) < 0",
        "1h",
        "warning",
        "The disk of the broker is full within a day",
        "At the rate of the last six hours. Shorten the retention of topics, or give the disk more room.",
    ),
    Alert(
        "QuothPublishesSlow",
        "histogram_quantile(0.99, sum by (le, instance) "
        '(rate(quoth_request_seconds_bucket{operation="publish"}[5m]))) > 0.5',
        "10m",
        "warning",
        "Publishes take long",
        "One of a hundred takes more than {{ $value | humanizeDuration }}. Look at the durations of fsyncs.",
    ),
    Alert(
        "QuothRequestsRefused",
        "sum by (code, instance) "
        '(rate(quoth_errors_total{code=~"busy|disk_low|quota_exceeded|storage_failed"}[5m])) > 1',
        "10m",
        "warning",
        "Requests are refused: {{ $labels.code }}",
        "{{ $value | humanize }} a second. quoth errors {{ $labels.code }} says what to do.",
    ),
)


def configuration_text(target: str, token_file: Path | None, interval: str) -> str:
    """Return a whole configuration, whose entries can be copied into another one. target: HOST:PORT."""
    lines = [
        "# Prometheus for a broker of Quoth: a configuration of its own, or entries to copy into yours.",
        f"rule_files: [{ALERTS_FILE}]",
        "scrape_configs:",
        "  - job_name: quoth",
        f"    scrape_interval: {interval}",
        "    static_configs:",
        f"      - targets: [{json.dumps(target)}]",
    ]
    if token_file is not None:
        lines += ["    authorization:", f"      credentials_file: {json.dumps(str(token_file))}"]
    return "\n".join([*lines, ""])


def alerts_text() -> str:
    """Return the alerts, as a file of ``rule_files``."""
    return "\n".join(
        [
            "# Alerts of a broker of Quoth. quoth check has the same alarms, and says what to do.",
            "groups:",
            "  - name: quoth",
            "    rules:",
            *(line for alert in ALERTS for line in _rule(alert)),
            "",
        ]
    )


def _rule(alert: Alert) -> Iterator[str]:
    """Yield the lines of an alert. JSON's texts are texts of YAML, too."""
    yield f"      - alert: {alert.name}"
    yield f"        expr: {json.dumps(alert.expression)}"
    yield f"        for: {alert.holds}"
    yield "        labels:"
    yield f"          severity: {alert.severity}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(alert.summary)}"
    yield f"          description: {json.dumps(alert.description)}"
