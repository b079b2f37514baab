"""Subscribers that the tests of the announcements share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kit.broker.peers import Peers, Subscriber
from kit.broker.subscribers import Flood


@pytest.fixture
def flood() -> Iterator[Callable[..., Flood]]:
    """Start processes with many subscriptions: `Flood`."""
    started: list[Flood] = []

    def start(url: str, prefixes: int, sockets: int) -> Flood:
        started.append(Flood(url, prefixes, sockets))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def subscribe(peers: Peers) -> Callable[..., Subscriber]:
    """Make a subscriber to prefixes, at a URL of announcements."""
    return lambda url, *prefixes: peers.keep(Subscriber(peers.context, url, *prefixes))
