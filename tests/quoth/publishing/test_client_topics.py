"""Topics and the broker itself: making, changing, listing, deleting, and what is said if that does not go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.broker.proxies import Meddler
from kit.client.records import Connect, busy, values
from kit.deadlines import eventually
from quoth import Client, Conflict, NotFound, RequestError, Trimmed
from quothlog.datadir import topic_file
from quothlog.datadir.topic_file import TopicFile
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import TOPICS_MAX, Operation, Status
from quothwire.settings import NAMES, TopicSettings

MANY = TOPICS_MAX + 50


# -- listing ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a broker with more topics than fit into one listing."""
    directory = tmp_path_factory.mktemp("crowded") / "data"
    for number in range(MANY):
        topic = TopicFile(many_names()[number], number + 1, TopicSettings())
        folder = directory / "topics" / f"t~{topic.log_id:016x}"
        folder.mkdir(parents=True)
        (folder / topic_file.NAME).write_bytes(topic_file.encode(topic))
    broker = BrokerProcess(directory)
    try:
        broker.start()
        with quoth.connect(broker.url) as client:
            yield client
    finally:
        broker.close()


def many_names() -> list[str]:
    """Names of all lengths and of many scripts."""
    return [f"{'aäあ𝄞Z~'[number % 6]}{number}{'x' * (number % 150)}" for number in range(MANY)]


def test_listing_is_complete_and_in_the_order_of_utf8_bytes(crowded: Client) -> None:
    assert crowded.topics() == sorted(many_names(), key=str.encode)


def test_status_tells_all_topics_and_wakes_none(crowded: Client) -> None:
    status = crowded.status()
    assert status.topics == MANY
    assert list(status.states) == sorted(many_names(), key=str.encode)
    assert {set(letters) <= {"h", "w"} for letters in status.states.values()} == {True}
    asleep = "all have been opened once since the start, one after the other, and sleep"
    eventually(lambda: is_at_rest(crowded.status()), asleep, 90.0)
    assert set(crowded.status().states.values()) == {"h"}


def is_at_rest(status: Status) -> bool:
    """Return True if no topic is active, nor will be on its own."""
    return not status.active and not status.counters["unopened"]


def test_no_topics_are_an_empty_list(start_broker: Callable[..., BrokerProcess], connect: Connect) -> None:
    client = connect(start_broker())
    assert client.topics() == []
    assert client.status().states == {}


# -- one topic ----------------------------------------------------------------------------------------------


def test_topic_is_made_with_its_settings(client: Client, topic: str) -> None:
    made = client.create_topic(topic, durability="synced", max_age=86_400, size_limit=2**20)
    assert made.name == topic
    assert made.settings["durability"] == "synced"
    assert (made.settings["max_age"], made.settings["size_limit"]) == (86_400, 2**20)
    assert made.settings["max_bytes"] == 0
    assert (made.first, made.last, made.count, made.segments, made.states) == (0, 0, 0, 1, "w")
    assert client.topic(topic).log == made.log
    assert topic in client.topics()


def test_topic_tells_what_it_holds(client: Client, broker: BrokerProcess, topic: str) -> None:
    acks = [client.publish(topic, [b"a", b"b"]) for _ in range(3)]
    info = client.topic(topic)
    assert (info.first, info.last, info.count, info.first_ordinal) == (acks[0].first, acks[2].last, 6, 0)
    (folder,) = broker.topics_directory.glob(f"*~{info.log:016x}")
    assert info.bytes == sum(segment.stat().st_size for segment in folder.glob("*.seg"))
    assert info.problem == ""
    assert info.counters["torn_bytes"] == 0


def test_settings_can_be_changed_one_by_one(client: Client, topic: str) -> None:
    client.create_topic(topic, max_age=60)
    assert client.update_topic(topic, count_limit=2).settings["count_limit"] == 2
    assert client.topic(topic).settings["max_age"] == 60
    for _ in range(4):
        client.publish(topic, b"a")
    assert client.topic(topic).segments == 2


