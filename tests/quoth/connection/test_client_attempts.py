"""The error of a client that finds no broker has the reason and the time of the attempts."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess, free_port
from kit.client.records import Connect
from kit.deadlines import eventually
from quoth import Disconnected

TRIED = r", tried for (\d+ milliseconds|[\d.]+ seconds?)$"


def failure(twin: Connect, url: str, timeout: float = 0.3) -> Disconnected:
    """Return the error of a client that finds no broker."""
    with pytest.raises(Disconnected) as caught:
        twin(url, timeout=timeout)
    assert caught.value.code == "disconnected"
    assert caught.value.text.startswith(f"hello: no broker answers at {url}: ")
    return caught.value


def says(twin: Connect, url: str, *reasons: str) -> Callable[[], bool]:
    """Return a check whether the error of a client has one of these reasons, and the time."""

    def look() -> bool:
        problem = failure(twin, url)
        assert re.search(TRIED, problem.text), problem.text
        return any(reason in problem.text for reason in reasons)

    return look


def test_nothing_listens(twin: Connect) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    eventually(says(twin, url, "nothing accepts connections there"), "it was refused")
    problem = failure(twin, url)
    assert problem.retryable
    assert "quoth serve" in problem.hint or "firewall" in problem.hint


def test_peer_that_listens_is_no_broker(twin: Connect) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        eventually(says(twin, url, "what accepts connections there is no broker"), "it was connected")
        assert "is it the port of something else?" in str(failure(twin, url).hint)


def test_unknown_name_and_silence_have_different_texts(twin: Connect) -> None:
    url = "tcp://no-such-host.invalid:5555"
    eventually(says(twin, url, "the name no-such-host.invalid cannot be resolved"), "the name was resolved")
    assert "spelled" in str(failure(twin, url).hint)


def test_known_name_is_not_blamed(twin: Connect) -> None:
    url = f"tcp://{socket.gethostname()}:{free_port()}"
    eventually(says(twin, url, "nothing accepts connections there", "nothing there reacts"), "it was refused")


def test_missing_socket(twin: Connect, tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/quoth"
    assert f"there is no socket {tmp_path}/quoth, tried" in failure(twin, url).text


def test_a_client_says_where_it_is_connected(broker: BrokerProcess) -> None:
    with quoth.connect(broker.url, timeout=22.5) as client:
        assert repr(client) == f"<quoth.Client {broker.url}, timeout=22.5>"
    assert repr(client) == f"<quoth.Client {broker.url}, timeout=22.5, closed>"

    async def look() -> tuple[str, str]:
        async with quoth.aio.connect(broker.url, timeout=22.5) as client:
            before = repr(client)
        return before, repr(client)

    assert asyncio.run(look()) == (
        f"<quoth.aio.Client {broker.url}, timeout=22.5>",
        f"<quoth.aio.Client {broker.url}, timeout=22.5, closed>",
    )
