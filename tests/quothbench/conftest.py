"""Fixtures of the tests of the benchmarks: `quoth` as a real process, ended by its pid in any case."""

from __future__ import annotations

import pytest

from kit.machine.commands import Command, Running


@pytest.fixture
def alone(running: list[Running]) -> Command:
    """`quoth` without a broker."""
    return Command("", running)
