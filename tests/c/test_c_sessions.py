"""The C library passes the sessions of the conformance kit."""

from __future__ import annotations

import sys
from pathlib import Path

from kit.client.conformance import play

DRIVER = Path(__file__).with_name("session_driver.py")


def test_c_client_passes_all_sessions(built: Path) -> None:
    play([sys.executable, str(DRIVER), str(built / "calls")], "--strict").hold()
