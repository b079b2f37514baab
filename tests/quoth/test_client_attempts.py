"""When no broker answers, the error says what was tried and for how long."""

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
from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually
from quoth import Disconnected

TRIED = r", tried for (\d+ milliseconds|[\d.]+ seconds?)$"


def refusal(url: str, timeout: float = 0.3) -> Disconnected:
    """The error of a client that finds no broker."""
    with pytest.raises(Disconnected) as caught:
        quoth.connect(url, timeout=timeout)
    assert caught.value.code == "disconnected"
    assert caught.value.text.startswith(f"hello: no broker answers at {url}: ")
    return caught.value


def told(url: str, *reasons: str) -> Callable[[], bool]:
    """True as soon as the error of a client says one of these, and what was tried."""

    def look() -> bool:
        problem = refusal(url)
        assert re.search(TRIED, problem.text), problem.text
        return any(reason in problem.text for reason in reasons)

    return look


def free_port() -> int:
    """A port at which nothing listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def test_nothing_listens() -> None:
    eventually(told(f"tcp://127.0.0.1:{free_port()}", "nothing accepts connections there"), "it was refused")


def test_it_says_how_long_was_tried() -> None:
    problem = refusal(f"tcp://127.0.0.1:{free_port()}", 1.2)
    assert re.search(r"tried for (1\.[2-9] seconds|[2-9])", problem.text), problem.text


def test_what_listens_is_no_broker() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        eventually(told(url, "what accepts connections there is no broker"), "it was connected")


def test_an_unknown_name_and_silence_have_different_texts() -> None:
    url = "tcp://no-such-host.invalid:5555"
    eventually(told(url, "the name no-such-host.invalid cannot be resolved"), "the name was resolved")
    assert "spelled" in str(refusal(url).hint)


def test_a_name_that_is_known_is_not_blamed() -> None:
    url = f"tcp://{socket.gethostname()}:{free_port()}"
    eventually(told(url, "nothing accepts connections there", "nothing there reacts"), "it was refused")


def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/quoth"
    assert f"there is no socket {tmp_path}/quoth, tried" in refusal(url).text


def test_the_client_for_a_loop_says_the_same() -> None:
    url = f"tcp://127.0.0.1:{free_port()}"

    async def fail() -> str:
        with pytest.raises(Disconnected) as caught:
            await quoth.aio.connect(url, timeout=0.3)
        return caught.value.text

    def look() -> bool:
        text = asyncio.run(fail())
        assert re.search(TRIED, text), text
        return "nothing accepts connections there" in text

    eventually(look, "it was refused")


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
