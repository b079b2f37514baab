"""Groups as a whole: where they begin, their settings, what they show, what members of them refuse."""

from __future__ import annotations

from typing import Any

import pytest

from kit.broker.peers import refused
from kit.client.records import numbered
from kit.deadlines import DEADLINE_S
from quoth import Client, ConsumerGroup, GroupMessage, RequestError
from quothwire.protocol.group_messages import GROUPS_MAX
from quothwire.protocol.group_settings import LEASE_S_MAX


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    """A topic with ten records, in two batches."""
    client.publish(topic, numbered(6))
    client.publish(topic, numbered(4, 6))
    return topic


def values_of(found: list[GroupMessage]) -> list[bytes]:
    return [message.value for message in found]


def fetch_all(group: ConsumerGroup, records: int) -> list[GroupMessage]:
    """Fetch so many records, in as many fetches as it takes."""
    found: list[GroupMessage] = []
    while len(found) < records:
        found += group.fetch(records - len(found), timeout=DEADLINE_S)
    return found


# -- the whole group ----------------------------------------------------------------------------------------


def test_a_group_begins_where_its_start_says(client: Client, topic: str) -> None:
    first = client.publish(topic, [b"a", b"b"])
    second = client.publish(topic, [b"c"])
    starts: dict[str, tuple[Any, list[bytes]]] = {
        "begin": ("begin", [b"a", b"b", b"c"]),
        "end": ("end", []),
        "pointer": (first.first, [b"b", b"c"]),  # excluded, as `after` of a read
        "time": (client.get(topic, second.first).time, [b"c"]),  # included, as `since`
        "text": ("-1h", [b"a", b"b", b"c"]),
    }
    for name, (start, expected) in starts.items():
        with client.group(topic, name, start=start) as group:
            assert values_of(group.fetch(timeout=0)) == expected, name
            group.seek("end")
            assert group.fetch(timeout=0) == []
            group.seek(start)
            assert values_of(group.fetch(timeout=0)) == expected, name


def test_a_seek_ends_all_leases(client: Client, filled: str) -> None:
    with client.group(filled, "g") as group:
        message = group.fetch(1)[0]
        for other in group:
            if other.value == b"3":
                break
        info = group.seek("begin")
        assert info.generation == 2
        for call in (message.ack, message.nack):
            with refused("lease_lost"):
                call()
        message.ack(wait=False)
        assert group.lag().records == 10
        assert values_of(fetch_all(group, 10)) == numbered(10)


def test_settings_pause_and_deletion(client: Client, filled: str) -> None:
    with client.group(filled, "g", max_attempts=7) as group:
        assert group.pause().paused
        assert group.fetch(timeout=0) == []
        assert not group.resume().paused
        assert len(fetch_all(group, 10)) == 10
        info = group.update(lease="2s", backoff=["1s", 5], dead_letter=None)
        assert (info.settings["lease"], info.settings["backoff"], info.settings["dead_letter"]) == (
            2,
            [1, 5],
            "",
        )
        assert info.settings["max_attempts"] == 7
        with refused("bad_setting"):
            group.update(lease=0)
        lag = group.lag()
        assert lag.records == 10
        assert 0 < lag.seconds < DEADLINE_S
        assert group.delete().pending == 10
        with refused("unknown_group"):
            group.fetch()
        with refused("unknown_group"):
            group.delete()


def test_an_existing_group_has_to_have_the_settings_that_are_named(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.group(topic, "g", lease=5, max_in_flight=7) as group:
        assert group.info().settings["max_in_flight"] == 7
    with client.group(topic, "g", lease="5s") as group:
        assert group.info().settings["max_in_flight"] == 7
    with refused("group_exists"):
        client.group(topic, "g", lease=6).info()
    with refused("unknown_group"):
        client.group(topic, "other", create=False).info()
    assert [one.group for one in client.groups(topic)] == ["g"]


WRONG: list[dict[str, Any]] = [
    {"name": "a/b"},
    {"name": ""},
    {"start": -1},
    {"start": "yesterday-ish"},
    {"start": 1.5},
    {"mode": "never"},
    {"lease": "soon"},
    {"max_in_flight": 0},
    {"leese": 3},
    {"member": ""},
    {"member": "x" * 201},
    {"member": 7},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_arguments_are_refused_before_anything_is_sent(client: Client, topic: str, wrong: Any) -> None:
    with pytest.raises(RequestError):
        client.group(topic, **{"name": "g", **wrong})
    assert topic not in client.topics()


@pytest.mark.parametrize(("name", "wrong"), [("lease", "soon"), ("backoff", ["1s", "soon"])])
def test_a_span_that_is_refused_is_named(client: Client, topic: str, name: str, wrong: Any) -> None:
    settings: dict[str, Any] = {"lease": "1m", "backoff": ["1s"], name: wrong}
    with pytest.raises(RequestError, match=f"^bad_setting: {name}: 'soon'"):
        client.group(topic, "g", **settings)


def test_wrong_arguments_of_calls(client: Client, filled: str) -> None:
    with client.group(filled, "g") as group:
        message = group.fetch(1)[0]
        wrongs: list[Any] = [0, -1, True, "1", 2**33]
        for wrong in wrongs:
            with refused("bad_request"):
                group.fetch(wrong)
            with refused("bad_request"):
                group.batches(wrong)
        for seconds in ("1", None, float("nan"), 50_000):
            with refused("bad_request"):
                message.extend(seconds)  # type: ignore[arg-type]
        with refused("bad_request"):
            message.nack("1")  # type: ignore[arg-type]
        reasons: list[Any] = [7, None, b"bad"]
        for reason in reasons:
            with refused("bad_request"):
                message.nack(reason=reason)
            with refused("bad_request"):
                message.term(reason)
        assert not message.is_settled
        message.ack()


def test_the_longest_delay_and_the_shortest_extension(client: Client, filled: str) -> None:
    with client.group(filled, "g", backoff=[0.0]) as group:
        first, second = group.fetch(2)
        first.nack(LEASE_S_MAX)
        assert LEASE_S_MAX - 60 < group.pending()[0].seconds <= LEASE_S_MAX
        second.extend(0)
        again = [message for message in fetch_all(group, 9) if message.attempts == 2]
        assert values_of(again) == [second.value]


def test_groups_and_cursors_are_listed(client: Client, topic: str) -> None:
    client.create_topic(topic)
    assert client.groups(topic) == []
    names = [f"g{number:03}" for number in range(GROUPS_MAX + 1)]
    for name in names:
        client.group(topic, name).info()
    found = client.groups(topic)
    assert [one.group for one in found] == names
    assert (found[0].settings["mode"], found[0].paused) == ("at_least_once", False)


def test_members_have_names_of_their_own(client: Client, topic: str) -> None:
    one, other = client.group(topic, "g"), client.group(topic, "g")
    assert one.member != other.member
    assert one.member.count(":") == 1


def test_a_closed_member_does_nothing_more(client: Client, filled: str) -> None:
    with client.group(filled, "g") as group:
        message = group.fetch(1)[0]
    group.close()
    for call in (message.ack, group.fetch, lambda: next(iter(group))):
        with refused("closed"):
            call()
    assert group.lag().records == 10
    group.delete()
