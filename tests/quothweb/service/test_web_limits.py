"""Hostile clients: slow, large, many, and of other sites. They cost the server little, others nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S, eventually
from kit.web.servers import TokenFile, WebProcess, code_of, events
from quothweb.service.connections import HEAD_BYTES_MAX, protocol_of

from ..conftest import StartWeb

TIMEOUT_S = 0.5


@pytest.fixture(scope="module")
def strict(broker: BrokerProcess) -> Iterator[WebProcess]:
    """Start a server with small limits."""
    with WebProcess(
        url=broker.url, body_bytes_max=10_000, bodies_bytes_max=15_000, connections_max=50, allow_actions=True
    ).running() as web:
        yield web


@pytest.fixture(scope="module")
def hasty(broker: BrokerProcess) -> Iterator[WebProcess]:
    """Start a server that soon closes a slow connection. A client has to connect by `raw`."""
    with WebProcess(url=broker.url, request_timeout=TIMEOUT_S).running() as web:
        yield web


@contextlib.contextmanager
def raw(web: WebProcess, data: bytes = b"") -> Iterator[socket.socket]:
    """Connect without a client of HTTP, and send something.

    Connects again if that took so long that a hasty server may have closed the connection.
    """
    host, _, port = web.url.removeprefix("http://").partition(":")
    is_in_time = False
    while not is_in_time:
        began = time.monotonic()
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            is_in_time = time.monotonic() - began < TIMEOUT_S
            if is_in_time:
                yield connection


def ended(connection: socket.socket) -> bytes:
    """Receive until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            received += part
    return received


def head(path: str = "/api/v1/topics", method: str = "GET", *more: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *more, "", ""]).encode()


# -- slow ---------------------------------------------------------------------------------------------------


def test_a_head_that_does_not_end_closes_the_connection(hasty: WebProcess) -> None:
    """The first one, or one behind a whole request, however many bytes trickle in."""
    part = head()[:-6]
    with raw(hasty, part) as connection:
        trickle(connection)
    with raw(hasty, head()) as connection:
        assert b"200 OK" in connection.recv(65_536)
        trickle(connection, part)


def trickle(connection: socket.socket, first: bytes = b"x") -> None:
    """Send a byte now and then. The server has to close the connection before it is many of them."""
    connection.settimeout(TIMEOUT_S / 5)
    with contextlib.suppress(ConnectionError):
        connection.sendall(first)
        for _ in range(50):
            connection.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                if not connection.recv(65_536):
                    return
        pytest.fail("it is open still")


