"""The example of a sensor: its short form, in which everything happens at least once, and its verdict."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kit.machine.commands import Ended
from kit.scale import LONG

MINUTES = 3.0 if LONG else 0.25
DISK_BYTES = 100_000
"""What the device may hold in the end: a file of 64 KiB that is not full, and what lies beside it."""
INCIDENTS = (
    *("reboots", "crashes of the sensor", "crashes of the forwarder"),
    *("drops", "delays", "stalls", "losses of answers", "dark times", "deaths of the link"),
    *("kills of the broker", "stops of the broker", "connections cut"),
)


@pytest.mark.timeout(MINUTES * 60 + 120)
def test_readings_arrive_once_through_reboots_and_a_bad_link(
    run_example: Callable[..., Ended], seed: int
) -> None:
    """The device's disk holds only what the broker does not have yet."""
    command = sys.executable, "-W", "error", "sensor", "--minutes", str(MINUTES), "--seed", str(seed)
    ended = run_example(*command, seconds=MINUTES * 60 + 100)
    assert ended.status == 0
    (line,) = ended.lines
    amounts = {name: int(count.replace(",", "")) for count, name in re.findall(r"(\d[\d,]*) ([a-z ]+)", line)}
    assert {name for name in INCIDENTS if not amounts[name]} == set()
    assert amounts["readings have arrived"] >= amounts["readings confirmed"] > 500 * MINUTES
    assert amounts["readings have arrived"] == amounts["sent"]
    assert amounts["bytes on the device"] < DISK_BYTES


@pytest.mark.parametrize(
    ("stored", "problems"),
    [
        ([(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)], []),
        ([(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1)], []),
        ([(1, 1), (1, 3), (2, 1), (2, 2)], ["missing: 1.2"]),
        ([(1, 1), (1, 2), (1, 3)], ["missing: 2.1, 2.2"]),
        ([(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 4)], ["missing: 2.3"]),
        ([(1, 1), (1, 2), (1, 2), (1, 3), (2, 1), (2, 2)], ["doubled: 1.2"]),
        ([(1, 1), (1, 3), (1, 2), (2, 1), (2, 2)], ["disordered: 1.2"]),
        ([(2, 1), (2, 2), (1, 1), (1, 2), (1, 3)], ["disordered: 1.1"]),
    ],
)
def test_verdict_names_what_is_missing_doubled_or_out_of_order(
    load_example: Callable[[str], Any], stored: list[tuple[int, int]], problems: list[str]
) -> None:
    """Of two starts of the device, with three and with two confirmed readings; others may arrive, too."""
    assert load_example("sensor/audit.py").audit({1: 3, 2: 2}, stored).problems == problems
