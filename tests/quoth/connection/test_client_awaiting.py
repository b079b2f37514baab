"""A broker that is not there: a client waits as long as it is asked to, a tail without a limit, and the error
has the reason and the time of the attempts."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.proxies import Meddler
from kit.client.records import Connect
from kit.deadlines import DEADLINE_S, eventually, hold
from kit.machine.ports import free_port
from quoth import Client, Disconnected, RequestError

AWAY_S = 0.7
"""Far beyond the time that a call may take."""
BRIEF_S = 0.2
UNKNOWN_HOST = "no-such-host.invalid"


@pytest.fixture
def away(start_broker: StartBroker) -> BrokerProcess:
    """A broker that has ended."""
    broker = start_broker()
    broker.kill()
    return broker


def test_connecting_waits_for_the_given_time(
    away: BrokerProcess, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    connecting = pool.submit(connect, away, timeout=BRIEF_S, wait=DEADLINE_S)
    hold(lambda: not connecting.done(), "it waits", AWAY_S)
    away.restart()
    client = connecting.result(DEADLINE_S)
    assert client.timeout == BRIEF_S
    client.timeout = DEADLINE_S
    assert client.topics() == []


def test_a_failed_wait_for_a_broker_reports_what_it_found_and_for_how_long(connect: Connect) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(Disconnected) as found:
        connect(url, timeout=30.0, wait=1.2)
    assert 1.2 <= time.monotonic() - began < 10
    reason, _, tried = found.value.text.partition(", tried for ")
    assert reason.startswith(f"hello: no broker answers at {url}: ")
    assert re.fullmatch(r"[5-9]\d\d milliseconds|[1-9](\.\d)? seconds?", tried), tried


def test_a_wait_for_a_broker_that_does_not_answer_its_hello_reports_the_span(
    meddler: Meddler, connect: Connect
) -> None:
    meddler.on_request = lambda _: True

    def problem() -> Disconnected | None:
        """Return the error unless not even a connection was there in time."""
        with pytest.raises(Disconnected) as caught:
            connect(meddler.url, wait=0.5)
        return caught.value if caught.value.code == "timed_out" else None

    found = eventually(problem, "the meddler takes a connection")
    assert found is not None
    assert found.text.endswith(": it takes connections, and has answered nothing for 500 milliseconds")
    assert found.hint == "whether it took effect is not known"


@pytest.mark.parametrize("wait", ["long", float("nan"), True])
def test_a_wait_is_a_number_of_seconds(broker: BrokerProcess, connect: Connect, wait: Any) -> None:
    with pytest.raises(RequestError, match=f"wait is a number of seconds, not {wait!r}"):
        connect(broker, wait=wait)


def test_tails_that_begin_while_the_broker_is_away_wait_for_it(
    own_broker: BrokerProcess, own_client: Client, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    own_client.timeout = BRIEF_S
    own_broker.kill()

    def tail() -> bytes:
        return next(own_client.tail("orders")).value

    def tail_many(*, ordered: bool) -> bytes:
        with own_client.tail_many("orders", ordered=ordered) as reading:
            return next(reading).value

    values = [pool.submit(tail), *(pool.submit(tail_many, ordered=ordered) for ordered in (False, True))]
    hold(lambda: not any(value.done() for value in values), "they wait", AWAY_S)
    own_broker.restart()
    publisher = connect(own_broker)
    while not all(value.done() for value in values):
        publisher.publish("orders", b"value")
    assert [value.result() for value in values] == [b"value"] * 3


# -- the reason and the time of the attempts ----------------------------------------------------------------


@contextmanager
def listener(_: Path) -> Iterator[str]:
    """The address of a program that is no broker."""
    with closing(socket.create_server(("127.0.0.1", free_port()))) as listener:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


REASONS: list[tuple[Callable[[Path], AbstractContextManager[str]], str, str]] = [
    (
        lambda _: nullcontext(f"tcp://127.0.0.1:{free_port()}"),
        "nothing accepts connections there",
        "quoth serve|firewall",
    ),
    (
        lambda _: nullcontext(f"tcp://{socket.gethostname()}:{free_port()}"),
        "nothing accepts connections there|nothing there reacts",
        "",
    ),
    (
        listener,
        "what accepts connections there is no broker",
        "is it the port of something else",
    ),
    (
        lambda _: nullcontext(f"tcp://{UNKNOWN_HOST}:5555"),
        f"the name {UNKNOWN_HOST} cannot be resolved",
        "spelled",
    ),
    (
        lambda folder: nullcontext(f"ipc://{folder}/quoth"),
        "there is no socket /.*/quoth",
        "",
    ),
]


def resolved(resolve: Callable[..., object], host: str, *rest: object, **named: object) -> object:
    """Resolve a name as the system does; the one that is unknown by itself, as no server may answer."""
    if host == UNKNOWN_HOST:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return resolve(host, *rest, **named)


def test_the_error_has_the_reason_and_the_time_of_the_attempts(
    twin: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", partial(resolved, socket.getaddrinfo))
    for at, reason, hint in REASONS:
        with at(tmp_path) as url:
            problem = eventually(partial(failure, twin, url, reason), reason)
            assert problem is not None
            assert re.search(hint, problem.hint)
            assert problem.retryable


def failure(twin: Connect, url: str, reason: str) -> Disconnected | None:
    """Return the error of a client that finds no broker, if it has the reason by now."""
    with pytest.raises(Disconnected) as caught:
        twin(url, timeout=0.3)
    text = caught.value.text
    assert caught.value.code == "disconnected"
    assert text.startswith(f"hello: no broker answers at {url}: ")
    assert re.search(r", tried for (\d+ milliseconds|[\d.]+ seconds?)$", text), text
    return caught.value if re.search(reason, text) else None


def test_the_representation_of_a_client_has_its_address(broker: BrokerProcess) -> None:
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
