"""Amounts of clients, against their quotas and those of all together."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from kit.broker.peers import refused
from kit.text.wording import error_of
from quothd.access.ledger import ALL, RATE_S, Ledger, Limits
from quothd.access.quota import IN_WORK, Quota

OPERATIONS = Path(__file__).parents[3] / "systemd/OPERATIONS.md"
LIMITS: dict[str, Limits] = {
    ALL: {Quota.TOPICS: 5, Quota.TOPIC_CREATIONS: 5, Quota.STORE_BYTES: 2**20},
    "alice": {Quota.TOPICS: 3, Quota.TOPIC_CREATIONS: 3, Quota.WAITS: 1, Quota.REQUEST_BYTES: 100},
}


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(lambda name: LIMITS.get(name, {}))


def test_a_client_has_no_more_than_its_quota_and_all_have_no_more_than_theirs(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.charge("alice", Quota.TOPICS)
    for _ in range(2):
        with refused("quota_exceeded"):
            ledger.charge("alice", Quota.TOPICS)
    for _ in range(2):
        ledger.charge("bob", Quota.TOPICS)
    with refused("quota_exceeded"):
        ledger.charge("carol", Quota.TOPICS)
    ledger.release("alice", Quota.TOPICS)
    ledger.charge("carol", Quota.TOPICS)
    assert [ledger.used(one, Quota.TOPICS) for one in ("alice", "bob", "carol", ALL)] == [2, 2, 1, 5]


def test_what_is_done_for_no_client_counts_for_all_together_once(ledger: Ledger) -> None:
    for _ in range(5):
        ledger.charge(ALL, Quota.TOPICS)
    assert ledger.used(ALL, Quota.TOPICS) == 5
    with refused("quota_exceeded"):
        ledger.charge("alice", Quota.TOPICS)


def test_the_error_names_the_quota_its_limit_and_the_client(ledger: Ledger) -> None:
    problem = error_of(ledger.charge, "alice", Quota.TOPICS, 4)
    assert problem.text == "quota topics: client 'alice' may have at most 3 topics"
    problem = error_of(ledger.charge, "bob", Quota.STORE_BYTES, 2**21)
    assert problem.text.startswith("quota store_bytes: all clients together may have at most 1 MiB in")


def test_the_document_has_every_quota_and_the_error_beyond_it() -> None:
    table = OPERATIONS.read_text().partition("\n| quota | limits |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?`) \| .*? \| (?:`(\w+)`)? ?\|$", table, re.MULTILINE)
    found = {name: code for names, code in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(found) == set(Quota)
    assert {name for name, code in found.items() if code == "busy"} == {*IN_WORK}


def test_what_ends_by_itself_is_busy_beyond_its_quota(ledger: Ledger) -> None:
    ledger.charge("alice", Quota.WAITS)
    problem = error_of(ledger.charge, "alice", Quota.WAITS)
    assert (problem.code, problem.retryable) == ("busy", True)
    assert {Quota.REQUESTS, Quota.REQUEST_BYTES, Quota.WAITS, Quota.PRODUCERS} == {*IN_WORK}


def test_one_request_is_in_work_whatever_its_size(ledger: Ledger) -> None:
    """Without that a client could never send it."""
    ledger.charge("alice", Quota.REQUEST_BYTES, 1_000)
    with refused("busy"):
        ledger.charge("alice", Quota.REQUEST_BYTES, 1)
    ledger.release("alice", Quota.REQUEST_BYTES, 1_000)
    ledger.charge("alice", Quota.REQUEST_BYTES, 99)
    ledger.charge("alice", Quota.REQUEST_BYTES, 1)


def test_a_client_creates_no_more_topics_in_any_minute(ledger: Ledger, rng: random.Random) -> None:
    now, created = 0.0, list[tuple[float, str]]()
    for _ in range(2_000):
        now += rng.choice((0.0, 1.0, 20.0, RATE_S))
        client = rng.choice(("alice", "bob"))
        recent = [name for at, name in created if at > now - RATE_S]
        is_allowed = len(recent) < 5 and (client == "bob" or recent.count("alice") < 3)
        if is_allowed:
            ledger.check_creation(client, now)
            ledger.count_creation(client, now)
            created.append((now, client))
        else:
            assert "new topics in a minute" in error_of(ledger.check_creation, client, now).text


def test_amounts_that_are_released_leave_no_memory_behind(ledger: Ledger) -> None:
    for number in range(1_000):
        ledger.charge(f"client {number}", Quota.REQUESTS)
        ledger.release(f"client {number}", Quota.REQUESTS)
    assert not ledger._used
