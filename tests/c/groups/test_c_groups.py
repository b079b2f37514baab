"""Consumer groups of the C library against a real broker, and beside members in Python."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.deadlines import eventually
from kit.disk.damage import flip, stored_batches
from kit.machine.cprograms import Calls, MakeCalls
from kit.scale import times
from quothwire.protocol.messages import Operation

RECORDS = times(2_000, 20_000)
TIMEOUT_MS = 1_000
LATE_S = 6.0
"""How much later than its deadline a call may end on a busy machine. The default timeout is longer."""
LINGER_S = 0.005
"""The time after which settlements are sent, however few they are."""
LEASE_MS, LAST_LEASE_MS = 2_000, 500
HELD_MS = 6_000
"""A lease that is extended in its second half, also by a busy machine."""
WAIT_MS = 10_000
GROUP = "billing"
TRIMMED, DAMAGED = 1, 2
STATE = [
    *("generation", "paused", "after", "cursor", "lag", "oldest", "newest"),
    *("in_flight", "pending", "redelivered", "dead", "gone"),
]


def join(calls: Calls, topic: str, *settings: str, records: int = 100, lease_ms: int = 0) -> None:
    """Let the program become a member of the group."""
    assert calls("group_join", topic, GROUP, records, lease_ms, "worker", *settings) == ["ok"]


def publish(broker: BrokerProcess, topic: str, count: int) -> list[int]:
    """Publish that many records, and return their pointers."""
    with quoth.connect(broker.url) as client:
        ack = client.publish(topic, [b"%d" % number for number in range(count)])
    return list(range(ack.first, ack.last + 1))


def leased(lines: list[str]) -> list[tuple[int, int]]:
    """Return the pointers and attempts of records that were fetched."""
    return [(int(words[1]), int(words[2])) for line in lines if (words := line.split())[0] == "leased"]


def state(calls: Calls, topic: str) -> dict[str, int]:
    """Return the numbers of the group."""
    return dict(zip(STATE, map(int, calls("group_info", topic, GROUP)[0].split()[1:]), strict=False))


# -- fetching and settling ----------------------------------------------------------------------------------


def test_records_are_fetched_once_and_acknowledged(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    with quoth.connect(broker.url) as client:
        ack = client.publish(topic, [b"one", b""], key=[None, b"k"], headers=[{}, {"h": b"\1"}])
    join(calls, topic)
    one, two = calls("group_fetch", 0)
    assert one.startswith(f"leased {ack.first} 1 6f6e65:~:")
    assert two == f"leased {ack.last} 1 -:6b:81a168c40101"
    assert calls("group_fetch", 0) == [], "they are under a lease"
    assert calls("group_ack", ack.first, ack.last) == ["ok"]
    assert state(calls, topic) | {"after": ack.last, "lag": 0, "in_flight": 0} == state(calls, topic)
    assert calls("group_count") == ["ok 2 2 0 0"]


def test_a_fetch_waits_for_the_next_record(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    publish(broker, topic, 1)
    join(calls, topic)
    assert len(calls("group_fetch", 0)) == 1
    calls.begin("group_fetch", WAIT_MS)
    (pointer,) = publish(broker, topic, 1)
    assert leased(calls.take()) == [(pointer, 1)]


def test_many_settlements_are_sent_together(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    pointers = publish(broker, topic, RECORDS)
    join(calls, topic, f"max_in_flight={RECORDS}", records=RECORDS)
    with quoth.connect(broker.url) as client:
        before, began = client.status().counters["requests"], time.monotonic()
        assert len(calls("group_work", RECORDS, 0)) == RECORDS + 1
        lingers = (time.monotonic() - began) / LINGER_S
        assert client.status().counters["requests"] - before < RECORDS / 20 + lingers
    assert state(calls, topic)["after"] == pointers[-1]
    assert calls("group_count") == [f"ok {RECORDS} {RECORDS} 0 0"]


def test_settlements_in_any_order_have_their_effect(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    """Rows that overlap, and nacks with different reasons, take several requests."""
    pointers = publish(broker, topic, 40)
    join(calls, topic, "backoff=0")
    calls("group_fetch", 0)
    for number, pointer in reversed([*enumerate(pointers)]):
        calls("group_extend_only", pointer, 60_000)
        if number % 2:
            calls("group_ack_only", pointer)
        else:
            calls("group_nack_only", pointer, 0, f"{number:02x}")
    assert calls("group_flush", WAIT_MS) == ["ok"]
    assert leased(calls("group_fetch", 0)) == [(pointer, 2) for pointer in pointers[::2]]
    for number, pointer in enumerate(pointers[::2]):
        calls("group_term_only", pointer, f"{number + 65:02x}")
    assert calls("group_flush", WAIT_MS) == ["ok"]
    assert eventually(lambda: state(calls, topic)["dead"] == 20, "the letters are stored")
    with quoth.connect(broker.url) as client:
        letters = client.read(f"{topic}.{GROUP}.dead")
    assert sorted(letter.headers["quoth-reason"] for letter in letters) == [
        bytes([number + 65]) for number in range(20)
    ]


def test_a_fetch_does_not_keep_settlements_back(
    make_calls: MakeCalls, context: Context, broker: BrokerProcess, topic: str
) -> None:
    """The ack overlaps the extension, so it takes another request, and the fetch waits for the room of it.

    If it were kept back, every fetch but the first would end in vain, and another one would follow. A busy
    machine may let some end so.
    """
    pointers = publish(broker, topic, 16)
    with Meddler(context, broker.url) as meddler:
        calls = make_calls(meddler.url)
        join(calls, topic, "max_in_flight=1")
        for pointer in pointers:
            assert leased(calls("group_fetch", WAIT_MS)) == [(pointer, 1)]
            calls("group_extend_only", pointer, 60_000)
            calls("group_ack_only", pointer)
        assert calls("group_flush", WAIT_MS) == ["ok"]
        assert meddler.count(Operation.GROUP_FETCH) < 1.5 * len(pointers), "most fetches end in vain"


def test_a_rejected_record_becomes_a_dead_letter(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    (pointer,) = publish(broker, topic, 1)
    join(calls, topic)
    calls("group_fetch", 0)
    reason = "ü" * 1_200
    assert calls("group_term", pointer, reason.encode().hex()) == ["ok"]
    assert eventually(lambda: state(calls, topic)["dead"] == 1, "the letter is stored")
    with quoth.connect(broker.url) as client:
        (letter,) = client.read(f"{topic}.{GROUP}.dead")
    assert letter.headers["quoth-reason"].decode() == reason[:1_000]
    assert letter.headers["quoth-member"] == b"worker"


def test_a_release_does_not_count_as_an_attempt(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    pointers = publish(broker, topic, 3)
    join(calls, topic, "max_attempts=2", "backoff=600")
    for _ in range(3):
        assert leased(calls("group_fetch", 0)) == [(pointer, 1) for pointer in pointers]
        calls("group_release_only", pointers[0])
        calls("group_release_only", pointers[2])
        assert calls("group_release", pointers[1]) == ["ok"]
    assert calls("group_release", pointers[1])[0].startswith("error lease_lost 0 release of ")
    assert state(calls, topic) | {"redelivered": 0, "dead": 0, "in_flight": 0} == state(calls, topic)


def test_leases_of_what_was_not_handed_out_are_extended(
    calls: Calls, broker: BrokerProcess, topic: str
) -> None:
    pointers = publish(broker, topic, 3)
    join(calls, topic, lease_ms=HELD_MS)
    assert leased(calls("group_fetch", 0, 1)) == [(pointers[0], 1)]
    left = [HELD_MS]

    def has_risen() -> bool:
        assert calls("group_fetch", 0, 0) == []
        left.append(int(calls("group_pending", topic, GROUP)[-1].split()[4]))
        return left[-1] > left[-2]

    eventually(has_risen, "the time that is left rises")
    assert leased(calls("group_fetch", 0)) == [(pointer, 1) for pointer in pointers[1:]]
    assert calls("group_ack", pointers[1], pointers[2]) == ["ok"]
    assert calls("group_count") == ["ok 3 2 0 0"]


def let_leases_end(calls: Calls, topic: str) -> None:
    """Wait until leases have ended at the broker, and at the member, which has just got them."""
    got = time.monotonic()
    eventually(lambda: calls("group_pending", topic, GROUP)[0].split()[4] == "0", "they have ended")
    eventually(lambda: time.monotonic() > got + LEASE_MS / 1e3, "the member's have ended, too")


def test_records_whose_lease_has_ended_are_left_out_and_fetched_again(
    calls: Calls, broker: BrokerProcess, topic: str
) -> None:
    first, second = publish(broker, topic, 2)
    join(calls, topic, "backoff=0", lease_ms=LEASE_MS)
    assert leased(calls("group_fetch", 0, 1)) == [(first, 1)]
    let_leases_end(calls, topic)
    assert leased(calls("group_fetch", WAIT_MS)) == [(first, 2), (second, 2)]
    assert calls("group_ack", first, second) == ["ok"]


def test_a_settlement_without_its_lease_is_reported(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    first, second = publish(broker, topic, 2)
    join(calls, topic)
    calls("group_fetch", 0)
    assert calls("group_seek", topic, GROUP, first)[0].split()[1] == "2", "another generation"
    (lost,) = calls("group_ack", first)
    assert lost.startswith(f"error lease_lost 0 ack of {first} to {first}: ")
    assert calls("group_nack", second, 0)[0].startswith("error lease_lost 0 nack of ")
    assert calls("group_flush", 0) == ["ok"], "an error is returned once"
    assert leased(calls("group_fetch", 0)) == [(second, 1)]
    assert calls("group_ack", second) == ["ok"]
    assert calls("group_count") == ["ok 3 1 0 2"]


def test_at_most_once_has_no_lease(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    (pointer,) = publish(broker, topic, 1)
    join(calls, topic, "mode=at_most_once")
    assert leased(calls("group_fetch", 0)) == [(pointer, 1)]
    assert calls("group_ack", pointer) == ["ok"]
    for words in (
        ["group_nack", pointer, 0],
        ["group_release", pointer],
        ["group_extend", pointer, 5],
        ["group_term", pointer],
    ):
        assert calls(*words)[0].startswith("error bad_request 0 ")
    assert state(calls, topic)["lag"] == 0


def test_wrong_settlements_are_refused(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    (pointer,) = publish(broker, topic, 1)
    join(calls, topic)
    calls("group_fetch", 0)
    assert calls("group_nack", pointer, 43_200_000)[0].startswith("error too_large 0 ")
    assert calls("group_extend", pointer, 43_200_001)[0].startswith("error too_large 0 ")
    assert calls("group_term", pointer, "ff") == ["error bad_request 0 a reason that is not UTF-8"]
    assert calls("group_ack", pointer) == ["ok"]


def test_a_member_that_leaves_releases_its_records(
    make_calls: MakeCalls, broker: BrokerProcess, topic: str
) -> None:
    pointers = publish(broker, topic, 5)
    leaving, staying = make_calls(broker.url), make_calls(broker.url)
    join(leaving, topic)
    join(staying, topic)
    assert leased(leaving("group_fetch", 0, 2)) == [(pointer, 1) for pointer in pointers[:2]]
    leaving("group_ack_only", pointers[0])
    assert leaving("group_leave") == ["ok"]
    assert leased(staying("group_fetch", 0)) == [(pointer, 1) for pointer in pointers[2:]]


def test_a_member_that_leaves_after_its_leases_have_ended_has_nothing_to_release(
    calls: Calls, broker: BrokerProcess, topic: str
) -> None:
    first, second = publish(broker, topic, 2)
    join(calls, topic, "backoff=0", lease_ms=LEASE_MS)
    assert leased(calls("group_fetch", 0, 1)) == [(first, 1)]
    let_leases_end(calls, topic)
    assert calls("group_leave") == ["ok"]
    assert calls("group_count") == ["ok 1 0 0 0"]
    assert leased(calls("group_fetch", WAIT_MS)) == [(first, 2), (second, 2)]


def test_what_is_gone_is_reported(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    pointers = publish(broker, topic, 5)
    join(calls, topic)
    assert len(calls("group_fetch", 0, 1)) == 1
    assert calls("group_leave") == ["ok"]
    calls("group_seek", topic, GROUP, 0)
    assert calls("roll", topic)[0].startswith("ok ")
    (new,) = publish(broker, topic, 1)
    calls("trim", topic, new)
    join(calls, topic)
    gap, record = calls("group_fetch", 0)
    assert gap == f"gap {TRIMMED} 0 {new} 5 -1"
    assert leased([record]) == [(new, 1)]
    assert new > pointers[-1]


def test_a_damaged_batch_is_reported_and_finished(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    first, second = publish(broker, topic, 2)
    (third,) = publish(broker, topic, 1)
    with quoth.connect(broker.url) as client:
        log = client.topic(topic).log
    damaged = stored_batches(broker.topics_directory, log)[0]
    flip(damaged.path, damaged.start + 70)
    join(calls, topic)
    gap, record = calls("group_fetch", 0)
    assert gap.split()[:2] == ["gap", str(DAMAGED)]
    assert gap.split()[4] == "2"
    assert leased([record]) == [(third, 1)]
    assert calls("group_ack", third) == ["ok"]
    assert eventually(lambda: state(calls, topic)["after"] == third, f"{first} and {second} are finished")


# -- the whole group ----------------------------------------------------------------------------------------


def test_groups_are_made_changed_listed_and_deleted(calls: Calls, topic: str) -> None:
    settings = ["lease=60.5", "max_in_flight=10", "max_attempts=0", "backoff=0.5,2.25", "dead_letter=lost"]
    made = calls("group", topic, GROUP, 0, *settings, "key_order=1", "durability=2", "mode=at_least_once")
    assert made[1] == "settings 1 60.5 10 0 1 2 lost 0.5 2.25"
    assert calls("group", topic, GROUP, "end", "lease=60.5")[1] == made[1], "it exists, and has that setting"
    assert calls("group", topic, GROUP, 0, "lease=1")[0].startswith("error group_exists 0 ")
    assert calls("group_join", topic, GROUP, 1, 0, "w", "lease=1")[0].startswith("error group_exists 0 ")
    changed = calls("group_update", topic, GROUP, "lease=5", "dead_letter=", "key_order=0")
    assert changed[1] == "settings 1 5 10 0 0 2  0.5 2.25"
    assert calls("group_update", topic, GROUP, "lease=0")[0].startswith("error bad_setting 0 ")
    calls("group", topic, "a", 0)
    assert calls("groups", topic) == ["group a", f"group {GROUP}"]
    assert calls("group_delete", topic, GROUP)[0].startswith("ok 1 0 ")
    for call in ("group_delete", "group_info", "group_pause", "group_pending"):
        assert calls(call, topic, GROUP)[0].startswith("error unknown_group 0 ")
    assert calls("group_info", topic, "-")[0] == "error bad_group 0 a group's name of 0 bytes"
    assert calls("group_info", topic, "x" * 101)[0] == "error bad_group 0 a group's name of 101 bytes"
    assert calls("group_seek", topic, "a", 2**56)[0].startswith("error bad_pointer 0 ")
    assert calls("group", topic, "b", 0, "backoff=" + ",".join("1" * 33))[0].startswith(
        "error bad_setting 0 "
    )


def test_pause_and_pending_ranges_and_members(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    pointers = publish(broker, topic, 4)
    join(calls, topic, records=2)
    calls("group_fetch", 0)
    assert calls("group_pause", topic, GROUP)[0].split()[2] == "1"
    assert calls("group_fetch", 0) == []
    (pending,) = calls("group_pending", topic, GROUP)
    assert pending.split()[:4] == ["range", str(pointers[0]), str(pointers[1]), "1"]
    assert pending.endswith(" worker")
    assert calls("group_info", topic, GROUP)[-1] == "member worker 2 1"
    assert calls("group_ack", pointers[0], pointers[1]) == ["ok"]
    assert calls("group_resume", topic, GROUP)[0].split()[2] == "0"
    assert leased(calls("group_fetch", WAIT_MS)) == [(pointer, 1) for pointer in pointers[2:]]


def test_a_cursor_that_the_broker_keeps_moves_forward(
    calls: Calls, broker: BrokerProcess, topic: str
) -> None:
    pointers = publish(broker, topic, 3)
    calls("group", topic, "report", 0, "mode=cursor")
    assert calls("group_commit", topic, "report", pointers[1])[0].split()[3:6] == [str(pointers[1])] * 2 + [
        "1"
    ]
    assert calls("group_commit", topic, "report", pointers[0])[0].split()[3] == str(pointers[1])
    assert calls("group_commit", topic, "report", pointers[2], 9)[0].split()[3] == str(pointers[1])
    assert calls("group_join", topic, "report", 1, 0) == ["ok"]
    assert calls("group_fetch", 0)[0].startswith("error bad_request 0 ")


# -- other members, and outages -----------------------------------------------------------------------------


def test_a_member_in_c_and_one_in_python_share_records_and_those_of_a_killed_one_go_to_the_other(
    built: Path, broker: BrokerProcess, topic: str
) -> None:
    pointers = publish(broker, topic, 60)
    dying = Calls(built / "calls", broker.url)
    join(dying, topic, "backoff=0", records=20)
    with quoth.connect(broker.url) as client, client.group(topic, GROUP, member="python") as group:
        of_c = [pointer for pointer, _ in leased(dying("group_fetch", 0))]
        of_python = group.fetch(20)
        assert of_c == pointers[:20]
        assert [message.pointer for message in of_python] == pointers[20:40]
        assert dying("group_ack", of_c[0], of_c[4]) == ["ok"]
        for pointer in of_c[5:]:
            dying("group_extend_only", pointer, LAST_LEASE_MS)
        assert dying("group_flush", WAIT_MS) == ["ok"]
        dying.process.kill()
        dying.kill()
        for message in of_python:
            message.ack()
        found: dict[int, int] = {}
        while len(found) < 35:
            for message in group.fetch(100):
                assert message.pointer not in found
                found[message.pointer] = message.attempts
                message.ack()
        assert found == dict.fromkeys(pointers[5:20], 2) | dict.fromkeys(pointers[40:], 1)
        assert group.lag().records == 0


def test_a_worker_goes_on_when_the_broker_is_killed(
    make_calls: MakeCalls, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker()
    pointers = publish(broker, topic, 300)
    calls = make_calls(broker.url)
    join(calls, topic, "lease=2", "backoff=0", "max_attempts=0", records=7)
    seen: set[int] = set()
    for _ in range(3):
        calls.begin("group_work", 100, WAIT_MS)
        seen |= {int(calls.line().split()[1]) for _ in range(20)}
        broker.kill()
        broker.restart()
        seen |= {pointer for pointer, _ in leased(calls.take())}
    while seen < set(pointers):
        seen |= {pointer for pointer, _ in leased(calls("group_work", 100, WAIT_MS // 10))}
    assert seen == set(pointers)
    eventually(lambda: calls("group_work", 100, 100) and state(calls, topic)["lag"] == 0, "all is finished")


@pytest.mark.parametrize("wait_ms", [0, 200])
def test_calls_of_a_member_end_in_time_when_the_broker_is_stopped(
    make_calls: MakeCalls, start_broker: StartBroker, topic: str, wait_ms: int
) -> None:
    broker = start_broker()
    publish(broker, topic, 2)
    calls = make_calls(broker.url)
    calls("timeout", TIMEOUT_MS)
    eventually(lambda: calls("group_join", topic, GROUP, 1, 0) == ["ok"], "it joins in that time")
    ((pointer, _),) = eventually(lambda: leased(calls("group_fetch", 0)), "it fetches in that time")
    broker.freeze()
    calls("group_ack_only", pointer)
    began = time.monotonic()
    assert calls("group_flush", wait_ms)[0].startswith("error timed_out 1 ")
    assert calls("group_fetch", wait_ms)[0].split()[1] in ("timed_out", "disconnected")
    assert time.monotonic() - began < (TIMEOUT_MS + 2 * wait_ms) / 1e3 + LATE_S
    broker.kill()
