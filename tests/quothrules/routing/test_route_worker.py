"""Workers: they route the records of a topic in order and once, through failures of records and of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.client.leases import extended
from kit.deadlines import becomes, eventually
from kit.rules import CATASTROPHE, rules_of
from quoth import Client, Message, NotFound
from quothrules.evaluator import evaluator as evaluator_module
from quothrules.evaluator.evaluator import Evaluator
from quothrules.history.rule_history import GroupPlace
from quothrules.routing import held_records
from quothrules.routing.record_router import ActiveRules
from quothrules.routing.route_counts import RouteCounts
from quothrules.routing.route_worker import RouteWorker, history_of
from quothrules.rule import RuleSet

StartWorker = Callable[..., RouteWorker]
COPY = '[[rule]]\nname = "copy"\nto = "{topic}.copy"'


@pytest.fixture
def start_worker(broker: BrokerProcess, stack: ExitStack, topic: str) -> Iterator[StartWorker]:
    """Start a worker of its own client for some rules: `start_worker(text, begin=0)`."""
    started: list[RouteWorker] = []

    def start(
        text: str, *, begin: int = 0, delay: float = 0.0, of: str = topic, counts: RouteCounts | None = None
    ) -> RouteWorker:
        client = stack.enter_context(quoth.connect(broker.url))
        rules = rules_of(text)
        evaluator = stack.enter_context(Evaluator(rules, history_of(client)))
        delay_us = round(delay * 1e6)
        place = GroupPlace(rules.group(1, delay_us), delay_us, begin)
        active = ActiveRules(rules, evaluator)
        worker = RouteWorker(client, of, place, active, counts or RouteCounts(), pauses=(0.01,))
        worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()
    for worker in started:
        worker.join(20)
        assert not worker.is_alive


def read(client: Client, topic: str) -> list[Message]:
    try:
        return list(client.read(topic, limit=100_000))
    except NotFound:
        return []


def values(client: Client, topic: str) -> list[bytes]:
    return [message.value for message in read(client, topic)]


def comes(client: Client, topic: str, count: int) -> list[Message]:
    """Wait until a topic has so many records, and return them."""
    return (
        eventually(lambda: len(found := read(client, topic)) >= count and found, f"{count} in {topic}") or []
    )


def finished(client: Client, topic: str, group: str = "rules.test") -> bool:
    """Return True if a group has finished all records of a topic."""
    return client.group(topic, group, create=False).info().lag == 0


def dead(client: Client, topic: str, group: str = "rules.test") -> list[Message]:
    return read(client, f"{topic}.{group}.dead")


def test_records_are_routed_in_order_and_acknowledged(
    client: Client, start_worker: StartWorker, topic: str
) -> None:
    """The records of before, and those that come."""
    client.publish(topic, [b"%d" % number for number in range(500)], key=b"k", headers={"h": b"x"})
    counts = RouteCounts()
    start_worker(COPY, counts=counts)
    client.publish(topic, [b"%d" % number for number in range(500, 600)])
    found = comes(client, f"{topic}.copy", 600)
    assert [message.value for message in found] == [b"%d" % number for number in range(600)]
    assert (found[0].key, found[0].headers["h"], found[0].headers["quoth-hops"]) == (b"k", b"x", b"1")
    source, _, pointer = found[0].headers["quoth-source"].decode().rpartition(":")
    assert (source, client.get(topic, int(pointer)).value) == (topic, b"0")
    eventually(lambda: finished(client, topic), "all is acknowledged")
    expected = {"totals": {"records": 600, "written": 600}, "rules": {"copy": {"routed": 600}}}
    becomes(counts.to_map, expected, "all is counted")


def test_a_worker_begins_where_it_is_to(client: Client, start_worker: StartWorker, topic: str) -> None:
    first = client.publish(topic, [b"a", b"b", b"c"]).first
    start_worker(COPY, begin=first)
    assert [message.value for message in comes(client, f"{topic}.copy", 2)] == [b"b", b"c"]


FAILING = """
deadline = "2s"
attempts = 2
[[rule]]
name = "key"
to = "{topic}.{key}"
match.prefix = "key"
[[rule]]
name = "slow"
to = "{topic}.copy"
match.regex = "^(a+)+$"
[[rule]]
name = "copy"
to = "{topic}.copy"
"""


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    ("value", "times", "reason"),
    [
        (b"key", 2, "rule 'key': '{topic}.{key}': the record has no key"),
        (CATASTROPHE, 1, "rule 'slow': it took longer than 2 s and was ended"),
    ],
    ids=["missing", "catastrophe"],
)
def test_a_record_that_fails_has_its_attempts_and_dies(
    client: Client, start_worker: StartWorker, topic: str, value: bytes, times: int, reason: str
) -> None:
    """The records behind it wait, so that their order holds; its dead letter has the reason."""
    counts = RouteCounts()
    client.publish(topic, [b"1", *[value, b"2"] * times, b"3"])
    start_worker(FAILING, counts=counts)
    copied = [b"1", *[b"2"] * times, b"3"]
    comes(client, f"{topic}.copy", len(copied))
    assert values(client, f"{topic}.copy") == copied
    letters = eventually(lambda: len(found := dead(client, topic)) == times and found, "they are dead") or []
    assert [letter.value for letter in letters] == [value] * times
    assert [letter.headers["quoth-reason"].decode() for letter in letters] == [reason] * times
    eventually(lambda: finished(client, topic), "all is finished")
    totals = {"records": len(copied), "written": len(copied), "failed": 2 * times, "dead": times}
    becomes(lambda: counts.to_map()["totals"], totals, "all is counted")


def test_a_record_may_take_longer_than_the_lease(
    client: Client, start_worker: StartWorker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is extended again and again meanwhile, so no other worker gets the record."""
    monkeypatch.setattr(held_records, "LEASE_S", 30.0)
    monkeypatch.setattr(held_records, "EXTEND_S", 0.2)
    monkeypatch.setattr(evaluator_module, "KEEP_S", 0.1)
    group = client.group(topic, "rules.test", start=0, lease=30.0, max_attempts=0, backoff=[0.0])
    group.info()
    client.publish(topic, CATASTROPHE)
    worker = start_worker(FAILING.replace("2s", "60s"))
    eventually(lambda: group.info().in_flight, "the expression runs")
    extended(group)
    assert group.info().redelivered == 0
    worker._active.evaluator.close()
    eventually(lambda: "closed" in worker.problem, "that ends it")


