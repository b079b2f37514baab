"""Producer ids and applications belong to the client that has begun them, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.broker.peers import FastPeer, code_of, hibernate, refused
from kit.broker.transactions import Job, part_of
from kit.disk.logs import encoded
from kit.text.wording import error_of
from quothwire.protocol.messages import AbortTransaction, DeleteTopic, Publish, Stage

FILE = """
[clients.alice]
key = "{alice}"
publish = ["*"]
read = ["*"]
admin = ["*"]
[clients.alice.quota]
producers = 3
applications = 2
[clients.bob]
key = "{bob}"
publish = ["*"]
read = ["*"]
"""
ALICES = 0x1234567890ABCDEF


def publish(peer: FastPeer, sequence: int, producer: int = ALICES) -> str:
    """The code of a publish under a producer id."""
    payload = encoded([b"%d" % sequence], producer=producer, sequence=sequence)
    return code_of(peer.request(Publish(), "t", payload))


def bound(directory: Path) -> list[str]:
    (path,) = (directory / "topics").glob("*/producers.bound")
    return path.read_text().split()


def test_another_client_publishes_nothing_under_a_producer_id(known: Callable[..., Any]) -> None:
    """Neither the next batch nor the same one again; its own ids and those of no client go on."""
    broker = known(FILE)
    alice, bob = broker.fast("alice"), broker.fast("bob")
    assert publish(alice, 1) == ""
    assert [publish(bob, sequence) for sequence in (1, 2)] == ["denied", "denied"]
    assert publish(alice, 2) == ""
    assert publish(bob, 1, producer=7) == ""
    assert publish(bob, 0, producer=0) == ""
    assert publish(alice, 1, producer=7) == "denied"
    assert alice.values("t") == [b"1", b"2", b"1", b"0"]


def test_of_two_clients_in_one_burst_the_first_one_gets_the_id(known: Callable[..., Any]) -> None:
    broker = known(FILE)
    alice, bob = broker.fast("alice"), broker.fast("bob")
    for number in range(1, 30):
        payload = encoded([b"x"], producer=number, sequence=1)
        asked = [peer.send(Publish(), "t", payload) for peer in (bob, alice)]
        codes = [code_of(bob.answer_to(asked[0])), code_of(alice.answer_to(asked[1]))]
        assert codes in (["", "denied"], ["denied", ""], ["", "busy"])
        assert broker.owner.describe("t").count == number


@pytest.mark.parametrize("end", ["hibernation", "restart", "deletion"])
def test_an_id_stays_with_its_client_as_long_as_its_topic(known: Callable[..., Any], end: str) -> None:
    broker = known(FILE, worker_timeout=0.05 if end == "hibernation" else 60.0)
    assert publish(broker.fast("alice"), 1) == ""
    if end == "hibernation":
        hibernate(broker.owner)
    elif end == "restart":
        broker.broker.stop()
        broker = known(FILE)
    else:
        broker.owner.call(DeleteTopic(), "t")
    expected = "" if end == "deletion" else "denied"
    assert publish(broker.fast("bob"), 1) == expected
    if expected:
        assert publish(broker.fast("alice"), 2) == ""
        assert bound(broker.broker.config.dir) == ["p", f"{ALICES:016x}", "alice"]


def test_an_id_of_a_batch_that_was_refused_belongs_to_no_client(known: Callable[..., Any]) -> None:
    broker = known(FILE)
    alice, bob = broker.fast("alice"), broker.fast("bob")
    assert publish(alice, 1, producer=5) == ""
    assert publish(alice, 9) == "unknown_producer"
    assert publish(bob, 1) == ""
    assert bound(broker.broker.config.dir) == ["p", f"{5:016x}", "alice", "p", f"{ALICES:016x}", "bob"]


def test_half_a_line_and_foreign_lines_are_skipped(known: Callable[..., Any]) -> None:
    broker = known(FILE)
    assert publish(broker.fast("alice"), 1) == ""
    broker.broker.stop()
    (path,) = (broker.broker.config.dir / "topics").glob("*/producers.bound")
    path.write_bytes(path.read_bytes() + b"x 0000000000000007 bob\np zz bob\n\xff\np 00000000000")
    broker = known(FILE)
    assert publish(broker.fast("bob"), 2) == "denied"
    assert publish(broker.fast("alice"), 1, producer=7) == ""
    broker.broker.stop()
    broker = known(FILE)
    assert publish(broker.fast("bob"), 2, producer=7) == "denied"


def test_the_last_id_of_a_long_file_is_bound_too(known: Callable[..., Any]) -> None:
    broker = known(FILE)
    assert publish(broker.fast("alice"), 1) == ""
    broker.broker.stop()
    (path,) = (broker.broker.config.dir / "topics").glob("*/producers.bound")
    lines = (f"p {number:016x} {'alice' * 20}\n" for number in range(1, 20_000))
    path.write_bytes("".join(lines).encode() + path.read_bytes())
    assert path.stat().st_size > 2 * 2**20
    broker = known(FILE)
    assert publish(broker.fast("bob"), 2) == "denied"
    assert publish(broker.fast("alice"), 2) == ""


def test_a_file_that_cannot_be_read_keeps_ids_from_all_clients(known: Callable[..., Any]) -> None:
    """And nothing else: batches without a producer id are stored."""
    broker = known(FILE)
    assert publish(broker.fast("alice"), 1) == ""
    broker.broker.stop()
    (path,) = (broker.broker.config.dir / "topics").glob("*/producers.bound")
    path.rename(path.with_name("kept"))
    path.symlink_to("kept")
    broker = known(FILE)
    alice, bob = broker.fast("alice"), broker.fast("bob")
    assert [publish(peer, 2) for peer in (alice, bob)] == ["storage_failed"] * 2
    assert publish(bob, 0, producer=0) == ""
    path.unlink()
    path.with_name("kept").rename(path)
    assert [publish(peer, 2) for peer in (bob, alice)] == ["denied", ""]


def test_another_client_touches_no_transaction(known: Callable[..., Any]) -> None:
    broker = known(FILE)
    alice, bob = (Job(broker.fast(name), "t") for name in ("alice", "bob"))
    parts = [alice.stage(1, 0, [[b"a"]])]
    with refused("denied"):
        bob.stage(1, 1, [[b"b"]])
    with refused("denied"):
        bob.publish(1, parts)
    with refused("denied"):
        broker.fast("bob").call(AbortTransaction("loader", 1), "t")
    broker.broker.stop()
    broker = known(FILE)
    alice, bob = (Job(broker.fast(name), "t") for name in ("alice", "bob"))
    with refused("denied"):
        bob.publish(1, parts)
    alice.publish(1, parts)
    with refused("denied"):
        bob.stage(2, 0, [[b"b"]])
    assert broker.owner.values("t") == [b"a"]


@pytest.mark.parametrize("operation", ["abort", "publish", "publish of nothing", "stage"])
def test_a_request_that_stores_nothing_binds_no_application(
    known: Callable[..., Any], operation: str
) -> None:
    """Else a client could take the names of others before they use them."""
    broker = known(FILE)
    bob, alice = (Job(broker.fast(name), "t", "etl") for name in ("bob", "alice"))
    broker.owner.publish("t", [b"x"])
    match operation:
        case "abort":
            bob.abort(1)
        case "publish":
            with refused("not_staged"):
                bob.publish(1, [part_of(0, 7, [[b"b"]])])
        case "publish of nothing":
            bob.publish(1, [])
        case _:
            payload = encoded([b"no batch of a transaction"])
            assert code_of(bob.peer.request(Stage("etl", 1, 0, 7, 0), "t", payload)) == "bad_batch"
    alice.publish(1, [alice.stage(1, 0, [[b"a"]])])
    assert bound(broker.broker.config.dir)[2::3] == ["alice"]
    with refused("denied"):
        bob.abort(1)


def test_aborts_of_many_names_write_nothing(known: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("quothd.topics.bindings.SURPLUS_MAX", 5)
    broker = known(FILE)
    broker.owner.publish("t", [b"x"])
    bob = broker.fast("bob")
    for number in range(20):
        Job(bob, "t", f"name {number}").abort(1)
    assert not [*(broker.broker.config.dir / "topics").glob("*/producers.bound")]


def test_a_client_has_no_more_producers_and_applications_in_a_topic_than_its_quota(
    known: Callable[..., Any],
) -> None:
    broker = known(FILE)
    alice, bob = broker.fast("alice"), broker.fast("bob")
    assert [publish(alice, 1, producer=number) for number in range(1, 5)] == ["", "", "", "busy"]
    assert publish(alice, 2, producer=3) == ""
    assert [publish(bob, 1, producer=number) for number in range(11, 16)] == [""] * 5
    for number in range(2):
        Job(alice, "t", f"app {number}").stage(1, 0, [[b"a"]])
    problem = error_of(Job(alice, "t", "one more").stage, 1, 0, [[b"a"]])
    assert problem.code == "quota_exceeded"
    assert "quota applications: client 'alice' may have at most 2 applications" in problem.text


def test_many_ids_that_the_log_forgets_are_forgotten_with_it(
    known: Callable[..., Any], monkeypatch: Any
) -> None:
    for name in ("quothlog.producers.PRODUCERS_MAX", "quothd.topics.bindings.SURPLUS_MAX"):
        monkeypatch.setattr(name, 10)
    monkeypatch.setattr("quothlog.producers.RETRY_US", 0)
    broker = known(FILE)
    bob = broker.fast("bob")
    for number in range(1, 101):
        assert publish(bob, 1, producer=number) == ""
    assert len(bound(broker.broker.config.dir)) // 3 <= 25
    payloads = [encoded([b"x"], producer=number, sequence=9) for number in range(1_000, 1_100)]
    answers = bob.answers_to([bob.send(Publish(), "t", payload) for payload in payloads])
    assert {code_of(one) for one in answers} == {"unknown_producer"}
    assert len(bound(broker.broker.config.dir)) // 3 <= 25
    assert publish(broker.fast("alice"), 2, producer=100) == "denied"
