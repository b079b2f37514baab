"""Outages of the broker of the C examples, which resume within two seconds of the broker's return."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.client.outages import Figures, late, served_after
from kit.machine.networks import can_be_had
from kit.scale import times

RESUMED_S = 2.0
SECONDS = {"killed": times(3, 60), "frozen": times(3, 60)}
"""Kinds of outages, see `kit.client.outages`, and their seconds."""
GONE_S = {"gone": times(3, 60)}
"""After this time the operating system by itself would wait four seconds for its next attempt to connect."""


@pytest.mark.alone
@pytest.mark.timeout(240)
def test_both_commands_resume_within_two_seconds_of_the_brokers_return(built: Path, tmp_path: Path) -> None:
    def measure(directory: Path) -> Figures:
        seconds = {**SECONDS, **(GONE_S if can_be_had() else {})}
        figures = served_after(seconds, directory, built / "examples")
        assert {frozenset(clients) for clients in figures.values()} == {frozenset({"c.tail", "c.publish"})}
        return figures

    assert late(measure, RESUMED_S, tmp_path) == {}
