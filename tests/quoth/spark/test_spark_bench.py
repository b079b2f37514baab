"""What measures the source: the same rows from a topic, from Parquet and as tuples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit.brokers import BrokerProcess
from quoth import Client
from quothcli.bench.report import Report
from quothcli.bench.spark import COLUMNS, Bench, fill
from quothcli.formats import Format
from quothcli.output import Printer


def test_the_three_are_measured_in_turn_and_compared(
    spark: Any,
    broker: BrokerProcess,
    client: Client,
    topic: str,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    fill(client, topic, rows=2_000, size=100)
    report = Report(Printer(Format.JSON), "spark", {"rows": 2_000}, COLUMNS)
    Bench(spark, broker.url, topic, tmp_path, report, parts=2).run(rounds=1)
    _, *rows = map(json.loads, capsysbinary.readouterr().out.splitlines())
    assert [row["source"] for row in rows] == ["topic", "parquet", "tuples"]
    assert all(row["rows_per_second"] > 0 for row in rows)
    assert [row["ratio"] and row["ratio"]["median"] > 0 for row in rows] == [None, True, True]