def test_a_body_that_does_not_come_is_given_up(hasty: WebProcess, topic: str) -> None:
    part = head(f"/api/v1/topics/{topic}", "POST", "Content-Length: 100") + b"some"
    with raw(hasty, part) as connection:
        answer = ended(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"slow_request" in answer


def test_a_client_that_reads_nothing_is_disconnected(
    hasty: WebProcess, broker: BrokerProcess, topic: str
) -> None:
    with quoth.connect(broker.url) as client:
        for _ in range(20):
            client.publish(topic, [bytes(1_000)] * 5_000)
    path = f"/api/v1/topics/{topic}/records?limit=1000000"
    with raw(hasty, head(path, "GET", "Accept: application/octet-stream")) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        assert connection.recv(100)
        eventually(lambda: not _connections(hasty), "it is disconnected")
        with raw(hasty, head()) as other:
            assert b"200 OK" in other.recv(65_536)


def test_a_websocket_that_reads_nothing_is_disconnected(
    hasty: WebProcess, broker: BrokerProcess, topic: str
) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    request = head(f"/api/v1/topics/{topic}/tail", "GET", *upgrade, key)
    with quoth.connect(broker.url) as client:
        client.publish(topic, b"v")
        with raw(hasty, request) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            assert connection.recv(12) == b"HTTP/1.1 101"
            for _ in range(20):
                client.publish(topic, [bytes(1_000)] * 5_000)
            eventually(lambda: not _connections(hasty), "it is disconnected")


def _connections(web: WebProcess) -> int:
    """Return the established connections to a server's port."""
    port = f":{int(web.url.rpartition(':')[2]):04X}"
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sum(row[1].endswith(port) and row[3] == "01" for row in rows)


# -- large --------------------------------------------------------------------------------------------------


def test_a_large_body_is_refused_by_its_length_and_by_counting(strict: WebProcess, topic: str) -> None:
    with strict.client() as http:
        answer = http.post(f"/topics/{topic}", content=bytes(10_001))
        assert (answer.status_code, code_of(answer)) == (413, "too_large")
        answer = http.post(f"/topics/{topic}", content=iter([bytes(6_000)] * 2))
        assert (answer.status_code, code_of(answer)) == (413, "too_large")
        assert http.post(f"/topics/{topic}", content=bytes(10_000)).status_code == 201
        assert http.get(f"/topics/{topic}").json()["count"] == 1
    for length in ("99999999999999999999999", "-1", "x", "1e3"):
        request = head(f"/api/v1/topics/{topic}", "POST", f"Content-Length: {length}")
        with raw(strict, request) as connection:
            assert ended(connection)[9:12] in (b"400", b"413")


def test_bodies_of_all_requests_share_a_memory(
    broker: BrokerProcess, start_web: StartWeb, topic: str
) -> None:
    """The bytes of one that has gone are free again."""
    web = start_web(broker.url, body_bytes_max=10_000, bodies_bytes_max=15_000)
    with raw(web) as connection:
        path = f"/api/v1/topics/{topic}"
        connection.sendall(head(path, "POST", "Content-Length: 9000", "Expect: 100-continue"))
        assert connection.recv(4_096).startswith(b"HTTP/1.1 100 "), "its bytes are counted"
        connection.sendall(bytes(8_000))
        with web.client() as http:
            answer = http.post(f"/topics/{topic}", content=bytes(7_000))
            assert (answer.status_code, code_of(answer)) == (503, "overloaded")
    with web.client() as http:
        eventually(
            lambda: http.post(f"/topics/{topic}", content=bytes(10_000)).status_code == 201, "they are free"
        )


def test_a_large_head_is_refused(strict: WebProcess) -> None:
    for more in ("X: " + "x" * 2 * HEAD_BYTES_MAX, "\r\n".join(f"X{row}: {row}" for row in range(20_000))):
        with raw(strict, head("/api/v1/topics", "GET", more)) as connection:
            assert b"200 OK" not in ended(connection)


class _Transport(asyncio.Transport):
    """A transport that keeps what a protocol writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_answered = asyncio.Event()
        self._is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)
        self.is_answered.set()

    def close(self) -> None:
        self._is_closed = True
        self.is_answered.set()

    def is_closing(self) -> bool:
        return self._is_closed

    def get_protocol(self) -> Any:
        return self.protocol

    protocol: asyncio.Protocol

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _answer_to(*reads: bytes) -> bytes:
    """Return the beginning of the answer to a request that comes in these reads."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(app, log_config=None)
    config.load()
    kind: Any = protocol_of(DEADLINE_S, 10)
    transport = _Transport()
    transport.protocol = protocol = kind(config=config, server_state=ServerState(), app_state={})
    protocol.connection_made(transport)
    for read in reads:
        protocol.data_received(read)
        await asyncio.sleep(0)
    await asyncio.wait_for(transport.is_answered.wait(), DEADLINE_S)
    protocol.connection_lost(None)
    return transport.written


def test_the_end_of_a_head_may_come_with_a_large_body() -> None:
    """Wherever it is cut; a head that is too large is refused wherever it ends."""
    body = bytes(3 * HEAD_BYTES_MAX)
    request = head("/", "POST", f"Content-Length: {len(body)}")
    for cut in range(len(request) - 5, len(request) + 1):
        found = asyncio.run(_answer_to(request[:cut], request[cut:] + body))
        assert found.startswith(b"HTTP/1.1 200"), cut
    large = head("/", "POST", "X: " + "x" * HEAD_BYTES_MAX, f"Content-Length: {len(body)}")
    for cut in (100, len(large) - 2, len(large)):
        assert asyncio.run(_answer_to(large[:cut], large[cut:] + body)).startswith(b"HTTP/1.1 431")


def test_garbage_is_refused_and_the_server_goes_on(strict: WebProcess) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", bytes(1_000), b"GET\r\n\r\n", b"\xff" * 99):
        with raw(strict, data) as connection:
            assert b"200 OK" not in ended(connection)
    with raw(strict) as connection:
        smuggled = head("/api/v1/topics/t", "POST", "Content-Length: 5", "Transfer-Encoding: chunked")
        connection.sendall(smuggled + b"0\r\n\r\nGET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended(connection).count(b"HTTP/1.1") <= 1
    with strict.client() as http:
        assert http.get("/topics").status_code == 200


def test_a_body_that_is_cut_stores_nothing(strict: WebProcess, topic: str) -> None:
    with raw(strict) as connection:
        connection.sendall(head(f"/api/v1/topics/{topic}", "POST", "Content-Length: 100") + b"half")
    with strict.client() as http:
        assert http.get(f"/topics/{topic}").status_code == 404


# -- many ---------------------------------------------------------------------------------------------------


def test_requests_in_progress_are_limited(broker: BrokerProcess, start_web: StartWeb, topic: str) -> None:
    web = start_web(broker.url, connections_max=2)
    with web.client() as http:
        http.post(f"/topics/{topic}", content=b"v")
        path = f"/topics/{topic}/records?after=0"
        with events(http, path) as one, events(http, path) as two:
            one.next(), two.next()
            answer = http.get("/topics")
            assert (answer.status_code, code_of(answer)) == (503, "overloaded")
        eventually(lambda: http.get("/topics").status_code == 200, "there is room again")


def test_idle_connections_are_limited(broker: BrokerProcess, start_web: StartWeb) -> None:
    web = start_web(broker.url, connections_max=4)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(raw(web))
        eventually(lambda: _connections(web) == 8, "they are open")
        with raw(web) as connection:
            assert ended(connection).startswith(b"HTTP/1.1 503")
    with web.client() as http:
        eventually(lambda: http.get("/topics").status_code == 200, "there is room again")


def test_one_token_does_not_take_all(
    broker: BrokerProcess, start_web: StartWeb, tmp_path: Any, topic: str
) -> None:
    tokens = TokenFile(tmp_path)
    greedy, modest = tokens.add("greedy"), tokens.add("modest")
    web = start_web(broker.url, tokens=tokens.path, requests_per_token_max=2)
    with web.client(greedy) as one, web.client(modest) as other:
        one.post(f"/topics/{topic}", content=b"v")
        path = f"/topics/{topic}/records?after=0"
        with events(one, path) as first, events(one, path) as second:
            first.next(), second.next()
            answer = one.get("/topics")
            assert (answer.status_code, code_of(answer)) == (429, "too_many_requests")
            assert answer.headers["retry-after"]
            assert other.get("/topics").status_code == 200


def test_the_clients_of_tokens_are_limited_without_that_of_the_server(
    broker: BrokerProcess, start_web: StartWeb, tmp_path: Any, topic: str
) -> None:
    tokens = TokenFile(tmp_path)
    alice, bob = tokens.add("alice"), tokens.add("bob")
    web = start_web(broker.url, tokens=tokens.path, tokens_open_max=1)
    eventually(
        lambda: httpx.get(f"{web.url}/readyz").status_code == 200, "the server has a client of its own"
    )
    with web.client(alice) as one, web.client(bob) as other:
        assert one.post(f"/topics/{topic}", content=b"v").status_code == 201
        with events(one, f"/topics/{topic}/records?after=0") as stream:
            stream.next()
            answer = other.get("/topics")
            assert (answer.status_code, code_of(answer)) == (503, "overloaded")
            assert one.get("/topics").status_code == 200
        eventually(lambda: other.get("/topics").status_code == 200, "the client of the other token is idle")


def test_many_clients_at_once_are_served(web: WebProcess, topic: str) -> None:
    def send(number: int) -> int:
        with web.client() as http:
            return http.post(f"/topics/{topic}", content=b"%d" % number).status_code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(send, range(200))) == {201}
    with web.client() as http:
        assert http.get(f"/topics/{topic}").json()["count"] == 200


# -- other sites --------------------------------------------------------------------------------------------


def test_a_name_that_a_web_page_gives_to_loopback_is_refused(
    broker: BrokerProcess, start_web: StartWeb
) -> None:
    """Else a page of any site could read what this machine may."""
    web = start_web(broker.url, hosts="quoth.internal")
    with web.client() as http:
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""):
            answer = http.get("/topics", headers={"Host": host})
            assert answer.status_code in (400, 421), host
        for host in ("localhost", "localhost:1", "127.0.0.1", "[::1]:80", "quoth.internal"):
            assert http.get("/topics", headers={"Host": host}).status_code == 200, host


