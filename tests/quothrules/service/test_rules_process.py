"""The rules process: it follows changes at run time, and its death loses and doubles nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.machine.forkserver import start
from kit.machine.processes import children, needs_proc, python_of, runs
from kit.rules import add_rules, remove_rules
from quoth import Client, NotFound
from quoth.rules.rule_state import STATS_TOPIC
from quothrules.service.rule_report import saved_states
from quothrules.service.rules_service import histories_of

COMMAND = python_of("quothrules.__main__")
StartRules = Callable[[BrokerProcess], "subprocess.Popen[Any]"]


@pytest.fixture
def start_rules() -> Iterator[StartRules]:
    """Start a rules process of a broker, which ends with the test."""
    started: list[subprocess.Popen[Any]] = []

    def start_it(broker: BrokerProcess) -> subprocess.Popen[Any]:
        process = start(
            [*COMMAND, broker.url, "--supervised"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start_it
    for process in started:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def own(start_broker: StartBroker) -> BrokerProcess:
    """A broker of this test alone, which runs no rules itself."""
    return start_broker(rules=False)


@pytest.fixture
def admin(own: BrokerProcess, stack: ExitStack) -> Client:
    """A client of it."""
    return stack.enter_context(quoth.connect(own.url))


def values(client: Client, topic: str) -> list[bytes]:
    try:
        return [message.value for message in client.read(topic, limit=100_000)]
    except NotFound:
        return []


def comes(client: Client, topic: str, *expected: bytes) -> None:
    eventually(lambda: values(client, topic) == [*expected], f"{expected} in {topic}")


def groups(client: Client, topic: str) -> list[str]:
    return [one.group for one in client.groups(topic)]


def file(target: str, topics: str = "orders.*") -> str:
    return f'topics = ["{topics}"]\ndeadline = "60s"\n[[rule]]\nname = "copy"\nto = "{target}"'


def test_rule_sets_are_added_changed_and_removed_at_run_time(
    own: BrokerProcess, admin: Client, start_rules: StartRules
) -> None:
    admin.publish("orders.a", b"before")
    process = start_rules(own)
    add_rules(admin, "shop", file("copy"))
    eventually(lambda: groups(admin, "orders.a") == ["rules.shop"], "the worker has begun")
    admin.publish("orders.a", b"1")
    comes(admin, "copy", b"1")
    add_rules(admin, "shop", file("other"))
    eventually(lambda: saved_states(admin).get("shop", {}).get("version") == 2, "the change has effect")
    admin.publish("orders.a", b"2")
    comes(admin, "other", b"2")
    add_rules(admin, "shop", "nonsense")
    add_rules(admin, "audit", file("audit"), begin=0)
    comes(admin, "audit", b"before", b"1", b"2")
    admin.publish("orders.b", b"3")  # a topic that is new
    comes(admin, "other", b"2", b"3")
    state = eventually(
        lambda: (found := saved_states(admin)["shop"])["counts"]["totals"].get("records") == 3 and found,
        "counts",
    )
    assert state
    assert state["version"] == 2
    assert "no TOML" in state["problem"]
    assert state["counts"] == {"totals": {"records": 3, "written": 3}, "rules": {"copy": {"routed": 3}}}
    comes(admin, "audit", b"before", b"1", b"2", b"3")
    remove_rules(admin, "shop")
    eventually(lambda: groups(admin, "orders.a") == ["rules.audit"], "the group is gone")
    admin.publish("orders.a", b"4")
    comes(admin, "audit", b"before", b"1", b"2", b"3", b"4")
    assert values(admin, "other") == [b"2", b"3"]
    assert process.poll() is None


def test_rules_that_begin_anew_write_again(
    own: BrokerProcess, admin: Client, start_rules: StartRules
) -> None:
    """From the time that they name; the groups of before are gone."""
    pointers = [admin.publish("orders.a", b"%d" % number).first for number in range(4)]
    start_rules(own)
    add_rules(admin, "shop", file("copy"), begin=0)
    comes(admin, "copy", b"0", b"1", b"2", b"3")
    add_rules(admin, "shop", file("copy"), begin=pointers[1])
    comes(admin, "copy", b"0", b"1", b"2", b"3", b"2", b"3")
    eventually(lambda: groups(admin, "orders.a") == ["rules.shop~2"], "the group of before is gone")


def test_a_missing_function_lets_the_version_before_go_on(
    own: BrokerProcess, admin: Client, start_rules: StartRules
) -> None:
    start_rules(own)
    admin.publish("orders.a", b"1")
    add_rules(admin, "shop", file("copy"), begin=0)
    comes(admin, "copy", b"1")
    add_rules(admin, "shop", 'topics = "orders.*"\n[[rule]]\ncall = "missing"')
    state = eventually(
        lambda: (found := saved_states(admin).get("shop", {})).get("problem") and found,
        "the problem is saved",
    )
    assert state
    assert "no function 'missing'" in state["problem"]
    admin.publish("orders.a", b"2")
    comes(admin, "copy", b"1", b"2")


def test_counts_go_on_in_another_process(own: BrokerProcess, admin: Client, start_rules: StartRules) -> None:
    def records() -> object:
        return saved_states(admin).get("shop", {}).get("counts", {}).get("totals", {}).get("records", 0)

    add_rules(admin, "shop", file("copy"))
    for number in (1, 2):
        process = start_rules(own)
        admin.publish("orders.a", b"x")
        eventually(lambda number=number: records() == number, f"{number} are counted")  # type: ignore[misc]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert admin.topic(STATS_TOPIC).settings["max_bytes"] == 2**20


@needs_proc
@pytest.mark.parametrize("by_signal", [True, False])
def test_the_process_ends_with_its_parent_and_leaves_nothing(
    own: BrokerProcess, admin: Client, start_rules: StartRules, by_signal: bool
) -> None:
    """Records in hand are given back at once, and its own processes end."""
    process = start_rules(own)
    add_rules(admin, "shop", file("copy"), begin=0)
    admin.publish("orders.a", b"1")
    comes(admin, "copy", b"1")
    evaluators = children(process.pid)
    assert evaluators
    if by_signal:
        os.kill(process.pid, signal.SIGTERM)
    else:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    assert process.wait(DEADLINE_S) == 0
    eventually(lambda: not any(map(runs, evaluators)), "they have ended")
    if by_signal:
        assert admin.group("orders.a", "rules.shop", create=False).info().in_flight == 0


@needs_proc
def test_deleting_the_topic_of_rules_ends_them(
    own: BrokerProcess, admin: Client, start_rules: StartRules
) -> None:
    process = start_rules(own)
    add_rules(admin, "shop", file("copy"), begin=0)
    admin.publish("orders.a", b"1")
    comes(admin, "copy", b"1")
    admin.delete_topic("quoth.rules")
    eventually(lambda: children(process.pid) == [], "nothing is evaluated any more")
    add_rules(admin, "other", file("copy2"), begin=0)
    comes(admin, "copy2", b"1")
    assert [*histories_of(admin)] == ["other"]


ROUTES = """
topics = ["in-*"]
[[rule]]
name = "even"
to = ["even", "all-{topic}"]
match.regex = "[02468]$"
[[rule]]
name = "odd"
to = "all-{topic}"
"""


class Source:
    """Topics that get numbers, and the numbers that they have got."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.sent = {f"in-{number}": 0 for number in range(3)}

    def publish(self, count: int) -> None:
        for topic, first in self.sent.items():
            self.client.publish(topic, [b"%d" % number for number in range(first, first + count)])
            self.sent[topic] = first + count

    def count(self, topic: str) -> int:
        """Return how many records a topic has, 0 if it does not exist yet."""
        try:
            return self.client.count(topic).records
        except NotFound:
            return 0

    def goes_on(self, seconds: float) -> None:
        """Publish more, and let the rules come into the middle of it."""
        before = self.count("even")
        self.publish(800)
        eventually(lambda: self.count("even") > before, "it goes on")
        pause(seconds)

    def arrives(self) -> tuple[dict[str, list[int]], list[int]]:
        """Wait until all has arrived; returns the numbers of each topic, and all even ones."""
        expected = {f"all-{topic}": count for topic, count in self.sent.items()}
        expected["even"] = sum(self.sent.values()) // 2
        eventually(
            lambda: all(self.count(name) >= count for name, count in expected.items()),
            "all",
            90,
        )
        found = {topic: [*map(int, values(self.client, f"all-{topic}"))] for topic in self.sent}
        return found, [*map(int, values(self.client, "even"))]


