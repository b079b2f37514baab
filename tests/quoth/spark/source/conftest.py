"""Fixtures of the source's tests."""

from __future__ import annotations

import pytest

from kit.broker.model import BrokerModel


@pytest.fixture
def model() -> BrokerModel:
    """An empty broker in memory."""
    return BrokerModel()