def test_a_slow_rule_slows_nothing_but_itself(client: Client, start_worker: StartWorker, topic: str) -> None:
    """Its topic takes records, and readers and other rules get them, while an expression runs for ever."""
    slow = RouteCounts()
    worker = start_worker(FAILING.replace("2s", "60s"), counts=slow)
    client.publish(topic, CATASTROPHE)
    client.publish(f"{topic}-2", b"first")
    eventually(lambda: any(one.in_flight for one in client.groups(topic)), "the expression runs")
    start_worker(COPY, of=f"{topic}-2")
    sent = [b"%d" % number for number in range(300)]
    for value in sent:
        client.publish(topic, value)
        client.publish(f"{topic}-2", value)
    assert values(client, topic)[1:] == sent
    comes(client, f"{topic}-2.copy", 301)
    assert not slow.to_map()["totals"].get("failed"), "it still runs"
    worker._active.evaluator.close()
    eventually(lambda: "closed" in worker.problem, "that ends it")


def test_a_record_that_cannot_be_stored_dies(client: Client, start_worker: StartWorker, topic: str) -> None:
    """The records behind it were published with it, and are not published again."""
    client.publish(topic, [b"1", b"\0" * 9_000_000, b"2"], key=[b"a", b"b", b"c"])
    twice = f"{COPY}\ncontinue = true\n[[rule]]\nto = '{{topic}}.copy'\nset_headers.a = 'b'"
    start_worker(f"attempts = 2\n{twice}")
    letters = eventually(lambda: dead(client, topic), "it is dead")
    assert b"too_large" in letters[0].headers["quoth-reason"]
    eventually(lambda: finished(client, topic), "all is finished")
    assert values(client, f"{topic}.copy") == [b"1", b"1", b"2", b"2"]


