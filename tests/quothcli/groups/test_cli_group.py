"""`quoth group` lists, shows, makes, changes, moves, pauses and deletes consumer groups."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers
from kit.machine.commands import Command
from quoth import Client, connect
from quothcli.groups import settings
from quothwire import pointer as pointers
from quothwire.protocol.group_settings import NAMES

Fill = Callable[..., list[int]]


def test_create_and_set_take_every_setting(quoth: Command, topic: str) -> None:
    made = quoth(
        "group", "create", topic, "billing", "--mode", "at_most_once", "--lease", "2m",
        "--max-in-flight", "7", "--max-attempts", "3",
         "--backoff", "1, 500ms,5m", "--dead-letter", "failed", "--key-order",
        "--durability", "synced", "--format", "json",
    )  # fmt: skip
    assert made.status == 0, made
    expected = {
        "mode": "at_most_once", "lease": 120.0, "max_in_flight": 7, "max_attempts": 3,
        "backoff": [1.0, 0.5, 300.0], "dead_letter": "failed", "key_order": True, "durability": "synced",
    }  # fmt: skip
    assert made.objects[0]["settings"] == expected
    changed = quoth(
        "group", "set", topic, "billing", "--mode", "at_least_once", "--max-attempts", "0", "--no-key-order",
        "--dead-letter", "none", "--format", "json",
    )  # fmt: skip
    expected |= {"mode": "at_least_once", "max_attempts": 0, "key_order": False, "dead_letter": ""}
    assert changed.objects[0]["settings"] == expected
    shown = dict(line.split(maxsplit=1) for line in quoth("group", "info", topic, "billing").lines)
    assert (shown["lease"], shown["backoff"]) == ("2 minutes", "1 second, 500 milliseconds, 5 minutes")
    assert (shown["max_attempts"], shown["dead_letter"], shown["key_order"]) == ("no limit", "none", "no")
    again = quoth("group", "create", topic, "billing")
    assert (again.status, again.out) == (1, b"")
    assert again.err.startswith("quoth: group_exists: ")


def test_every_setting_of_a_group_is_an_option() -> None:
    assert tuple(settings._OPTIONS) == NAMES


def test_ls_shows_lag_leases_and_dead_letters(
    quoth: Command, client: Client, topic: str, fill: Fill, bury: Callable[..., list[int]]
) -> None:
    bury(b"x")
    stamps = fill(b"a", b"b", b"c")
    assert quoth("group", "create", topic, "behind").status == 0
    assert quoth("group", "create", topic, "audit", "--mode", "cursor", "--start", "end").status == 0
    with client.group(topic, "g") as member:
        (message,) = member.fetch(1)
        table = quoth("group", "ls", topic)
        assert table.lines[0].split() == [
            "GROUP",
            "MODE",
            "LAG",
            "BEHIND",
            "IN",
            "FLIGHT",
            "DEAD",
            "IDLE",
            "PROBLEM",
        ]
        rows = [line.split() for line in table.lines[1:]]
        assert [(*row[:3], row[4], row[5]) for row in rows] == [
            ("audit", "cursor", "0", "0", "0"),
            ("behind", "at_least_once", "4", "0", "0"),
            ("g", "at_least_once", "3", "1", "1"),
        ]
        found = {one["group"]: one for one in quoth("group", "ls", topic, "--format", "json").objects}
        assert (found["g"]["lag"], found["g"]["oldest"], found["g"]["dead"]) == (3, stamps[0], 1)
        assert found["behind"]["oldest"] < stamps[0]
        assert min(found["g"]["lag_seconds"], found["behind"]["lag_seconds"]) > 0
        assert found["audit"]["lag_seconds"] == 0
        assert quoth("group", "ls", topic, "--format", "raw").lines == ["audit", "behind", "g"]
        message.ack()
    everywhere = quoth("group", "ls")
    assert everywhere.lines[0].split()[0] == "TOPIC"
    assert [line.split()[:2] for line in everywhere.lines if line.startswith(f"{topic} ")] == [
        [topic, "audit"], [topic, "behind"], [topic, "g"],
    ]  # fmt: skip


def test_info_has_members_and_what_is_pending(quoth: Command, client: Client, topic: str, fill: Fill) -> None:
    stamps = fill(b"a", b"b", b"c")
    with client.group(topic, "g", member="worker-7", lease=600) as member:
        first, second = member.fetch(2)
        first.nack(300)
        (found,) = quoth("group", "info", topic, "g", "--format", "json").objects
        assert (found["topic"], found["group"], found["lag"]) == (topic, "g", 3)
        assert (found["in_flight"], found["pending"], found["cursor"]) == (1, 2, stamps[1])
        oldest = found["oldest_pending"]
        assert (oldest["first"], oldest["attempts"], oldest["member"]) == (stamps[0], 1, "")
        shown = quoth("group", "info", topic, "g").out.decode()
        assert "worker-7: 1 record in flight, seen " in shown
        assert re.search(rf"; the oldest is {stamps[0]}: 1 attempt, handed out again in 4m[45]\ds", shown)
        lines = quoth("group", "pending", topic, "g").lines
        assert re.match(rf"{stamps[0]} {stamps[0]}  1 attempt, handed out again in 4m[45]\ds", lines[0])
        assert re.match(rf"{stamps[1]} {stamps[1]}  1 attempt, worker-7 has it for 9m[45]\ds", lines[1])
        rows = quoth("group", "pending", topic, "g", "--format", "json").objects
        assert [(row["first"], row["last"], row["member"]) for row in rows] == [
            (stamps[0], stamps[0], ""), (stamps[1], stamps[1], "worker-7"),
        ]  # fmt: skip
        second.ack()


def test_oldest_pending_record_is_known_after_a_crash(alone: Command, start_broker: StartBroker) -> None:
    broker = start_broker()
    alone.url = broker.url
    with connect(broker.url) as client:
        stamps = client.publish("t", [b"a", b"b"])
        client.group("t", "g").fetch(1)
    broker.kill()
    broker.restart()
    shown = alone("group", "info", "t", "g").out.decode()
    assert f"1 record; the oldest is {stamps.first}: 1 attempt, " in shown


def test_lease_of_a_worker_without_a_name_is_shown(
    quoth: Command, broker: BrokerProcess, peers: Peers, topic: str, fill: Fill
) -> None:
    """As those that speak the simple protocol are."""
    stamps = fill(b"a", b"b")
    assert quoth("group", "create", topic, "g", "--lease", "10m").status == 0
    lease, *_ = peers.simple(broker).call("group.fetch", topic, "g", 1)
    (line,) = quoth("group", "pending", topic, "g").lines
    assert re.match(
        rf"{stamps[0]} {stamps[0]}  1 attempt, a member without a name has it for 9m[45]\ds", line
    )
    (row,) = quoth("group", "pending", topic, "g", "--format", "json").objects
    assert (row["member"], row["is_leased"]) == ("", True)
    shown = quoth("group", "info", topic, "g").out.decode()
    assert "a member without a name: 1 record in flight, seen " in shown
    peers.simple(broker).call("group.release", topic, "g", lease, stamps[0])
    (row,) = quoth("group", "pending", topic, "g", "--format", "json").objects
    assert (row["attempts"], row["is_leased"]) == (0, False)


PLACES = {
    # --to: the values that come then
    "begin": ["a", "b", "c"],
    "end": [],
    "{1}": ["b", "c"],
    "-1h": ["a", "b", "c"],
}


def test_seek_moves_to_places(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = fill(b"a", b"b", b"c")
    consume = ("consume", topic, "-g", "g", "--until-empty", "--format", "raw")
    assert quoth(*consume, "--limit", "2").lines == ["a", "b"]
    for to, values in PLACES.items():
        assert quoth("group", "seek", topic, "g", "--to", to.format(*stamps)).status == 0
        assert quoth(*consume).lines == values, to


WRONG_PLACES = {
    # --to: the advice
    "soon": "begin, end, or a time or pointer like ",
    "ende": "did you mean end?",
    "+1h": "did you mean -1h?",
    "9" * 20: "a pointer is an integer from 0 to ",
}


@pytest.mark.parametrize("to", WRONG_PLACES)
def test_wrong_place_is_answered_with_what_to_type(quoth: Command, topic: str, to: str) -> None:
    for line in (("seek", topic, "g", "--to", to), ("create", topic, "g", "--start", to)):
        happened, advice = quoth("group", *line).refused(2)
        assert happened.startswith("quoth: bad_pointer: ")
        assert advice.startswith(f"hint: {WRONG_PLACES[to]}")


def test_seek_tells_the_way_back(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"a", b"b", b"c")
    consume = ("consume", topic, "-g", "g", "--until-empty", "--format", "raw")
    for taken, left in ((0, "abc"), (1, "bc"), (3, "")):
        quoth("group", "seek", topic, "g", "--to", "begin")
        assert len(quoth(*consume, "--limit", str(taken)).lines) == taken
        moved = quoth("group", "seek", topic, "g", "--to", "end")
        assert moved.err.startswith("quoth: it was at ")
        back = moved.err.partition("--to ")[2].partition("`")[0]
        assert quoth("group", "seek", topic, "g", "--to", back).status == 0
        assert "".join(quoth(*consume).lines) == left


def test_pause_and_resume(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"a")
    assert quoth("group", "create", topic, "g").status == 0
    paused = quoth("group", "pause", topic, "g")
    assert ["group", "g,", "paused"] in [line.split() for line in paused.lines]
    assert quoth("group", "ls", topic).lines[1].split()[-1] == "paused"
    consumed = quoth("consume", topic, "-g", "g", "--until-empty")
    assert (consumed.status, consumed.out) == (0, b"")
    assert consumed.err == "quoth: group 'g' is paused; `quoth group resume` ends that\n"
    (resumed,) = quoth("group", "resume", topic, "g", "--format", "json").objects
    assert not resumed["paused"]
    assert quoth("consume", topic, "-g", "g", "--until-empty", "--format", "raw") == (0, b"a\n", "")


def test_rm_asks_and_keeps_the_records(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"a")
    assert quoth("group", "create", topic, "g").status == 0
    declined = quoth("group", "rm", topic, "g")
    assert (declined.status, declined.out) == (2, b"")
    assert f"Delete group 'g' of topic '{topic}', which has not finished 1 record?" in declined.err
    (removed,) = quoth("group", "rm", topic, "g", "--yes", "--format", "json").objects
    assert (removed["group"], removed["lag"]) == ("g", 1)
    assert quoth("group", "ls", topic).out == b""
    assert quoth("read", topic, "--format", "raw").out == b"a\n"
    assert quoth("group", "rm", topic, "g", "--yes").status == 3


def test_wrong_name_suggests_a_similar_one(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"a")
    assert quoth("group", "create", topic, "billing").status == 0
    for typed in ("info", "pause", "resume", "pending", "rm --yes", "seek --to end", "set --lease 5"):
        verb, *options = typed.split()
        happened, advice = quoth("group", verb, topic, "biling", *options).refused(3)
        assert happened == f"quoth: unknown_group: topic '{topic}' has no group 'biling'"
        assert advice == f"hint: did you mean 'billing'? `quoth group ls {topic}` lists them"
    _, advice = quoth("group", "info", topic[:-1] + "x", "billing").refused(3)
    assert advice == f"hint: did you mean '{topic}'? `quoth topic ls` lists them"
    assert quoth("group", "info", topic, "a/b").refused(2)[0].startswith("quoth: bad_group: ")


@pytest.mark.parametrize("start", ["begin", "end", "-1h", "{1}"])
def test_start_says_where_a_new_group_begins(quoth: Command, topic: str, fill: Fill, start: str) -> None:
    stamps = fill(b"a", b"b", b"c")
    made = quoth("group", "create", topic, "g", "--start", start.format(*stamps), "--format", "json")
    assert made.objects[0]["lag"] == {"begin": 3, "end": 0, "-1h": 3, "{1}": 2}[start]
    shown = quoth("group", "info", topic, "g")
    assert made.objects[0]["after"] == 0 or pointers.to_text(made.objects[0]["after"]) in shown.out.decode()