@pytest.mark.parametrize("call", ["create_topic", "update_topic"])
@pytest.mark.parametrize(
    ("settings", "text", "hint"),
    [
        ({"max_ages": 5}, "max_ages", "did you mean max_age?"),
        ({"nonsense": 5}, "nonsense", "one of durability"),
        ({"max_age": -1}, "max_age", "nothing was changed"),
        ({"max_age": "5x"}, "max_age: '5x' is not a span of time: there is no unit 'x'", "like 7d"),
        ({"max_age": 1e11}, "max_age is a number from 0 to 10000000000", "nothing was changed"),
        ({"max_bytes": "1GiBB"}, "max_bytes: '1GiBB' is not a size", "like 1GiB"),
        (
            {"size_limit": "infinity"},
            "size_limit: 'infinity' is not a size: it has to be finite",
            "like 1GiB",
        ),
        ({"size_limit": 0}, "size_limit", "nothing was changed"),
        ({"count_limit": True}, "count_limit", "nothing was changed"),
        ({"durability": "eternal"}, "written or synced", "nothing was changed"),
    ],
)
def test_wrong_settings_change_nothing(
    client: Client, topic: str, call: str, settings: dict[str, Any], text: str, hint: str
) -> None:
    if call == "update_topic":
        client.create_topic(topic)
    with pytest.raises(RequestError) as caught:
        getattr(client, call)(topic, **settings)
    assert caught.value.code == "bad_setting"
    assert text in caught.value.text
    assert hint in caught.value.hint
    if call == "update_topic":
        assert client.topic(topic).settings == TopicSettings().to_map()
    else:
        with refused("unknown_topic"):
            client.topic(topic)


def test_spans_and_sizes_are_given_in_words(client: Client, topic: str) -> None:
    made = client.create_topic(topic, max_age="7d", max_bytes="1GiB", size_limit="8MB", age_limit=0.5)
    wanted = {"max_age": 604_800, "max_bytes": 2**30, "size_limit": 8_000_000, "age_limit": 0.5}
    assert made.settings == TopicSettings().to_map() | wanted
    changed = client.update_topic(topic, max_age="infinity", max_bytes="infinity", age_limit="1h30m")
    assert changed.settings == made.settings | {"max_age": 0, "max_bytes": 0, "age_limit": 5_400}


def test_settings_are_typed_keywords() -> None:
    """For mypy, which fails if one of these marks is not needed, and for editors that complete names."""

    def never_called(one: quoth.Client, typed: dict[str, Any]) -> None:
        one.create_topic("orders", max_age="7d", max_bytes=2**30, durability="synced")
        one.create_topic("orders", **typed)
        one.update_topic("orders", max_ages="7d")  # type: ignore[call-arg]
        one.update_topic("orders", count_limit="7d")  # type: ignore[arg-type]

    for made in (quoth.Client, quoth.aio.Client):
        for method in (made.create_topic, made.update_topic):
            hints = get_type_hints(method)
            assert set(get_type_hints(get_args(hints["settings"])[0])) == set(NAMES), method


def test_making_a_topic_twice_is_a_conflict(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with pytest.raises(Conflict) as caught:
        client.create_topic(topic)
    assert caught.value.code == "topic_exists"
    assert topic in caught.value.text
    assert "quoth topic set" in caught.value.hint


NEEDS_TOPIC: dict[str, Callable[[Client, str], object]] = {
    "topic": lambda client, topic: client.topic(topic),
    "update_topic": lambda client, topic: client.update_topic(topic, max_age=5),
    "delete_topic": lambda client, topic: client.delete_topic(topic),
    "trim": lambda client, topic: client.trim(topic, "now"),
    "roll": lambda client, topic: client.roll(topic),
    "read": lambda client, topic: client.read(topic),
    "batches": lambda client, topic: next(client.batches(topic)),
    "get": lambda client, topic: client.get(topic, 1),
}


@pytest.mark.parametrize("call", NEEDS_TOPIC)
def test_topic_that_does_not_exist_is_not_found(client: Client, topic: str, call: str) -> None:
    with pytest.raises(NotFound) as caught:
        NEEDS_TOPIC[call](client, topic)
    assert caught.value.code == "unknown_topic"
    assert topic in caught.value.text
    assert "quoth topic ls" in caught.value.hint
    assert topic not in client.topics()


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\tb", "ä" * 101, "\udcff"])
@pytest.mark.parametrize("call", [*NEEDS_TOPIC, "create_topic", "publish"])
def test_bad_name_is_refused(client: Client, call: str, name: str) -> None:
    others: dict[str, Callable[[Client, str], object]] = {
        "create_topic": lambda client, topic: client.create_topic(topic),
        "publish": lambda client, topic: client.publish(topic, b"x"),
    }
    with pytest.raises(RequestError) as caught:
        (NEEDS_TOPIC | others)[call](client, name)
    assert caught.value.code == "bad_topic"
    assert "200 bytes" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["a", "ä" * 100, " ", "~x", "CON", "a.b", ".hidden", "%2F", "𝄞 music", "x" * 200]
)
def test_any_other_name_is_taken(client: Client, name: str) -> None:
    client.create_topic(name)
    client.publish(name, b"a")
    assert client.read(name)[0].topic == name
    assert name in client.topics()
    assert client.delete_topic(name).records == 1


