"""Fixtures of the tests of the dashboard: one browser for the tests of a file, watched pages, a client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

import quoth
from kit.broker.brokers import BrokerProcess
from kit.web.browsers import WatchedBrowser, chromium, executable
from quoth import Client


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Start a browser; skips the test without Chromium."""
    if not executable():
        pytest.skip("there is no Chromium: apt-get install chromium")
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(chrome: Browser) -> Iterator[WatchedBrowser]:
    """Return a browser whose pages may raise no error, open no dialog and ask no other machine."""
    watched = WatchedBrowser(chrome)
    yield watched
    watched.close()
    assert not watched.problems, watched.problems


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    """Return a client of the broker."""
    with quoth.connect(broker.url) as client:
        yield client