def test_a_loop_ends(client: Client, start_worker: StartWorker, topic: str) -> None:
    """A record is written `hops_max` times, and is a dead letter then."""
    counts = RouteCounts()
    client.publish(topic, b"round")
    start_worker('hops_max = 3\n[[rule]]\nto = "{topic}"', counts=counts)
    letters = eventually(lambda: dead(client, topic), "the guard has ended it")
    assert b"routed 3 times" in letters[0].headers["quoth-reason"]
    assert [message.headers.get("quoth-hops") for message in read(client, topic)] == [None, b"1", b"2", b"3"]
    assert eventually(lambda: counts.to_map()["totals"].get("refused"), "it is counted") == 1


def test_a_delayed_record_waits(client: Client, start_worker: StartWorker, topic: str) -> None:
    """By a worker of its own; what has no delay does not wait for it."""
    text = f'{COPY}\ncontinue = true\n[[rule]]\nname = "late"\nto = "{{topic}}.late"\ndelay = "1.5s"'
    both = RouteCounts()
    workers = [start_worker(text, delay=delay, counts=both) for delay in (0, 1.5)]
    with workers[1]._active.evaluator._lock:  # its records wait for those of the other worker, come what may
        pointers = [client.publish(topic, b"0").first]
        comes(client, f"{topic}.copy", 1)
        pointers += [client.publish(topic, b"%d" % number).first for number in (1, 2)]
        soon = comes(client, f"{topic}.copy", 3)
    late = comes(client, f"{topic}.late", 3)
    assert [message.value for message in late] == [message.value for message in soon] == [b"0", b"1", b"2"]
    assert all(one.pointer - at >= 1_500_000 for one, at in zip(late, pointers, strict=True))
    assert soon[-1].pointer < late[-1].pointer
    assert [worker.place.name for worker in workers] == ["rules.test", "rules.test@1.5s"]
    for name in ("rules.test", "rules.test@1.5s"):
        eventually(lambda name=name: finished(client, topic, name), "all is finished")  # type: ignore[misc]
    expected = {
        "totals": {"records": 3, "written": 6},
        "rules": {"copy": {"routed": 3}, "late": {"routed": 3}},
    }
    becomes(both.to_map, expected, "all is counted")


ONCE = '[[rule]]\nname = "once"\nto = "{topic}.copy"\ndedupe = "1h"'


def test_duplicates_are_found_by_the_worker_after_this_one(
    client: Client, start_worker: StartWorker, topic: str
) -> None:
    """The worker reads the keys of the past from the topic, as far as the span goes."""
    keys: list[bytes | None] = [b"a", b"b", b"a"]
    client.publish(topic, [b"1", b"2", b"3"], key=keys)
    worker = start_worker(ONCE)
    comes(client, f"{topic}.copy", 2)
    eventually(lambda: finished(client, topic), "all is acknowledged")
    worker.stop()
    worker.join(20)
    client.publish(topic, [b"4", b"5", b"6"], key=[b"b", b"c", b"a"])
    start_worker(ONCE)
    comes(client, f"{topic}.copy", 3)
    eventually(lambda: finished(client, topic), "all is acknowledged")
    assert values(client, f"{topic}.copy") == [b"1", b"2", b"5"]


def test_records_that_come_again_are_not_written_again(
    client: Client, start_worker: StartWorker, topic: str
) -> None:
    """After a process that had published them and did not acknowledge them."""
    pointers = [client.publish(topic, b"%d" % number, key=b"%d" % number).first for number in range(10)]
    worker = start_worker(ONCE)
    comes(client, f"{topic}.copy", 10)
    eventually(lambda: finished(client, topic), "all is acknowledged")
    worker.stop()
    worker.join(20)
    group = client.group(topic, "rules.test", create=False)
    generation = group.info().generation
    group.seek(pointers[4])
    counts = RouteCounts()
    start_worker(COPY, counts=counts)
    comes(client, f"{topic}.copy", 15)
    assert group.info().generation == generation + 1
    assert values(client, f"{topic}.copy")[10:] == [b"%d" % number for number in range(5, 10)]