def test_deleting_tells_what_was_removed(client: Client, topic: str) -> None:
    client.publish(topic, [b"a", b"b"])
    log = client.topic(topic).log
    removed = client.delete_topic(topic)
    assert removed.records == 2
    assert removed.bytes > 0
    assert topic not in client.topics()
    client.publish(topic, b"c")
    assert values(client, topic) == [b"c"]
    assert client.topic(topic).log != log


def test_trimming_removes_whole_segments_before_a_moment(client: Client, topic: str) -> None:
    client.create_topic(topic, count_limit=2)
    acks = [client.publish(topic, b"%d" % number) for number in range(6)]
    kept = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=acks[3].first)
    removed = client.trim(topic, kept)
    assert (removed.records, removed.first) == (2, acks[2].first)
    assert client.trim(topic, acks[3].first) == Trimmed(0, 0, acks[2].first)
    assert values(client, topic) == [b"2", b"3", b"4", b"5"]
    assert client.topic(topic).first_ordinal == 2
    removed = client.trim(topic, "now")
    assert (removed.records, removed.first) == (4, 0)
    assert client.read(topic) == []


def test_rolling_seals_the_segment_unless_it_is_empty(client: Client, topic: str) -> None:
    client.create_topic(topic)
    assert client.roll(topic).segments == 1
    client.publish(topic, b"a")
    assert client.roll(topic).segments == 2
    assert client.roll(topic).segments == 2


# -- requests that had to be sent again ---------------------------------------------------------------------


def lose_first_reply(
    meddler: Meddler, operation: Operation, then: Callable[[], object] = lambda: None
) -> list[Answer]:
    """Lose the first reply to an operation, and copies of the request until then; returns all replies to it.

    Copies that meet at the broker would share the first one's answer. then: what happens when it is lost.
    """
    requests, replies = count(), list[Answer]()

    def on_request(call: Call) -> bool:
        return call.operation is operation and next(requests) > 0 and not replies

    def on_reply(call: Call, answer: Answer) -> bool:
        if call.operation is not operation:
            return False
        replies.append(answer)
        if len(replies) == 1:
            then()
        return len(replies) == 1

    meddler.on_request, meddler.on_reply = on_request, on_reply
    return replies


def test_making_a_topic_whose_reply_was_lost_succeeds_unless_its_settings_differ(
    meddler: Meddler, impatient: Client, client: Client, topic: str
) -> None:
    lose_first_reply(meddler, Operation.CREATE)
    assert impatient.create_topic(topic, max_age=5).settings["max_age"] == 5
    client.create_topic(f"{topic} 2", max_age=7)
    lose_first_reply(meddler, Operation.CREATE)
    with refused("topic_exists"):
        impatient.create_topic(f"{topic} 2", max_age=5)


CHANGES: dict[Operation, Callable[[Client, str], object]] = {
    Operation.CREATE: lambda client, topic: client.create_topic(f"{topic} anew"),
    Operation.UPDATE: lambda client, topic: client.update_topic(topic, max_age=5),
    Operation.DELETE: lambda client, topic: client.delete_topic(topic),
    Operation.TRIM: lambda client, topic: client.trim(topic, 1),
    Operation.ROLL: lambda client, topic: client.roll(topic),
}