def test_a_process_that_is_killed_loses_and_doubles_nothing(
    own: BrokerProcess, admin: Client, start_rules: StartRules, rng: random.Random
) -> None:
    """At random times, several times, while records come; and in the end the broker, too. Order holds."""
    source = Source(admin)
    add_rules(admin, "split", ROUTES, begin=0)
    process = start_rules(own)
    for _ in range(3):
        source.goes_on(rng.uniform(0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
        process = start_rules(own)
    source.goes_on(rng.uniform(0, 0.3))
    own.kill()
    own.restart()
    found, even = source.arrives()
    assert found == {topic: [*range(count)] for topic, count in source.sent.items()}
    assert sorted(even) == sorted(3 * [*range(0, source.sent["in-0"], 2)])


def test_two_processes_lose_and_double_nothing(
    own: BrokerProcess, admin: Client, start_rules: StartRules, rng: random.Random
) -> None:
    """As by a mistake. They share the records, so only the order suffers."""
    source = Source(admin)
    add_rules(admin, "split", ROUTES, begin=0)
    processes = [start_rules(own) for _ in range(2)]
    for number in range(4):
        source.goes_on(rng.uniform(0, 0.3))
        process = processes[number % 2]
        os.kill(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
        processes[number % 2] = start_rules(own)
    found, even = source.arrives()
    assert {topic: sorted(numbers) for topic, numbers in found.items()} == {
        topic: [*range(count)] for topic, count in source.sent.items()
    }
    assert sorted(even) == sorted(3 * [*range(0, source.sent["in-0"], 2)])
