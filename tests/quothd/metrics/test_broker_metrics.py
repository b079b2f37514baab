"""The operation `metrics` of a broker: amounts, durations, topics and groups, and what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, Peers
from kit.deadlines import eventually
from kit.disk.logs import encoded
from kit.text.wording import error_of
from quothd import Broker
from quothd.topics.metadata import FORMER_NAMES
from quothwire import batch
from quothwire.protocol.messages import Publish
from quothwire.protocol.metric_messages import GetMetrics, Metrics

NOTHING = {"records_in": 0, "bytes_in": 0, "records_out": 0, "bytes_out": 0}


def rows_of(found: Metrics) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in found.rows}


def row(client: quoth.Client, topic: str) -> dict[str, Any]:
    return rows_of(client.metrics())[topic]


def shows(client: quoth.Client, topic: str, **expected: Any) -> dict[str, Any]:
    """Wait until the row of a topic has these values; returns it. Topics report every `check_interval`."""
    eventually(lambda: expected.items() <= row(client, topic).items(), f"{topic} has {expected}")
    return row(client, topic)


def group_row(client: quoth.Client, topic: str, **expected: Any) -> dict[str, Any]:
    """Wait until the only group of a topic has these values; returns it."""

    def holds() -> bool:
        groups = row(client, topic).get("groups", [])
        return len(groups) == 1 and expected.items() <= groups[0].items()

    eventually(holds, f"the group of {topic} has {expected}")
    found: dict[str, Any] = row(client, topic)["groups"][0]
    return found


def hibernated(client: quoth.Client) -> None:
    """Wait until all topics hibernate, so that nothing changes any more."""

    def all_hibernate() -> bool:
        return not any(row.get("open", True) for row in client.metrics().rows)

    eventually(all_hibernate, "all topics hibernate")


@pytest.fixture
def client(tmp_path: Path) -> Any:
    broker = Broker(tmp_path / "data", check_interval=0.02, worker_timeout=0.1)
    with broker, quoth.connect(broker) as client:
        yield client


def test_records_and_bytes_that_come_in_and_go_out_are_counted(client: quoth.Client) -> None:
    values = [b"x" * 100] * 10
    client.publish("orders", values)
    client.publish("orders", values)
    size = len(batch.encode(values))
    shows(client, "orders", **(NOTHING | {"records_in": 20, "bytes_in": 2 * size}))
    read = len([*client.read("orders")])
    found = shows(client, "orders", records_out=20, bytes_out=2 * size)
    assert (read, found["count"], found["end"], found["segments"]) == (20, 20, 20, 1)
    assert (found["first"], found["last"]) == (client.topic("orders").first, client.topic("orders").last)
    client.delete_topic("orders")
    whole = client.metrics()
    assert whole.rows == []
    assert {name: whole.counters[name] for name in NOTHING} == {
        "records_in": 20, "bytes_in": 2 * size, "records_out": 20, "bytes_out": 2 * size,
    }  # fmt: skip


def test_a_retry_is_not_counted_again(tmp_path: Path, peers: Peers) -> None:
    with Broker(tmp_path / "data", check_interval=0.02) as broker, quoth.connect(broker) as client:
        peer = peers.keep(FastPeer(broker.context, broker.url))
        raw = encoded([b"x"], producer=7, sequence=1)
        replies = [peer.call(Publish(), "orders", raw) for _ in range(2)]
        assert [reply.duplicate for reply in replies] == [False, True]
        peer.publish("orders", [b"y"])
        shows(client, "orders", records_in=2)


def test_a_transaction_counts_when_it_is_published(client: quoth.Client) -> None:
    transaction = client.transaction("orders", "etl", 1)
    with transaction.part(0) as part:
        for value in (b"a", b"b", b"c"):
            part.write(value)
        staged = part.finish()
    size = len(batch.encode([b"a", b"b", b"c"]))
    shows(client, "orders", records_in=0, bytes_in=size)
    transaction.publish([staged])
    shows(client, "orders", records_in=3, bytes_in=size)


def test_durations_and_errors_are_counted(client: quoth.Client) -> None:
    client.publish("orders", [b"x"], durability="synced")
    assert error_of(client.get, "orders", 1).code == "unknown_record"
    for _ in range(3):
        assert error_of(client.topic, "absent").code == "unknown_topic"
    with pytest.raises(quoth.QuothError):
        client.update_topic("orders", **{"max_age": "1ms"} | {"retention": "nothing"})  # type: ignore[arg-type]

    def all_counted() -> bool:
        found = client.metrics()
        counted = {name: sum(one["counts"]) for name, one in found.durations.items()}
        return all(counted[name] for name in ("append", "fsync", "opening"))

    eventually(all_counted, "the topic has reported its durations")
    found = client.metrics()
    assert found.errors["unknown_topic"] == 3
    publish = found.requests["publish"]
    assert sum(publish["counts"]) == 1
    assert 0 < publish["sum"] < 60
    assert len(publish["counts"]) == len(publish["buckets"]) + 1
    assert {"publish", "fetch"} <= set(found.requests)


def test_the_disk_and_the_broker_itself_are_described(client: quoth.Client) -> None:
    eventually(lambda: "disk_level" in client.metrics().counters, "the disk was looked at")
    found = client.metrics()
    counters = found.counters
    assert 0 < counters["disk_free_bytes"] <= counters["disk_total_bytes"]
    assert counters["disk_level"] in (0, 1, 2)
    assert {"connections", "memory_max", "active", "waits", "unopened", "compiled"} <= set(counters)
    assert not set(FORMER_NAMES.values()) & set(counters), "each under one name"
    assert 0 <= counters["recovery_ms"] / 1_000 <= found.uptime
    assert found.server.startswith("quothd ")
    assert abs(found.time - client.publish("clock", b"x").first) < 60_000_000


# -- groups -------------------------------------------------------------------------------------------------


def test_a_group_has_its_lag_in_records_and_the_time_of_the_oldest(client: quoth.Client) -> None:
    ack = client.publish("orders", [b"a", b"b", b"c"])
    with client.group("orders", "billing") as group:
        first, *_ = group.fetch(2)
        held = {"lag": 3, "pending": 2, "in_flight": 2, "oldest": ack.first}
        assert group_row(client, "orders", **held)["mode"] == "at_least_once"
        first.ack()
        found = group_row(client, "orders", lag=2, pending=1, oldest=ack.first + 1)
        assert (found["group"], found["paused"], found["problem"]) == ("billing", False, "")
        info = group.info()
    assert (info.lag, info.oldest) == (found["lag"], found["oldest"])
    assert abs(found["used"] - ack.first) < 60_000_000


def test_the_lag_of_a_group_grows_while_nothing_asks_for_it(client: quoth.Client) -> None:
    ack = client.publish("orders", [b"a"])
    with client.group("orders", "billing") as group:
        (message,) = group.fetch(1)
        message.ack()
    group_row(client, "orders", lag=0, oldest=0)
    more = client.publish("orders", [b"b", b"c"])
    assert more.first > ack.last
    group_row(client, "orders", lag=2, oldest=more.first)


def test_groups_are_known_after_a_restart_without_any_request_about_them(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """Also those of a topic that hibernates, and of which no client says anything any more."""
    broker = start_broker(worker_timeout="0.05", check_interval="0.02")
    with quoth.connect(broker.url) as client:
        ack = client.publish("orders", [b"a", b"b"])
        with client.group("orders", "billing") as group:
            (message,) = group.fetch(1)
            message.ack()
        client.publish("without", b"x")
    for stop in (broker.terminate, broker.kill):
        stop()
        broker.start()
        with quoth.connect(broker.url) as client:
            group_row(client, "orders", lag=1, oldest=ack.last, redelivered=0)
            shows(client, "orders", open=False)
            shows(client, "without", groups=[])


def test_a_topic_with_thousands_of_groups_is_described_in_part(client: quoth.Client) -> None:
    client.publish("orders", b"x")
    for number in range(120):
        with client.group("orders", f"g{number}") as group:
            group.info()
    eventually(lambda: len(row(client, "orders")["groups"]) == 120, "all are there after some reports")
    assert {one["lag"] for one in row(client, "orders")["groups"]} == {1}
    client.group("orders", "g7").delete()
    eventually(lambda: len(row(client, "orders")["groups"]) == 119, "a deleted one is not")


# -- changes ------------------------------------------------------------------------------------------------


def test_since_a_serial_only_what_has_changed_comes(client: quoth.Client) -> None:
    for number in range(30):
        client.publish(f"t{number:02}", b"x")
    hibernated(client)
    first = client.metrics()
    assert [row["name"] for row in first.rows] == [f"t{number:02}" for number in range(30)]
    client.publish("t17", b"y")
    client.publish("new", b"z")
    seen: dict[str, dict[str, Any]] = {}
    serial = first.serial

    def changed() -> bool:
        nonlocal serial
        found = client.metrics(serial)
        serial = found.serial
        seen.update(rows_of(found))
        return seen.get("t17", {}).get("records_in") == 2 and "last" in seen.get("new", {})

    eventually(changed, "both have reported")
    assert set(seen) == {"t17", "new"}
    client.delete_topic("t03")
    assert client.metrics(serial).topics == 30, "their number shows that one was deleted"


def test_pages_by_name_and_by_change_have_every_topic_once(client: quoth.Client) -> None:
    names = [f"t{number:02}" for number in range(25)]
    for name in names:
        client.publish(name, b"x")
    hibernated(client)

    def ask(request: GetMetrics) -> Metrics:
        reply = client._run(_ask(request))
        assert isinstance(reply, Metrics)
        return reply

    by_name: list[str] = []
    more = True
    while more:
        found = ask(GetMetrics(after=by_name[-1] if by_name else "", limit=7))
        by_name += [row["name"] for row in found.rows]
        more = found.more
    assert by_name == names
    changed: list[str] = []
    serial, more = 1, True
    while more:
        found = ask(GetMetrics(since=serial, limit=7))
        changed += [row["name"] for row in found.rows]
        serial, more = found.serial, found.more
    assert sorted(changed) == names
    assert ask(GetMetrics(since=serial)).rows == []
    assert ask(GetMetrics(limit=0)).rows == []


def _ask(request: GetMetrics) -> Any:
    from quoth.core.calls import ask

    return ask(Metrics, request, timeout=10)


def test_the_client_of_an_event_loop_has_the_same_metrics(tmp_path: Path) -> None:
    async def names(broker: Broker) -> list[str]:
        async with quoth.aio.connect(broker) as client:
            await client.publish("orders", b"x")
            return [row["name"] for row in (await client.metrics()).rows]

    with Broker(tmp_path / "data") as broker:
        assert asyncio.run(names(broker)) == ["orders"]


def test_clients_go_on_behind_a_reply_without_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The busy topic leaves outdated places in the order of changes, of which a reply looks at two."""
    monkeypatch.setattr("quothd.metrics.broker_metrics.EXAMINED_MAX", 2)
    names = ["busy", "t0", "t1", "t2"]

    async def rows(broker: Broker) -> list[str]:
        async with quoth.aio.connect(broker) as client:
            return sorted(rows_of(await client.metrics(since=1)))

    with Broker(tmp_path / "data", check_interval=0.01) as broker, quoth.connect(broker) as client:
        for name in names:
            client.publish(name, b"x")
        for number in range(2, 8):
            client.publish("busy", b"x")
            shows(client, "busy", records_in=number)
        hibernated(client)
        first = client._run(_ask(GetMetrics(since=1)))
        assert (first.rows, first.more) == ([], True)
        assert sorted(rows_of(client.metrics(since=1))) == names
        assert asyncio.run(rows(broker)) == names
