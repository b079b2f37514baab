"""The C client library passes the sessions of the conformance kit, where its driver was built."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.client.conformance import play
from kit.machine.cprograms import LIBRARY


@pytest.fixture(scope="module")
def session_driver() -> Path:
    """The driver over the library, which reads sessions and writes results: see tests/vectors/README.md."""
    program = LIBRARY / "build" / "session-driver"
    if not program.exists():
        pytest.skip(f"{program.relative_to(LIBRARY.parent)} was not built")
    return program


def test_c_client_passes_all_sessions(session_driver: Path) -> None:
    play([str(session_driver)], "--strict").hold()
