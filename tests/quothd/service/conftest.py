"""A fixture of the tests of the daemon: a start that must fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess

Refuse = Callable[..., str]


@pytest.fixture
def refuse(tmp_path: Path) -> Refuse:
    """Start a broker that must fail with this exit status; returns what it logs."""

    def attempt(status: int, *arguments: str, directory: Path | None = None, **settings: object) -> str:
        broker = BrokerProcess(directory or tmp_path / "data", *arguments, **settings)  # type: ignore[arg-type]
        try:
            broker.launch()
            assert broker.wait() == status, broker.stderr
            assert not broker.complaints, broker.stderr
            return broker.stderr
        finally:
            broker.close()

    return attempt
