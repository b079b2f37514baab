"""`quoth check`: its line, its exit status and its figures."""

from __future__ import annotations

import json
import re

import pytest

from kit.broker.brokers import StartBroker
from kit.deadlines import eventually
from kit.machine.commands import Command
from kit.machine.ports import free_port

FIGURES = re.compile(r"lag=[\d.]+s;300;\S*;0 lag_records=\d+;;\d*;0 free=\d+B;;\d+:;0;\d+ topics=\d+")


@pytest.fixture
def command(start_broker: StartBroker, alone: Command) -> Command:
    """The command, for a broker whose topics report at once."""
    broker = start_broker(check_interval="0.02")

    def run(*arguments: str, **options: object) -> object:
        return alone(*arguments, "--url", broker.url, **options)  # type: ignore[arg-type]

    return run  # type: ignore[return-value]


def test_a_broker_without_alarms_is_fine(command: Command) -> None:
    assert command("pub", "orders", "a").status == 0
    eventually(lambda: "free=" in command("check").lines[0], "the broker has looked at its disk")
    found = command("check")
    assert (found.status, len(found.lines)) == (0, 1)
    text, figures = found.lines[0].split(" | ")
    assert text == "QUOTH OK - no alarm"
    assert FIGURES.fullmatch(figures)


def test_a_group_that_is_behind_is_critical(command: Command) -> None:
    assert command("pub", "orders", "a", "b").status == 0
    assert command("group", "create", "orders", "billing").status == 0
    limits = ("--max-lag", "1ms")
    eventually(lambda: command("check", *limits).status == 2, "the group has reported")
    first, alarm, action = command("check", *limits).lines
    assert first.startswith("QUOTH CRITICAL - orders/billing: 2 records behind, the oldest ")
    assert alarm.startswith("critical: group_lag: orders/billing: ")
    assert "quoth group info" in action
    assert command("check", "--max-lag-records", "1").status == 2
    assert command("check", "--max-lag-records", "2", "--max-lag", "1h").status == 0
    assert command("check", "--warn-lag", "1ms").status == 1
    assert command("check", *limits, "--group", "orders/billing").status == 2
    other = command("check", *limits, "--group", "orders/other")
    assert other.status == 3
    assert other.lines[0].startswith("QUOTH UNKNOWN - orders/other: there is no such group")


def test_free_space_is_compared_with_a_share_and_a_size(command: Command) -> None:
    eventually(lambda: "free=" in command("check").lines[0], "the broker has looked at its disk")
    assert command("check", "--min-free", "0%").status == 0
    for limit in ("100%", "1000 TiB"):
        found = command("check", "--min-free", limit)
        assert found.status == 2
        assert "of the disk are free, less than" in found.lines[0]


def test_json_has_the_alarms_and_raw_the_state(command: Command) -> None:
    eventually(lambda: "free=" in command("check").lines[0], "the broker has looked at its disk")
    found = json.loads(command("check", "--min-free", "100%", "--format", "json").out)
    assert found["state"] == "critical"
    ((alarm),) = found["alarms"]
    assert (alarm["code"], alarm["severity"], alarm["subject"]) == ("disk_low", "critical", "")
    assert set(found["figures"]) == {"lag", "lag_records", "free", "topics"}
    assert command("check", "--format", "raw").out == b"OK\n"


def test_a_broker_that_is_away_is_critical(alone: Command) -> None:
    found = alone("check", "--url", f"tcp://127.0.0.1:{free_port()}", "--timeout", "0.2")
    assert found.status == 2
    assert found.lines[0].startswith("QUOTH CRITICAL - ")
    assert found.lines[1].startswith("critical: unreachable: ")
    assert " | " not in found.lines[0], "there are no figures"


@pytest.mark.parametrize("option", ["--max-lag", "--warn-lag", "--max-idle", "--min-free"])
def test_a_wrong_limit_is_not_known_instead_of_critical(alone: Command, option: str) -> None:
    found = alone("check", option, "soon")
    assert found.status == 3
    assert found.lines[0].startswith(f"QUOTH UNKNOWN - {option}: ")
