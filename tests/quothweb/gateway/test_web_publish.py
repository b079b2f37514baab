"""Publishing over HTTP: bodies of all types, levels of durability, and retries that are stored once."""

from __future__ import annotations

import asyncio
import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgpack
import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S
from kit.web.servers import NDJSON, WebProcess, code_of, ndjson, values_of
from quothweb.config import read
from quothweb.gateway.publishing import publish
from quothweb.gateway.publishing.record_body import columns_of
from quothweb.server import make_app
from quothwire.batch import BATCH_RECORDS_MAX

from ..conftest import StartWeb

JSON_LINES = {"Content-Type": NDJSON}
PACKED = {"Content-Type": "application/msgpack"}


def stored(broker: BrokerProcess, topic: str) -> list[quoth.Message]:
    """Return the records of a topic, as a client of the broker reads them."""
    with quoth.connect(broker.url) as client:
        return list(client.read(topic, limit=1_000_000))


# -- bodies -------------------------------------------------------------------------------------------------


def test_a_body_is_one_record_with_the_key_and_the_headers_of_the_request(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    """Of any type, and of any bytes; the names of headers come in lower case."""
    headers = {"Quoth-Key": "k", "Quoth-Header-Source": "shop", "Content-Type": "image/png"}
    answer = http.post(f"/topics/{topic}", content=b"\x00\xff\n", headers=headers)
    assert answer.status_code == 201
    (record,) = stored(broker, topic)
    assert (record.value, record.key, record.headers) == (b"\x00\xff\n", b"k", {"source": b"shop"})
    found = answer.json()
    assert (found["first"], found["last"], found["count"]) == (record.pointer, record.pointer, 1)
    assert (found["durability"], found["duplicate"]) == ("written", False)
    assert answer.headers["location"] == f"/api/v1/topics/{topic}/records/{record.pointer}"


def test_a_key_of_any_bytes_comes_in_base64(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    key = bytes(range(256))
    headers = {"Quoth-Key-Base64": base64.b64encode(key).decode()}
    assert http.post(f"/topics/{topic}", content=b"v", headers=headers).status_code == 201
    assert stored(broker, topic)[0].key == key


def test_headers_of_w3c_trace_context_become_headers_of_the_record(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"traceparent": parent, "tracestate": "a=1", "baggage": "user=7"}
    http.post(f"/topics/{topic}", content=b"v", headers=headers)
    expected = {"traceparent": parent.encode(), "tracestate": b"a=1", "baggage": b"user=7"}
    assert stored(broker, topic)[0].headers == expected


def test_lines_of_json_are_records_of_one_batch(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    body = ndjson(
        {"value": "one", "key": "k", "headers": {"h": "1"}},
        {"value_base64": "AP8=", "key_base64": "AQ=="},
        {"value": ""},
    )
    answer = http.post(f"/topics/{topic}", content=body, headers=JSON_LINES).json()
    records = stored(broker, topic)
    assert [(one.value, one.key, one.headers) for one in records] == [
        (b"one", b"k", {"h": b"1"}),
        (b"\x00\xff", b"\x01", {}),
        (b"", None, {}),
    ]
    assert (answer["first"], answer["last"], answer["count"]) == (records[0].pointer, records[2].pointer, 3)


def test_a_list_of_msgpack_is_records_of_any_bytes(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    body = msgpack.packb([{"value": b"\xff", "key": b"\x00", "headers": {"h": b"\x01"}}, b"bare", "text"])
    assert http.post(f"/topics/{topic}", content=body, headers=PACKED).status_code == 201
    assert [(one.value, one.key, one.headers) for one in stored(broker, topic)] == [
        (b"\xff", b"\x00", {"h": b"\x01"}),
        (b"bare", None, {}),
        (b"text", None, {}),
    ]


WRONG: list[tuple[bytes, dict[str, str], str]] = [
    (b"", JSON_LINES, "no record"),
    (b'{"value": "fine"}\nnot json\n', JSON_LINES, "line 2"),
    (b'{"valu": "v"}\n', JSON_LINES, "did you mean value"),
    (b'{"value": 1}\n', JSON_LINES, "no text"),
    (b"[" * 100_000, JSON_LINES, "line 1"),
    (b'{"value": "\xff"}\n', JSON_LINES, "line 1"),
    (b'{"value": "v"}\n', {**JSON_LINES, "Quoth-Key": "k"}, "quoth-key"),
    (b"v", {"Quoth-Key": "a", "Quoth-Key-Base64": "YQ=="}, "two keys"),
    (b"v", {"Quoth-Key-Base64": "?"}, "base64"),
    (b"\xc1", PACKED, "no msgpack"),
    (b"\xdd\xff\xff\xff\xff", PACKED, "no msgpack"),
    (msgpack.packb({"value": b"v"}), PACKED, "no list"),
    (msgpack.packb([{"value": 7}]), PACKED, "record 0"),
    (msgpack.packb([{"value": b"v", "x": 1}]), PACKED, "'x'"),
    (msgpack.packb([b"v"]) + b"\x00", PACKED, "follows"),
    (msgpack.packb([]), PACKED, "no record"),
]


def test_a_wrong_body_stores_nothing_and_the_error_says_where_it_is_wrong(
    http: httpx.Client, topic: str
) -> None:
    for body, headers, text in WRONG:
        answer = http.post(f"/topics/{topic}", content=body, headers=headers)
        assert (answer.status_code, code_of(answer)) == (400, "bad_request"), body[:50]
        assert text in answer.text + answer.json()["error"]["hint"], answer.text
    assert http.get(f"/topics/{topic}").status_code == 404


def test_a_body_has_as_many_records_as_a_batch(http: httpx.Client, topic: str) -> None:
    body = msgpack.packb([b""] * (BATCH_RECORDS_MAX + 1))
    answer = http.post(f"/topics/{topic}", content=body, headers=PACKED)
    assert answer.status_code in (400, 413)
    body = msgpack.packb([b""] * BATCH_RECORDS_MAX)
    answer = http.post(f"/topics/{topic}", content=body, headers=PACKED)
    assert answer.json()["count"] == BATCH_RECORDS_MAX


def test_a_large_body_is_decoded_while_other_requests_are_answered(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, is_answered = threading.Event(), threading.Event()

    def decode(*given: Any, **options: Any) -> Any:
        has_begun.set()
        assert is_answered.wait(DEADLINE_S), "no other request was answered meanwhile"
        return columns_of(*given, **options)

    async def publish_and_ask() -> int:
        app = make_app(read({"url": broker.url}, {}))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            body = bytes(publish.DECODED_AT_ONCE_BYTES + 1)
            publishing = asyncio.create_task(http.post(f"/api/v1/topics/{topic}", content=body))
            assert await asyncio.to_thread(has_begun.wait, DEADLINE_S)
            assert (await http.get("/livez")).status_code == 200
            is_answered.set()
            found = await publishing
        await app.state.services.close()
        return found.status_code

    monkeypatch.setattr(publish, "columns_of", decode)
    assert asyncio.run(publish_and_ask()) == 201


def test_a_publish_asks_for_a_level_and_the_answer_names_it(http: httpx.Client, topic: str) -> None:
    answer = http.post(f"/topics/{topic}", content=b"v", params={"durability": "synced"})
    assert answer.json()["durability"] == "synced"
    answer = http.post(f"/topics/{topic}", content=b"v", params={"durability": "sinced"})
    assert code_of(answer) == "bad_request"
    assert "written or synced" in answer.text


NAMES = ("a b", "größe", "a%b", "...", "a+b", "q?r", "a#b", "🦊", "%2e%2e", "x" * 200)


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_of_any_name_is_addressed(http: httpx.Client, name: str) -> None:
    encoded = "/topics/" + "".join(f"%{byte:02x}" for byte in name.encode())
    assert http.post(encoded, content=b"v").status_code == 201
    assert http.get(encoded).json()["name"] == name
    assert name in http.get("/topics").json()["topics"]


@pytest.mark.parametrize("path", ["%2e", "%2e%2e", "%00", "x" * 201, "a%0ab", "%ff", "%ed%a0%80"])
def test_a_name_that_no_topic_can_have_is_refused(http: httpx.Client, path: str) -> None:
    answer = http.post(f"/topics/{path}", content=b"v")
    assert (answer.status_code, code_of(answer)) in ((400, "bad_topic"), (400, "bad_request"))


# -- retries ------------------------------------------------------------------------------------------------


def test_a_request_with_an_idempotency_key_is_stored_once(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    """The headers for tracing, which are others in each attempt, do not count."""
    key = {"Idempotency-Key": "4f0c2f5e"}
    first = http.post(f"/topics/{topic}", content=b"v", headers={**key, "traceparent": "00-1"})
    second = http.post(f"/topics/{topic}", content=b"v", headers={**key, "traceparent": "00-2"})
    assert (first.json()["duplicate"], second.json()["duplicate"]) == (False, True)
    assert first.json()["first"] == second.json()["first"]
    assert len(stored(broker, topic)) == 1


def test_an_idempotency_key_of_other_records_is_refused(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    key = {"Idempotency-Key": "k"}
    http.post(f"/topics/{topic}", content=b"one", headers=key)
    other = http.post(f"/topics/{topic}", content=b"two", headers=key)
    assert (other.status_code, code_of(other)) == (422, "sequence_reused")
    assert [one.value for one in stored(broker, topic)] == [b"one"]


def test_one_key_is_another_one_in_another_topic(http: httpx.Client, topic: str) -> None:
    key = {"Idempotency-Key": "k"}
    for name in ("one", "two"):
        assert not http.post(f"/topics/{topic}-{name}", content=b"v", headers=key).json()["duplicate"]


def test_requests_with_one_key_at_once_are_stored_once(
    broker: BrokerProcess, web: WebProcess, topic: str
) -> None:
    def send(_: int) -> Any:
        with web.client() as client:
            return client.post(f"/topics/{topic}", content=b"v", headers={"Idempotency-Key": "k"}).json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(24)))
    assert len({answer["first"] for answer in answers}) == 1
    assert [answer["duplicate"] for answer in answers].count(False) == 1
    assert len(stored(broker, topic)) == 1


def test_numbers_behind_a_name_rise_and_none_is_stored_twice(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    """Holes are allowed. One that was overtaken is refused for good."""

    def send(number: int) -> httpx.Response:
        headers = {"Idempotency-Key": f"loader/{number}"}
        return http.post(f"/topics/{topic}", content=b"%d" % number, headers=headers)

    answers = [send(number) for number in (5, 7, 6, 5)]
    assert [answer.status_code for answer in answers] == [201, 201, 409, 201]
    assert [answers[0].json()["duplicate"], answers[3].json()["duplicate"]] == [False, True]
    assert code_of(answers[2]) == "out_of_sequence"
    assert answers[2].json()["error"]["retryable"] is False
    for number in range(100, 200):
        assert send(number).status_code == 201
    assert code_of(send(5)) == "forgotten_sequence", "older than the last 64, and not stored again"
    values = [one.value for one in stored(broker, topic)]
    assert values == [b"%d" % number for number in (5, 7, *range(100, 200))]


def test_numbered_keys_have_no_limit_of_producers(http: httpx.Client, topic: str) -> None:
    """A topic knows 1,000 producers; plain keys of one minute are as many, and then have to wait."""
    for number in range(1, 1_101):
        headers = {"Idempotency-Key": f"loader/{number}"}
        assert http.post(f"/topics/{topic}", content=b"v", headers=headers).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_a_wrong_idempotency_key_is_refused(http: httpx.Client, topic: str, key: str) -> None:
    answer = http.post(f"/topics/{topic}", content=b"v", headers={"Idempotency-Key": key})
    assert code_of(answer) == "bad_request"


def test_a_publish_is_stored_once_though_the_broker_is_killed_in_the_middle(
    start_broker: StartBroker, start_web: StartWeb, topic: str
) -> None:
    """And the server itself: the retry of a client finds what was stored."""
    broker = start_broker()
    web = start_web(broker.url, timeout=20)
    keys = [{"Idempotency-Key": f"key {number}"} for number in range(60)]
    failed: list[int] = []

    def send(number: int) -> None:
        with web.client() as client:
            if client.post(f"/topics/{topic}", content=b"%d" % number, headers=keys[number]).is_error:
                failed.append(number)

    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(send, number) for number in range(60)]
        sent[10].result()
        broker.kill()
        broker.restart()
        for one in sent:
            one.result()
    assert failed == [], "the server sends them again by itself"
    web.terminate()
    again = web.restart()
    with again.client() as client:
        for number, key in enumerate(keys):
            answer = client.post(f"/topics/{topic}", content=b"%d" % number, headers=key)
            assert answer.json()["duplicate"] is True
        found = client.get(f"/topics/{topic}/records")
    assert sorted(map(int, values_of(found))) == list(range(60))