def test_pages_of_other_sites_neither_read_nor_write_unless_they_may(
    broker: BrokerProcess, start_web: StartWeb, topic: str
) -> None:
    web = start_web(broker.url, cors_origins="https://good.example")
    with web.client() as http:
        preflight = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        for origin, status in (("https://good.example", 201), ("https://evil.example", 403)):
            answer = http.post(f"/topics/{topic}", content=b"v", headers={"Origin": origin})
            assert answer.status_code == status
            allowed = answer.headers.get("access-control-allow-origin")
            assert allowed == (origin if status == 201 else None)
            answer = http.options(f"/topics/{topic}", headers={"Origin": origin, **preflight})
            assert (answer.status_code == 200) == (status == 201)
        answer = http.get(f"/topics/{topic}/records", headers={"Origin": "https://good.example"})
        assert "Quoth-Next" in answer.headers["access-control-expose-headers"]


def test_every_answer_has_the_security_headers(http: httpx.Client) -> None:
    for path in ("/topics", "/none", "/topics/none", "/openapi.json"):
        headers = http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers


# -- methods ------------------------------------------------------------------------------------------------


def test_each_path_says_which_methods_it_has(http: httpx.Client, topic: str) -> None:
    http.post(f"/topics/{topic}", content=b"v")
    path = f"/topics/{topic}"
    answer = http.request("PURGE", path)
    assert (answer.status_code, code_of(answer)) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
    answer = http.options(path)
    assert (answer.status_code, answer.headers["allow"]) == (
        204,
        "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
    )
    for one in (path, "/topics", f"{path}/records", "/status", "/openapi.json"):
        answer = http.head(one)
        assert (answer.status_code, answer.content) == (200, b"")
    answer = http.get("/nowhere")
    assert (answer.status_code, code_of(answer)) == (404, "unknown_path")


