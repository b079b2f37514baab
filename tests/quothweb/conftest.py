"""Fixtures of the tests of quoth-web: real servers for real brokers, and their clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from kit.broker.brokers import BrokerProcess
from kit.web.servers import WebProcess

StartWeb = Callable[..., WebProcess]


@pytest.fixture
def start_web() -> Iterator[StartWeb]:
    """Start a server: `start_web(broker.url, payloads=False)`."""
    started: list[WebProcess] = []

    def start(url: str, *arguments: str, **settings: Any) -> WebProcess:
        started.append(WebProcess(*arguments, url=url, **settings))
        return started[-1].start()

    yield start
    for web in started:
        web.end()


@pytest.fixture(scope="module")
def web(broker: BrokerProcess) -> Iterator[WebProcess]:
    """Start a server for all tests of a file, which lets requests change topics. Use `topic` for names."""
    with WebProcess(url=broker.url, allow_actions=True).running() as web:
        yield web


@pytest.fixture
def http(web: WebProcess) -> Iterator[httpx.Client]:
    """Return a client of that server."""
    with web.client() as client:
        yield client