def test_a_worker_waits_for_the_leases_of_another_member(
    client: Client, start_worker: StartWorker, topic: str
) -> None:
    """Records that a process before this one has begun come first."""
    client.publish(topic, [b"1", b"2", b"3"])
    with client.group(topic, "rules.test", start=0, lease=0.5, backoff=[0], member="former") as former:
        assert len(former.fetch(2)) == 2
        start_worker(COPY)
        comes(client, f"{topic}.copy", 3)
    assert values(client, f"{topic}.copy") == [b"1", b"2", b"3"]


def test_a_group_with_other_settings_is_taken(client: Client, start_worker: StartWorker, topic: str) -> None:
    client.publish(topic, b"1")
    client.group(topic, "rules.test", lease=7.0, max_attempts=9).info()
    start_worker(COPY)
    comes(client, f"{topic}.copy", 1)


def test_a_worker_ends_with_its_topic(client: Client, start_worker: StartWorker, topic: str) -> None:
    client.publish(topic, b"1")
    worker = start_worker(COPY)
    comes(client, f"{topic}.copy", 1)
    client.delete_topic(topic)
    eventually(lambda: not worker.is_alive, "it has ended")


def test_a_deleted_group_is_made_again(client: Client, start_worker: StartWorker, topic: str) -> None:
    """From where the rules began. What was written is not written again."""
    first = client.publish(topic, [b"1", b"2"]).first
    worker = start_worker(COPY, begin=first - 1)
    comes(client, f"{topic}.copy", 2)
    client.group(topic, "rules.test", create=False).delete()
    client.publish(topic, b"3")
    comes(client, f"{topic}.copy", 3)
    eventually(lambda: finished(client, topic), "all is acknowledged")
    assert values(client, f"{topic}.copy") == [b"1", b"2", b"3"]
    assert worker.problem == ""


def other_rules(rules: RuleSet, client: Client, stack: ExitStack) -> ActiveRules:
    evaluator = stack.enter_context(Evaluator(rules, history_of(client)))
    evaluator.start()
    return ActiveRules(rules, evaluator)


def test_other_rules_hold_for_the_next_records(
    client: Client, start_worker: StartWorker, stack: ExitStack, topic: str
) -> None:
    client.publish(topic, b"1")
    worker = start_worker(COPY)
    comes(client, f"{topic}.copy", 1)
    former = worker._active
    worker.apply(other_rules(rules_of('[[rule]]\nto = "{topic}.other"'), client, stack))
    former.evaluator.close()
    client.publish(topic, b"2")
    assert [message.value for message in comes(client, f"{topic}.other", 1)] == [b"2"]
    assert values(client, f"{topic}.copy") == [b"1"]


def test_a_worker_goes_on_after_an_outage(start_broker: StartBroker, stack: ExitStack) -> None:
    """The broker is killed in the middle of it, and nothing is lost or doubled."""
    broker = start_broker()
    client = stack.enter_context(quoth.connect(broker.url))
    sent = [b"%d" % number for number in range(3_000)]
    client.publish("a", sent, durability="synced")
    rules = rules_of('[[rule]]\nto = "b"')
    evaluator = stack.enter_context(Evaluator(rules))
    worker = RouteWorker(
        client, "a", GroupPlace("rules.test", 0, 0), ActiveRules(rules, evaluator), RouteCounts()
    )
    worker.start()
    for count in (100, 1_000):
        comes(client, "b", count)
        broker.kill()
        broker.restart()
    comes(client, "b", 3_000)
    worker.stop()
    worker.join(20)
    assert values(client, "b") == sent
