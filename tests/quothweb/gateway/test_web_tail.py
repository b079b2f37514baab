"""Following a topic over HTTP: server-sent events and WebSockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.web.servers import WebProcess, code_of, events

from ..conftest import StartWeb


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[quoth.Client]:
    """Return a client of the broker itself."""
    with quoth.connect(broker.url) as client:
        yield client


def socket(web: WebProcess, path: str, **options: Any) -> ClientConnection:
    """Open a WebSocket."""
    made: ClientConnection = connect(
        f"{web.api.replace('http', 'ws')}{path}", open_timeout=DEADLINE_S, **options
    )
    return made


def received(connection: ClientConnection) -> dict[str, Any]:
    """Receive a message."""
    found: dict[str, Any] = json.loads(connection.recv(DEADLINE_S))
    return found


# -- server-sent events -------------------------------------------------------------------------------------


def test_events_begin_now_and_each_has_its_pointer_as_id(
    http: httpx.Client, client: quoth.Client, topic: str
) -> None:
    client.publish(topic, b"before")
    with events(http, f"/topics/{topic}/records") as stream:
        ack = client.publish(topic, [b"one", b"two"])
        found = [stream.next(), stream.next()]
    assert [event["data"]["value"] for event in found] == ["one", "two"]
    assert [event["id"] for event in found] == [str(ack.first), str(ack.last)]


def test_last_event_id_resumes_behind_it(http: httpx.Client, client: quoth.Client, topic: str) -> None:
    """The path says another place, since a browser connects again with the same one."""
    ack = client.publish(topic, [b"one", b"two", b"three"])
    path = f"/topics/{topic}/records?after=0"
    with events(http, path, **{"Last-Event-ID": str(ack.first + 1)}) as stream:
        assert stream.next()["data"]["value"] == "three"
    with events(http, path) as stream:
        assert stream.next()["data"]["value"] == "one"
    answer = http.get(path, headers={"Accept": "text/event-stream", "Last-Event-ID": "x"})
    assert code_of(answer) == "bad_pointer"


def test_a_silent_stream_has_comments(http: httpx.Client, client: quoth.Client, topic: str) -> None:
    client.publish(topic, b"v")
    with events(http, f"/topics/{topic}/records") as stream:
        assert stream.comment() == ": nothing new"


def test_a_stream_ends_with_its_topic(http: httpx.Client, client: quoth.Client, topic: str) -> None:
    client.publish(topic, b"v")
    with events(http, f"/topics/{topic}/records?after=0") as stream:
        stream.next()
        client.delete_topic(topic)
        end = stream.next()
        assert (end["event"], end["data"]["reason"]) == ("end", "deleted")
        with pytest.raises(EOFError):
            stream.next()
    answer = http.get(f"/topics/{topic}/records", headers={"Accept": "text/event-stream"})
    assert (answer.status_code, code_of(answer)) == (404, "unknown_topic")


def test_events_of_gaps_are_told_and_resumed_behind(
    http: httpx.Client, client: quoth.Client, topic: str
) -> None:
    ack = client.publish(topic, [b"gone", b"gone"])
    client.roll(topic)
    client.trim(topic, ack.last + 1)
    client.publish(topic, b"kept")
    with events(http, f"/topics/{topic}/records?after={ack.first}") as stream:
        gap, kept = stream.next(), stream.next()
    assert (gap["event"], gap["data"]["reason"], kept["data"]["value"]) == ("gap", "trimmed", "kept")
    assert int(gap["id"]) == kept["data"]["pointer"] - 1


def test_a_stream_goes_on_through_a_restart_of_the_broker(
    start_broker: StartBroker, start_web: StartWeb
) -> None:
    broker = start_broker()
    web = start_web(broker.url, timeout=1)
    with web.client() as http:
        key = {"Idempotency-Key": "one"}
        eventually(
            lambda: http.post("/topics/t", content=b"one", headers=key).status_code == 201, "it is stored"
        )
        with events(http, "/topics/t/records?after=0") as stream, socket(web, "/topics/t/tail") as other:
            assert stream.next()["data"]["value"] == "one"
            broker.kill()
            assert stream.comment()
            broker.restart()
            with quoth.connect(broker.url) as client:
                client.publish("t", b"two")
            assert stream.next()["data"]["value"] == "two"
            assert received(other)["value"] == "two"


def test_a_client_that_goes_leaves_nothing(web: WebProcess, client: quoth.Client, topic: str) -> None:
    """No stream at the server, no wait at the broker."""
    client.publish(topic, b"v")
    with web.client() as http:
        for _ in range(5):
            with (
                events(http, f"/topics/{topic}/records?after=0") as stream,
                socket(web, f"/topics/{topic}/tail"),
            ):
                stream.next()
        eventually(lambda: http.get("/status").json()["web"]["streams"] == 0, "the streams have ended")
    eventually(lambda: not client.status().waits, "the waits have ended")


def test_streams_are_limited(broker: BrokerProcess, start_web: StartWeb, topic: str) -> None:
    web = start_web(broker.url, streams_max=2)
    with web.client() as http:
        http.post(f"/topics/{topic}", content=b"v")
        path = f"/topics/{topic}/records?after=0"
        with events(http, path) as one, events(http, path) as two:
            one.next(), two.next()
            answer = http.get(path, params={"after": "now", "wait": "5s"})
            assert (answer.status_code, code_of(answer)) == (503, "overloaded")
            assert answer.headers["retry-after"] == "1"


def test_events_beyond_the_limit_are_refused_before_the_answer_begins(
    broker: BrokerProcess, start_web: StartWeb, topic: str
) -> None:
    """A client sees an error that it can try again. The place is free once an answer has ended."""
    web = start_web(broker.url, streams_max=1)
    with web.client() as http:
        http.post(f"/topics/{topic}", content=b"v")
        path, headers = f"/topics/{topic}/records?after=0", {"Accept": "text/event-stream"}
        with events(http, path) as stream:
            stream.next()
            for method in ("GET", "HEAD"):
                answer = http.request(method, path, headers=headers)
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "1"
            assert code_of(http.get(path, headers=headers)) == "overloaded"
        eventually(lambda: http.get("/status").json()["web"]["streams"] == 0, "the stream has ended")
        for _ in range(2):
            assert http.head(path, headers=headers).status_code == 200
        eventually(lambda: http.get("/status").json()["web"]["streams"] == 0, "no answer holds a place")


def test_a_server_that_stops_ends_its_streams_at_once(
    broker: BrokerProcess, start_web: StartWeb, topic: str
) -> None:
    web = start_web(broker.url, stop_timeout=15)
    with web.client() as http:
        http.post(f"/topics/{topic}", content=b"v")
        with (
            events(http, f"/topics/{topic}/records?after=0") as stream,
            socket(web, f"/topics/{topic}/tail?after=0") as other,
        ):
            stream.next(), received(other)
            assert web.terminate() == 0
            assert stream.next()["data"]["reason"] == "stopping"
            assert [json.loads(message) for message in other] == [{"end": {"reason": "stopping"}}]


# -- WebSockets ---------------------------------------------------------------------------------------------


def test_a_websocket_has_a_message_for_each_record(web: WebProcess, client: quoth.Client, topic: str) -> None:
    ack = client.publish(topic, [b"one", b"\xff"])
    with socket(web, f"/topics/{topic}/tail?after=0") as connection:
        found = [received(connection), received(connection)]
        assert [one["pointer"] for one in found] == [ack.first, ack.last]
        assert (found[0]["value"], found[1]["value_base64"]) == ("one", "/w==")
        connection.send("ignored")
        client.delete_topic(topic)
        assert received(connection) == {"end": {"reason": "deleted"}}
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(DEADLINE_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000


def test_a_websocket_of_another_site_or_without_a_topic_is_refused(
    web: WebProcess, client: quoth.Client, topic: str
) -> None:
    client.publish(topic, b"v")
    for path, origin, status in (
        (f"/topics/{topic}/tail", "https://evil.example", 403),
        ("/topics/none/tail", None, 404),
        (f"/topics/{topic}/tail?x=1", None, 400),
    ):
        with pytest.raises(InvalidStatus) as refused, socket(web, path, origin=origin):
            pass
        assert refused.value.response.status_code == status
