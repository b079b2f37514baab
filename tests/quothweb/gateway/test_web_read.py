"""Reading over HTTP: ranges, formats, waits, caches, and what is missing in the middle."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgpack
import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import flip
from kit.web.servers import NDJSON, TokenFile, WebProcess, code_of, lines_of, values_of
from quoth import Ack
from quothweb.gateway.reading.records import SETTLED_S
from quothwire import batch

from ..conftest import StartWeb


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[quoth.Client]:
    """Return a client of the broker itself."""
    with quoth.connect(broker.url) as client:
        yield client


def test_a_range_begins_behind_after_and_ends_with_until(
    http: httpx.Client, client: quoth.Client, topic: str
) -> None:
    ack = client.publish(topic, [b"%d" % number for number in range(10)])
    path = f"/topics/{topic}/records"
    found = http.get(path, params={"after": ack.first + 1, "until": ack.first + 4})
    assert values_of(found) == ["2", "3", "4"]
    assert found.headers["quoth-next"] == str(ack.first + 4)
    assert found.headers["quoth-newest"] == str(ack.last)
    assert values_of(http.get(path, params={"since": ack.first + 8})) == ["8", "9"]
    assert values_of(http.get(path, params={"since": "-1h", "limit": 1})) == ["0"]
    first = lines_of(http.get(path))[0]
    assert first == {
        "topic": topic, "pointer": ack.first, "time": first["time"], "key": None, "value": "0", "headers": {},
    }  # fmt: skip
    assert values_of(http.get(path, params={"since": first["time"], "limit": 2})) == ["0", "1"]


def test_next_of_each_answer_leads_through_all_records(
    http: httpx.Client, client: quoth.Client, topic: str
) -> None:
    """Also where a batch is cut in the middle."""
    for number in range(5):
        client.publish(topic, [b"%d" % (7 * number + row) for row in range(7)])
    values: list[str] = []
    after = "0"
    while True:
        found = http.get(f"/topics/{topic}/records", params={"after": after, "limit": 4})
        page = values_of(found)
        if not page:
            break
        assert len(page) <= 4
        values += page
        after = found.headers["quoth-next"]
    assert values == [str(number) for number in range(35)]


def test_each_format_has_all_bytes_of_the_records(
    http: httpx.Client, client: quoth.Client, topic: str
) -> None:
    ack = client.publish(topic, [b"one", b"\xff\n"], key=[b"k", None], headers={"h": b"1"})
    path = f"/topics/{topic}/records"

    def get(media_type: str) -> bytes:
        found = http.get(path, headers={"Accept": media_type})
        assert found.headers["content-type"].partition(";")[0] == media_type
        return found.content

    lines = [json.loads(line) for line in get(NDJSON).splitlines()]
    assert lines[1]["value"] is None
    assert lines[1]["value_base64"] == "/wo="
    assert json.loads(get("application/json")) == lines
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(get("application/msgpack"))
    assert list(unpacker) == [
        {"pointer": ack.first, "key": b"k", "value": b"one", "headers": {"h": b"1"}},
        {"pointer": ack.last, "key": None, "value": b"\xff\n", "headers": {"h": b"1"}},
    ]
    assert get("application/octet-stream") == b"one\xff\n"
    assert get("text/plain") == b"one\n\xff\n\n"
    log = client.topic(topic).log
    (stored,) = batch.split(get("application/vnd.quoth.batches"), log)
    assert batch.decode(stored, log).values == [b"one", b"\xff\n"]


ACCEPTED: list[tuple[str, str]] = [
    ("", NDJSON),
    ("*/*", NDJSON),
    ("application/json", "application/json"),
    ("text/html, application/json;q=0.9, */*;q=0.1", "application/json"),
    ("text/*", "text/plain"),
    ("application/json;q=0, application/msgpack", "application/msgpack"),
]


def test_accept_chooses_the_format(http: httpx.Client, client: quoth.Client, topic: str) -> None:
    client.publish(topic, b"v")
    for accept, media_type in ACCEPTED:
        found = http.get(f"/topics/{topic}/records", headers={"Accept": accept})
        assert found.headers["content-type"].partition(";")[0] == media_type, accept
        assert "Accept" in found.headers["vary"]
    answer = http.get(f"/topics/{topic}/records", headers={"Accept": "text/html"})
    assert (answer.status_code, code_of(answer)) == (406, "not_acceptable")


def test_a_large_answer_is_compressed_when_asked_and_held_by_no_one(
    http: httpx.Client, client: quoth.Client, web: WebProcess, topic: str
) -> None:
    """The server sends 30 MB in parts and grows by far less."""
    for _ in range(30):
        client.publish(topic, [b"%0100d" % number for number in range(10_000)])
    path, limit = f"/topics/{topic}/records", {"limit": 1_000_000}
    with http.stream("GET", path, params=limit, headers={"Accept-Encoding": "identity"}) as plain:
        assert "content-encoding" not in plain.headers
        parts = plain.iter_raw()
        count = next(parts).count(b"\n")
        before = _memory(web.pid)
        count += sum(part.count(b"\n") for part in parts)
    assert count == 300_000
    assert _memory(web.pid) - before < 30_000_000
    with http.stream("GET", path, params={"limit": 5_000}, headers={"Accept-Encoding": "gzip"}) as zipped:
        assert zipped.headers["content-encoding"] == "gzip"
        raw = b"".join(zipped.iter_raw())
    assert gzip.decompress(raw).count(b"\n") == 5_000
    assert len(raw) < 150_000


def _memory(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4_096


def test_one_record_is_an_object_or_its_value(http: httpx.Client, client: quoth.Client, topic: str) -> None:
    ack = client.publish(topic, [b"a", b"\xffb"])
    path = f"/topics/{topic}/records"
    assert http.get(f"{path}/{ack.first}").json()["value"] == "a"
    binary = {"Accept": "application/octet-stream"}
    assert http.get(f"{path}/{ack.last}", headers=binary).content == b"\xffb"
    answer = http.get(f"{path}/{ack.last + 1}")
    assert (answer.status_code, code_of(answer)) == (404, "unknown_record")
    for wrong in ("x", "-1", str(2**56), "1.0"):
        assert code_of(http.get(f"{path}/{wrong}")) == "bad_pointer"


def test_wrong_parameters_are_refused_with_the_right_ones(http: httpx.Client, topic: str) -> None:
    path = f"/topics/{topic}/records"
    for query, code, text in (
        ("limit=0", "bad_request", "1 to 1,000,000"),
        ("limit=many", "bad_request", "limit"),
        ("limt=1", "bad_request", "did you mean limit"),
        ("after=1&after=2", "bad_request", "2 times"),
        ("after=1&since=2", "bad_request", "say one"),
        ("after=5&until=4", "bad_request", "swap"),
        ("after=yesterday", "bad_pointer", "after"),
        (f"after={2**56}", "bad_pointer", "after"),
        ("wait=1h", "bad_request", "wait"),
        ("since=-15x", "bad_pointer", "since"),
    ):
        answer = http.get(f"{path}?{query}")
        assert (answer.status_code, code_of(answer)) == (400, code), query
        assert text in answer.json()["error"]["text"] + answer.json()["error"]["hint"], answer.text
    answer = http.get(path)
    assert (answer.status_code, code_of(answer)) == (404, "unknown_topic")


# -- waiting ------------------------------------------------------------------------------------------------


def test_a_read_waits_for_a_record_and_even_for_its_topic(
    http: httpx.Client, client: quoth.Client, topic: str
) -> None:
    found: list[list[str]] = []
    reading = threading.Thread(
        target=lambda: found.append(values_of(http.get(f"/topics/{topic}/records", params={"wait": "20s"})))
    )
    reading.start()
    eventually(lambda: client.status().waits, "the read waits")
    client.publish(topic, b"here")
    reading.join(DEADLINE_S)
    assert found == [["here"]]
    began = time.monotonic()
    after = client.topic(topic).last
    assert values_of(http.get(f"/topics/{topic}/records", params={"after": after, "wait": "300ms"})) == []
    assert time.monotonic() - began >= 0.3


def test_a_client_that_goes_while_it_waits_leaves_no_wait(
    web: WebProcess, client: quoth.Client, topic: str
) -> None:
    client.publish(topic, b"v")
    with web.client() as gone, pytest.raises(httpx.ReadTimeout):
        gone.get(f"/topics/{topic}/records", params={"after": "now", "wait": "10m"}, timeout=0.5)
    eventually(lambda: not client.status().waits, "the wait has ended")
    with web.client() as http:
        eventually(lambda: http.get("/status").json()["web"]["streams"] == 0, "the request has ended")


# -- caches -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def past(broker: BrokerProcess) -> Ack:
    """Return the place of records in the topics "kept" and "changing" that are long past."""
    with quoth.connect(broker.url) as client:
        client.publish("kept", [b"0", b"1", b"2"])
        ack = client.publish("changing", b"0")
        eventually(lambda: _age(ack.last) > SETTLED_S, "the records are old", 2 * SETTLED_S)
        return ack


def _age(pointer: int) -> float:
    return time.time() - pointer / 1e6


def test_a_past_range_is_kept_by_caches_and_not_read_again(http: httpx.Client, past: Ack) -> None:
    """With a strong tag for each format and encoding. A topic that is created again has others."""
    first, last = (http.get("/topics/kept").json()[name] for name in ("first", "last"))
    path, record = f"/topics/kept/records?after={first - 1}&until={last}", f"/topics/kept/records/{first}"
    whole = http.get(path, headers={"Accept-Encoding": "identity"})
    assert whole.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert set(whole.headers["vary"].split(", ")) >= {"Accept", "Accept-Encoding"}
    tags = {whole.headers["etag"]}
    for headers in ({"Accept": "application/json"}, {"Accept-Encoding": "gzip"}):
        tags.add(http.get(path, headers={"Accept-Encoding": "identity", **headers}).headers["etag"])
    assert len(tags) == 3
    known = http.get(path, headers={"Accept-Encoding": "identity", "If-None-Match": whole.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")
    assert known.headers["etag"] == whole.headers["etag"]
    assert http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    head = http.head(path, headers={"Accept-Encoding": "identity"})
    assert (head.status_code, head.headers["etag"], head.content) == (200, whole.headers["etag"], b"")
    tag = http.get(record).headers["etag"]
    assert http.get(record, headers={"If-None-Match": f"W/{tag}"}).status_code == 304
    log = http.get("/topics/kept").json()["log"]
    assert http.delete("/topics/kept", params={"log": log}).status_code == 200
    http.post("/topics/kept", content=b"new")
    again = http.get(path, headers={"If-None-Match": whole.headers["etag"]})
    assert values_of(again) == [], "the records of the other log are not known any more"


def test_nothing_that_can_change_is_kept(http: httpx.Client, past: Ack) -> None:
    newest = past.last
    after, until = f"after={newest - 1}", f"until={newest}"
    assert "immutable" in http.get(f"/topics/changing/records?{after}&{until}").headers["cache-control"]
    for query in (
        "",
        after,
        until,
        f"{after}&until={newest + 1}",
        f"{after}&until=now",
        f"since=-1h&{until}",
    ):
        found = http.get(f"/topics/changing/records?{query}")
        assert found.headers["cache-control"] == "no-store", query
        assert "etag" not in found.headers
    http.post("/topics/changing", content=b"young")
    young = http.get("/topics/changing").json()["last"]
    found = http.get(f"/topics/changing/records?{after}&until={young}")
    assert found.headers["cache-control"] == "no-store"


def test_public_cache_and_tokens_are_in_the_headers_for_caches(
    broker: BrokerProcess, start_web: StartWeb, tmp_path: Path, past: Ack
) -> None:
    tokens = TokenFile(tmp_path)
    token = tokens.add("alice")
    path = f"/topics/changing/records?after={past.first - 1}&until={past.last}"
    expected = {(False, False): "private", (True, False): "public", (True, True): "public"}
    for (is_public, has_tokens), scope in expected.items():
        settings = {"tokens": tokens.path} if has_tokens else {}
        web = start_web(broker.url, public_cache=is_public, **settings)
        with web.client(token) as http:
            for one in (path, f"/topics/changing/records/{past.last}"):
                found = http.get(one).headers
                assert found["cache-control"] == f"{scope}, max-age=31536000, immutable"
                vary = {"Accept", "Accept-Encoding"} | ({"Authorization", "Cookie"} if has_tokens else set())
                assert set(found["vary"].split(", ")) == vary
                assert "quoth-newest" not in found, "it changes, and the answer is kept"
            assert http.get("/topics/changing/records").headers["cache-control"] == "no-store"


def test_a_range_with_damage_is_not_kept(start_broker: StartBroker, start_web: StartWeb) -> None:
    """Also where the damage lies so far behind that the headers were sent: then the first answer is cut."""
    broker = start_broker(worker_timeout=0.01)
    web = start_web(broker.url)
    with quoth.connect(broker.url) as client, web.client() as http:
        acks = {
            topic: [client.publish(topic, value) for value in (*before, b"to be damaged", b"last")]
            for topic, before in (("small", [b"first"]), ("large", [bytes(300_000)] * 3))
        }
        for topic in acks:
            client.roll(topic)
        broker.terminate()
        for topic in acks:
            (segment, *_) = sorted(broker.folder(topic).glob("*.seg"))
            flip(segment, segment.read_bytes().index(b"to be damaged"))
        broker.restart()
        eventually(lambda: _age(acks["large"][-1].last) > SETTLED_S, "the records are old", 2 * SETTLED_S)

        def get(topic: str, accept: str = NDJSON) -> httpx.Response:
            given = {"after": acks[topic][0].first - 1, "until": acks[topic][-1].last}
            return http.get(f"/topics/{topic}/records", params=given, headers={"Accept": accept})

        with pytest.raises(httpx.RemoteProtocolError):
            get("large")
        with pytest.raises(httpx.RemoteProtocolError):
            get("small", "text/plain")
        for answer in (get("small"), get("large"), get("small", "application/vnd.quoth.batches")):
            assert answer.headers["cache-control"] == "no-store"
            assert "etag" not in answer.headers
            assert "quoth-newest" in answer.headers
        for topic in acks:
            assert [line["gap"]["reason"] for line in lines_of(get(topic)) if "gap" in line] == ["damaged"]
            kept = {"after": acks[topic][0].first - 1, "until": acks[topic][0].last}
            found = http.get(f"/topics/{topic}/records", params=kept).headers["cache-control"]
            assert ("immutable" in found) == (topic == "small"), "damage elsewhere does not count"


# -- what is missing ----------------------------------------------------------------------------------------


def test_records_that_are_gone_or_damaged_are_told_in_their_place(
    start_broker: StartBroker, start_web: StartWeb
) -> None:
    """A format that cannot tell it is cut there, so that no client takes the answer for whole."""
    broker = start_broker(worker_timeout=0.01)
    web = start_web(broker.url)
    with quoth.connect(broker.url) as client, web.client() as http:
        acks = [client.publish("t", b"value %d" % number * 10) for number in range(3)]
        client.roll("t")
        broker.terminate()
        (segment, *_) = sorted(broker.folder("t").glob("*.seg"))
        flip(segment, segment.read_bytes().index(b"value 1"))
        broker.restart()
        found = lines_of(http.get("/topics/t/records"))
        assert [line.get("pointer") for line in found] == [acks[0].first, None, acks[2].first]
        assert found[1]["gap"] == {
            "topic": "t", "after": acks[0].first, "next": acks[1].first + 1, "records": 1,
            "reason": "damaged",
        }  # fmt: skip
        with pytest.raises(httpx.RemoteProtocolError):
            http.get("/topics/t/records", headers={"Accept": "text/plain"})
        answer = http.get(f"/topics/t/records/{acks[1].first}")
        assert (answer.status_code, code_of(answer)) == (500, "damaged")
        client.trim("t", acks[2].last + 1)
        client.publish("t", b"new")
        answer = http.get("/topics/t/records", params={"after": acks[0].first})
        gap, record = lines_of(answer)
        assert (gap["gap"]["reason"], record["value"]) == ("trimmed", "new")
        assert int(answer.headers["quoth-gone"]) > 0


def test_a_cursor_above_the_newest_record_is_told(
    http: httpx.Client, client: quoth.Client, topic: str
) -> None:
    ack = client.publish(topic, b"v")
    (line,) = lines_of(http.get(f"/topics/{topic}/records", params={"after": ack.last + 5}))
    assert line["gap"]["reason"] == "ahead"
    assert values_of(http.get(f"/topics/{topic}/records", params={"after": "now"})) == []


# -- counts -------------------------------------------------------------------------------------------------


def test_records_are_counted_without_being_read(http: httpx.Client, client: quoth.Client, topic: str) -> None:
    ack = client.publish(topic, [b"v"] * 10)
    found: dict[str, Any] = http.get(f"/topics/{topic}/count").json()
    assert (found["records"], found["first"], found["last"]) == (10, ack.first, ack.last)
    part = http.get(f"/topics/{topic}/count", params={"after": ack.first, "until": ack.first + 3}).json()
    assert part["records"] == 3
