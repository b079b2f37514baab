"""A process that traces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.tracing import Traces, traced


@pytest.fixture
def traces() -> Iterator[Traces]:
    """Lets the process of the test trace."""
    with traced() as traces:
        yield traces