@pytest.mark.parametrize("operation", CHANGES, ids=lambda operation: operation.name.lower())
def test_refusal_of_a_copy_does_not_tell_what_became_of_an_earlier_one(
    meddler: Meddler, impatient: Client, topic: str, operation: Operation
) -> None:
    impatient.publish(topic, b"a")
    copies = count()
    meddler.on_request = lambda call: call.operation is operation and (not next(copies) or busy(call))
    impatient.timeout = 1.0
    with refused("timed_out"):
        CHANGES[operation](impatient, topic)


@pytest.mark.parametrize("anew", [False, True])
def test_deletion_whose_reply_was_lost_succeeds_and_spares_a_topic_that_was_made_anew(
    meddler: Meddler, impatient: Client, client: Client, topic: str, anew: bool
) -> None:
    client.publish(topic, b"old")
    again = partial(client.publish, topic, b"precious")
    replies = lose_first_reply(meddler, Operation.DELETE, again if anew else lambda: None)
    assert impatient.delete_topic(topic) == Trimmed(0, 0, 0)
    assert len(replies) > 1
    assert (topic in client.topics()) is anew
    if anew:
        assert values(client, topic) == [b"precious"]


@pytest.mark.parametrize("anew", [False, True])
def test_topic_that_another_client_deletes_first_is_not_found(
    meddler: Meddler, connect: Connect, client: Client, topic: str, anew: bool
) -> None:
    """Nor is one deleted that was made anew meanwhile."""

    def be_quicker(call: Call) -> bool:
        if call.operation is Operation.DELETE:
            client.delete_topic(topic)
            if anew:
                client.publish(topic, b"precious")
        return False

    client.publish(topic, b"old")
    meddler.on_request = be_quicker
    with refused("unknown_topic"):
        connect(meddler).delete_topic(topic)
    assert (topic in client.topics()) is anew


@pytest.mark.parametrize(
    "call", ["topic", "update_topic", "roll", "topics", "status", "ping", "hello", "read"]
)
def test_other_requests_whose_reply_was_lost_are_simply_repeated(
    meddler: Meddler, impatient: Client, topic: str, call: str
) -> None:
    impatient.publish(topic, b"a")
    numbers = count()
    meddler.on_reply = lambda request, answer: next(numbers) == 0
    arguments = () if call in ("topics", "status", "ping", "hello") else (topic,)
    assert getattr(impatient, call)(*arguments)


# -- values that no request holds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"max_bytes": 2**70}, {"durability": object()}, {"durability": "\ud800"}],
    ids=["too large", "no plain value", "no Unicode"],
)
def test_setting_that_cannot_be_sent_is_a_bad_request(
    client: Client, topic: str, settings: dict[str, Any]
) -> None:
    for call in (client.create_topic, client.update_topic):
        with refused("bad_request"):
            call(topic, **settings)
    with refused("bad_request"):
        client.publish(topic, b"a", durability=object())  # type: ignore[arg-type]


# -- the broker ---------------------------------------------------------------------------------------------


def test_broker_in_a_directory_whose_name_is_no_text_tells_its_status(
    start_broker: Callable[..., BrokerProcess], connect: Connect, tmp_path: Path
) -> None:
    directory = tmp_path / os.fsdecode(b"\xff")
    client = connect(start_broker(directory=directory))
    assert client.status().directory == f"{tmp_path.resolve()}/\\udcff"
    assert client.ping() > 0


def test_status_tells_about_the_broker(client: Client, broker: BrokerProcess, topic: str) -> None:
    client.publish(topic, b"a")
    assert 0 < client.ping() < 10
    status = client.status()
    assert status.pid == broker.pid
    assert status.directory == str(broker.directory.resolve())
    assert status.server.startswith("quothd ")
    assert status.uptime > 0
    assert status.counters["requests"] > 0
    assert topic in status.states
    assert status.topics == len(client.topics())
