"""Consumer groups over HTTP: leases, settlements, and members that die."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S, eventually
from kit.web.servers import WebProcess, code_of

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[quoth.Client]:
    """Return a client of the broker itself."""
    with quoth.connect(broker.url) as client:
        yield client


@pytest.fixture
def path(http: httpx.Client, client: quoth.Client, topic: str) -> str:
    """Return the path of a group with four records."""
    client.publish(topic, [b"0", b"1", b"2", b"3"])
    path = f"/topics/{topic}/groups/workers"
    found = http.put(path, json={"lease": "20s", "backoff": ["10ms"]})
    assert (found.status_code, found.json()["lag"]) == (200, 4)
    return path


def fetch(http: httpx.Client, path: str, **query: Any) -> dict[str, Any]:
    """Fetch records."""
    answer = http.post(f"{path}/fetch", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def settle(http: httpx.Client, path: str, kind: str, fetched: dict[str, Any], **more: Any) -> httpx.Response:
    """Settle all records of a fetch."""
    pointers = [one["pointer"] for one in fetched["records"]]
    return http.post(f"{path}/{kind}", json={"lease": fetched["lease"], "pointers": pointers, **more})


def values(fetched: dict[str, Any]) -> list[str]:
    """Return the values of a fetch."""
    return [one["value"] for one in fetched["records"]]


def test_records_are_shared_and_acknowledged(http: httpx.Client, path: str) -> None:
    one, two = fetch(http, path, limit=2), fetch(http, path, limit=9)
    assert (values(one), values(two)) == (["0", "1"], ["2", "3"])
    assert [record["attempts"] for record in one["records"]] == [1, 1]
    assert one["lease_seconds"] == 20
    for fetched in (one, two):
        answer = settle(http, path, "ack", fetched)
        assert answer.json() == {"done": 2, "late": 0, "lost": [], "durability": "written"}
    assert settle(http, path, "ack", two).json()["done"] == 0, "a second ack changes nothing"
    assert http.get(path).json()["lag"] == 0
    empty = fetch(http, path)
    assert (empty["records"], empty["lease"]) == ([], None)


def test_what_is_given_back_comes_again(http: httpx.Client, path: str) -> None:
    http.patch(path, json={"max_in_flight": 1})
    for kind, attempts in (("nack", 2), ("release", 1)):
        found = fetch(http, path)
        assert settle(http, path, kind, found).json()["done"] == 1
        again = eventually(lambda: fetch(http, path)["records"], "it is handed out again")
        assert (again[0]["value"], again[0]["attempts"]) == (found["records"][0]["value"], attempts)
        http.post(f"{path}/ack", json={"pointers": [again[0]["pointer"]]})


def test_a_lease_that_is_lost_has_no_effect(
    http: httpx.Client, client: quoth.Client, path: str, topic: str
) -> None:
    """An ack counts, and a lease that was extended is not lost."""
    http.patch(path, json={"max_in_flight": 2})
    kept = fetch(http, path)
    assert settle(http, path, "extend", kept, seconds="60s").json()["done"] == 1
    assert client.group(topic, "workers", create=False).pending()[0].seconds > 20, "it was extended"
    lost = fetch(http, path, lease="50ms")
    again = eventually(lambda: fetch(http, path, limit=1)["records"], "the lease has ended")
    assert again[0]["pointer"] == lost["records"][0]["pointer"]
    for kind in ("nack", "release", "extend", "term"):
        answer = settle(http, path, kind, lost)
        assert (answer.status_code, code_of(answer)) == (409, "lease_lost")
    assert settle(http, path, "ack", lost).json() == {
        "done": 1, "late": 1, "lost": [], "durability": "written",
    }  # fmt: skip
    assert settle(http, path, "nack", kept).json()["done"] == 1


def test_a_record_that_is_given_up_becomes_a_dead_letter(
    http: httpx.Client, client: quoth.Client, path: str, topic: str
) -> None:
    assert settle(http, path, "term", fetch(http, path), reason="malformed").json()["done"] == 1
    dead = f"{topic}.workers.dead"
    letter = eventually(lambda: list(client.read(dead)) if dead in client.topics() else [], "the letter")[0]
    assert (letter.value, letter.headers["quoth-reason"]) == (b"0", b"malformed")


def test_a_fetch_waits_for_a_record(http: httpx.Client, client: quoth.Client, path: str, topic: str) -> None:
    settle(http, path, "ack", fetch(http, path, limit=9))
    found: list[list[str]] = []
    waiting = threading.Thread(target=lambda: found.append(values(fetch(http, path, wait="20s"))))
    waiting.start()
    eventually(lambda: client.status().waits, "the fetch waits")
    client.publish(topic, b"late")
    waiting.join(DEADLINE_S)
    assert found == [["late"]]


def test_a_client_that_goes_while_it_waits_loses_no_record(
    web: WebProcess, http: httpx.Client, client: quoth.Client, path: str, topic: str
) -> None:
    """Records that come for it are released, and this is no attempt."""
    settle(http, path, "ack", fetch(http, path, limit=9))
    with web.client() as gone, pytest.raises(httpx.ReadTimeout):
        gone.post(f"{path}/fetch", params={"wait": "10m"}, timeout=0.3)
    client.publish(topic, b"for another one")
    found = eventually(lambda: fetch(http, path)["records"], "it is handed out")
    assert (found[0]["value"], found[0]["attempts"]) == ("for another one", 1)


def test_a_group_is_moved_paused_and_deleted(http: httpx.Client, path: str) -> None:
    first = fetch(http, path, limit=9)
    assert http.post(f"{path}/seek", json={"to": "begin"}).json()["generation"] == 2
    answer = settle(http, path, "nack", first)
    assert code_of(answer) == "lease_lost"
    assert http.patch(path, json={"paused": True}).json()["paused"] is True
    assert fetch(http, path)["records"] == []
    assert http.patch(path, json={"paused": False, "max_attempts": 9}).json()["settings"]["max_attempts"] == 9
    assert values(fetch(http, path)) == ["0"]
    assert http.post(f"{path}/seek", json={"to": "end"}).json()["lag"] == 0
    assert http.delete(path).json()["group"] == "workers"
    assert (http.get(path).status_code, code_of(http.get(path))) == (404, "unknown_group")
    assert code_of(http.post(f"{path}/fetch")) == "unknown_group", "a fetch makes no group"


def test_groups_are_listed_in_pages(http: httpx.Client, path: str, topic: str) -> None:
    for name in ("a b", "größe"):
        assert http.put(f"/topics/{topic}/groups/{name}", json={"start": "end"}).json()["lag"] == 0
    names: list[str] = []
    after = ""
    while after is not None:
        page = http.get(f"/topics/{topic}/groups", params={"after": after, "limit": 1}).json()
        names += [group["group"] for group in page["groups"]]
        after = page["next"]
    assert names == ["a b", "größe", "workers"]


def test_a_group_that_exists_has_to_have_the_settings_that_are_named(http: httpx.Client, path: str) -> None:
    assert http.put(path, json={}).status_code == 200
    answer = http.put(path, json={"lease": 1})
    assert (answer.status_code, code_of(answer)) == (409, "group_exists")


WRONG: list[tuple[str, Any, str]] = [
    ("ack", {}, "bad_request"),
    ("ack", {"pointers": []}, "bad_request"),
    ("ack", {"pointers": [0]}, "bad_pointer"),
    ("ack", {"pointers": [2**56]}, "bad_pointer"),
    ("ack", {"pointers": [True]}, "bad_pointer"),
    ("ack", {"pointers": ["1"]}, "bad_pointer"),
    ("ack", {"pointers": [1], "lease": "x"}, "bad_request"),
    ("ack", {"pointers": [1], "lease": 7}, "bad_request"),
    ("ack", {"pointers": [1], "delay": 1}, "bad_request"),
    ("ack", {"pointers": list(range(1, 4_098))}, "too_large"),
    ("nack", {"pointers": [1]}, "bad_request"),
    ("nack", {"pointers": [1], "lease": "1-0-5"}, "bad_request"),
    ("nack", {"pointers": [1], "lease": "1-2-5", "delay": "1d"}, "bad_request"),
    ("nack", {"pointers": [1], "lease": "1-2-5", "delay": [1]}, "bad_request"),
    ("nack", {"pointers": [1], "lease": "1-2-5", "reason": 7}, "bad_request"),
    ("term", {"pointers": [1], "lease": "99999999999999999999-2-5"}, "bad_request"),
    ("seek", {}, "bad_request"),
    ("seek", {"to": None}, "bad_pointer"),
    ("seek", {"to": -1}, "bad_pointer"),
    ("seek", {"to": "never"}, "bad_pointer"),
]


def test_wrong_settlements_have_no_effect(http: httpx.Client, path: str) -> None:
    for kind, body, code in WRONG:
        answer = http.post(f"{path}/{kind}", json=body)
        assert code_of(answer) == code, (kind, body, answer.text)
        assert answer.status_code in (400, 413)
    for content in (b"", b"{", b"[]", b"7", b"\xff"):
        answer = http.post(f"{path}/ack", content=content, headers=JSON)
        assert code_of(answer) == "bad_request"
    answer = http.post(f"{path}/ack", content=b"{}", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, code_of(answer)) == (415, "unsupported_media_type")
    for body in ({"leese": 1}, {"lease": "x"}, {"max_attempts": -1}, {"backoff": "5s"}, {"start": 1.5}):
        assert http.put(f"{path}-new", json=body).status_code == 400
    assert http.get(path).json()["lag"] == 4


def test_a_group_whose_records_are_finished_when_handed_out_has_no_lease(
    http: httpx.Client, client: quoth.Client, topic: str
) -> None:
    client.publish(topic, b"once")
    path = f"/topics/{topic}/groups/g"
    http.put(path, json={"mode": "at_most_once"})
    found = fetch(http, path)
    assert (values(found), found["lease"]) == (["once"], None)
    assert http.get(path).json()["lag"] == 0
