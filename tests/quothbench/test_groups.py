"""`quoth bench group`: rows of each figure, records that count once, peers that are there or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.machine.commands import Command
from kit.machine.processes import needs_proc
from quothbench.groups import rabbitmq_members, redis_members, state
from quothbench.groups.consuming import ConsumerPeer, ConsumerWay, RecordUnit, check_once, ranges_of
from quothbench.groups.rates import RateBench, stored
from quothbench.groups.rows import COLUMNS, GroupRows
from quothbench.load.clients import Clients
from quothbench.peers.comparison import PeerName
from quothbench.report import Report
from quothcli.printing.output import Format, Printer
from quothwire.errors import BrokerFailure, error

MEMBERS = 3


# -- the command --------------------------------------------------------------------------------------------


@needs_proc
def test_every_figure_has_its_rows(alone: Command, tmp_path: Path) -> None:
    """The programs of the peers are not in this PATH."""
    typed = "bench group --members 2 --pairs 1 --records 5000 --acks 5000 --waiting 20 --groups 30"
    arguments = [*typed.split(), "--format", "json", "--dir", str(tmp_path)]
    ended = alone(*arguments, environment={"PATH": str(tmp_path)})
    assert (ended.status, ended.err) == (0, "")
    conditions, *found = ended.objects
    for name in ("redis", "rabbitmq"):
        assert conditions[name].startswith(f"skipped: {name}-server is not installed")
    by_processor = [row for row in found if row["unit"] == "per cpu s"]  # the system counts 10 ms, or nothing
    found = [row for row in found if row not in by_processor]
    assert [(row["figure"], row["unit"], row["how_many"]) for row in found] == [
        ("2 members, batches", "records/s", 5_000),
        ("2 members, messages", "records/s", 5_000),
        ("2 members, single messages", "records/s", 1_000),
        ("publish to a waiting member, p50", "us", 100),
        ("a group", "B", 20),
        ("  its member, which waits", "B", 20),
        ("acks in random order", "s", 5_000),
        ("  longest, of 4,096 at once", "ms", 5_000),
        ("  log of the groups, largest", "MB", 5_000),
        ("  log of the groups, at the end", "MB", 5_000),
        ("  broker's memory, largest", "MB", 5_000),
        ("first request after a start", "ms", 30),
        ("  log of the groups", "MB", 30),
    ]
    *rates, latency = found[:4]
    single = found[4:]
    for row in (*rates, *by_processor, latency):
        assert row["ratio"]["median"] == pytest.approx(row["quoth"] / row["other"])
    assert [row["required"] for row in rates] == [0.4, 0.4, None]
    assert latency["required"] == 2
    assert all(row["quoth"] is not None and row["beside"] is None for row in single)
    assert 500 < single[0]["quoth"] + single[1]["quoth"] < 100_000
    assert not list(tmp_path.iterdir())


# -- records that count once --------------------------------------------------------------------------------


def test_ranges_follow_each_other() -> None:
    assert ranges_of([]) == []
    assert ranges_of([1, 2, 3, 7, 8, 5, 6, 7]) == [(1, 3), (7, 8), (5, 7)]


@pytest.mark.parametrize(
    "ranges",
    [[(1, 4)], [(1, 5), (6, 11)], [(1, 5), (5, 9)], [(6, 10), (1, 4), (4, 4)]],
    ids=["missing", "too many", "twice", "twice, and one is missing"],
)
def test_records_that_were_not_delivered_once_are_an_error(ranges: list[tuple[int, int]]) -> None:
    check_once([(6, 10), (1, 5)], 10)
    with pytest.raises(BrokerFailure, match="instead of 10"):
        check_once(ranges, 10)


def test_acks_in_random_order_finish_all_records(tmp_path: Path) -> None:
    found = state.settle_at_random(tmp_path, 2 * state.BATCH_RECORDS)
    assert 0 < found.longest_s <= found.seconds
    assert 0 < found.disk_end <= found.disk_max


# -- peers --------------------------------------------------------------------------------------------------


@contextmanager
def not_starting(_directory: Path) -> Iterator[int]:
    raise error("disconnected", "it did not start: no room")
    yield 0


@contextmanager
def starting(_directory: Path) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("starts", [True, False], ids=["members fail", "server fails"])
def test_row_that_fails_has_a_problem(
    starts: bool, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """No Redis listens at that port."""
    way = redis_members.REDIS_CONSUMERS.ways[0]
    serving = starting if starts else not_starting
    peer = redis_members.REDIS_CONSUMERS.peer._replace(serving=serving, store=lambda _: None)
    rows = GroupRows(Report(Printer(Format.JSON), "group", {}, COLUMNS))
    bench = RateBench(tmp_path, rows, [1], 1, stored(100))
    assert not bench.beside_peer(PeerName.REDIS, ConsumerPeer(peer, [way]))
    _, row = map(json.loads, capsysbinary.readouterr().out.splitlines())
    assert row["ratio"] is None
    if starts:
        assert (row["figure"], row["beside"], row["required"]) == ("1 member, batches", "redis, COUNT 100", 5)
        assert row["problem"].startswith("redis: ")
    else:
        assert (row["figure"], row["problem"]) == ("server", "it did not start: no room")


SMALL = {
    PeerName.REDIS: redis_members.REDIS_CONSUMERS._replace(
        peer=redis_members.REDIS_CONSUMERS.peer._replace(
            store=lambda port: redis_members._store(port, 3_000)
        ),
        ways=[
            ConsumerWay(str(look), RecordUnit.BATCHES, 3_000, redis_members._consume, (100, look))
            for look in (False, True)
        ],
    ),
    PeerName.RABBITMQ: rabbitmq_members.RABBITMQ_CONSUMERS._replace(
        ways=[
            ConsumerWay(str(size), RecordUnit.MESSAGES, 3_000, rabbitmq_members._consume, (size,))
            for size in (1, 500)
        ]
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_members_of_peers_share_all_records(name: PeerName, tmp_path: Path) -> None:
    """Needs the peers, which are skipped where they are not installed."""
    consumers = SMALL[name]
    if missing := consumers.peer.missing():
        pytest.skip(missing)
    with Clients(MEMBERS) as clients, consumers.peer.serving(tmp_path / "data") as address:
        consumers.peer.store(address)
        for way in consumers.ways:
            assert way.measure(clients, address) > 0
