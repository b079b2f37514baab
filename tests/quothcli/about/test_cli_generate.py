"""`quoth generate`: files for Prometheus and Grafana, judged by promtool and by what is really scraped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.machine.commands import Command
from quothcli.generated.grafana import HEIGHT, WIDTH, dashboard
from quothcli.generated.prometheus import ALERTS

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool: apt-get install prometheus"
)


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@needs_promtool
def test_prometheus_takes_the_configuration_and_the_alerts(alone: Command, tmp_path: Path) -> None:
    for more in ((), ("--token-file", "token", "--target", "[::1]:8080", "--interval", "1m")):
        assert alone("generate", "prometheus", str(tmp_path), "--force", *more).status == 0
        (tmp_path / "token").write_text("secret")
        found = promtool(tmp_path, "check", "config", "quoth-prometheus.yml")
        assert found.returncode == 0, found.stdout + found.stderr
        assert f"{len(ALERTS)} rules found" in found.stdout


CASES = """
rule_files: [quoth-alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'quoth_up{instance="a"}', values: "1 1 0 0 0 0"}
      - {series: 'quoth_group_lag_seconds{topic="orders", group="billing"}', values: "0+100x20"}
    alert_rule_test:
      - eval_time: 1m
        alertname: QuothUnreachable
        exp_alerts: []
      - eval_time: 4m
        alertname: QuothUnreachable
        exp_alerts:
          - exp_labels: {severity: critical, instance: a}
            exp_annotations:
              summary: The broker does not answer
              description: quoth web at a gets no answer of its broker. systemctl status quothd
      - eval_time: 8m
        alertname: QuothGroupBehind
        exp_alerts: []
      - eval_time: 12m
        alertname: QuothGroupBehind
        exp_alerts:
          - exp_labels: {severity: warning, topic: orders, group: billing}
            exp_annotations:
              summary: Group billing of orders is behind
              description: Its oldest record is 20m 0s old. quoth group info shows its members.
"""


@needs_promtool
def test_alerts_are_raised_and_not_before_their_time(alone: Command, tmp_path: Path) -> None:
    assert alone("generate", "prometheus", str(tmp_path)).status == 0
    (tmp_path / "cases.yml").write_text(CASES)
    found = promtool(tmp_path, "test", "rules", "cases.yml")
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_file_that_is_there_is_replaced_only_by_force(alone: Command, tmp_path: Path) -> None:
    (tmp_path / "quoth-alerts.yml").write_text("mine")
    code, hint = alone("generate", "prometheus", str(tmp_path)).refused(1)
    assert code.startswith("quoth: exists: ")
    assert "--force" in hint
    assert [path.name for path in tmp_path.iterdir()] == ["quoth-alerts.yml"]
    assert (tmp_path / "quoth-alerts.yml").read_text() == "mine"
    assert alone("generate", "prometheus", str(tmp_path), "--force").status == 0
    assert "QuothUnreachable" in (tmp_path / "quoth-alerts.yml").read_text()


def test_panels_of_the_dashboard_lie_side_by_side_without_overlap(alone: Command, tmp_path: Path) -> None:
    assert alone("generate", "grafana", str(tmp_path / "new")).status == 0
    found = json.loads((tmp_path / "new/quoth-dashboard.json").read_text())
    assert found == json.loads(json.dumps(dashboard()))
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len(taken) % WIDTH == 0, f"each row is full, {HEIGHT} high"
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    assert all(re.fullmatch(r"[A-Z][A-Za-z ]+", panel["title"]) for panel in found["panels"])