# -- what the configuration closes --------------------------------------------------------------------------


def test_actions_and_payloads_can_be_off(broker: BrokerProcess, start_web: StartWeb, topic: str) -> None:
    web = start_web(broker.url, payloads=False)
    with web.client() as http:
        ack = http.post(f"/topics/{topic}", content=b"v").json()
        for method, path in (
            ("PUT", f"/topics/{topic}"), ("PATCH", f"/topics/{topic}"),
            ("DELETE", f"/topics/{topic}?log=0000000000000001"), ("DELETE", f"/topics/{topic}/groups/g"),
            ("PATCH", f"/topics/{topic}/groups/g"), ("POST", f"/topics/{topic}/groups/g/seek"),
        ):  # fmt: skip
            answer = http.request(method, path, json={})
            assert (answer.status_code, code_of(answer)) == (403, "actions_off"), path
        for path in (f"/topics/{topic}/records", f"/topics/{topic}/records/{ack['first']}"):
            answer = http.get(path)
            assert (answer.status_code, code_of(answer)) == (403, "payloads_off")
        http.put(f"/topics/{topic}/groups/g", json={})
        assert code_of(http.post(f"/topics/{topic}/groups/g/fetch")) == "payloads_off"
        assert http.get(f"/topics/{topic}/count").json()["records"] == 1
