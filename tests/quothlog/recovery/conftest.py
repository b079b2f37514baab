"""The wreck of a log, for the tests of opening."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.clocks import ManualClock
from kit.disk.wreck import Wreck, make_wreck


@pytest.fixture
def wreck(tmp_path: Path, directory: Path, clock: ManualClock) -> Wreck:
    """A log of three segments as a crash left it."""
    return make_wreck(tmp_path, directory, clock)
