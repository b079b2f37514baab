"""Topics and the broker itself: making, changing, listing, deleting, and what is said if that does not go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.broker.proxies import Meddler
from kit.client.loops import TWINS
from kit.client.records import values
from quoth import Client, Conflict, NotFound, RequestError, Trimmed
from quothd import Broker
from quothlog.datadir import topic_file
from quothlog.datadir.topic_file import TopicFile
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import TOPICS_MAX, Operation
from quothwire.settings import NAMES, TopicSettings

# -- listing ------------------------------------------------------------------------------------------------


def test_listing_and_status_have_all_topics_in_the_order_of_their_utf8_bytes(tmp_path: Path) -> None:
    """More than fit into one reply."""
    names = [f"{'aäあ𝄞Z~'[number % 6]}{number}{'x' * (number % 150)}" for number in range(TOPICS_MAX + 50)]
    for number, name in enumerate(names):
        folder = tmp_path / "topics" / f"t~{number + 1:016x}"
        folder.mkdir(parents=True)
        (folder / topic_file.NAME).write_bytes(
            topic_file.encode(TopicFile(name, number + 1, TopicSettings()))
        )
    names.sort(key=str.encode)
    with Broker(tmp_path) as broker:
        for connect in TWINS.values():
            with connect(broker) as client:
                assert client.topics() == names
                status = client.status()
                assert (status.topics, list(status.states)) == (len(names), names)


# -- one topic ----------------------------------------------------------------------------------------------


def test_a_topic_is_created_changed_described_and_deleted(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    made = client.create_topic(topic, durability="synced", max_age="7d", size_limit="8MB", count_limit=2)
    given = {"durability": "synced", "max_age": 604_800, "size_limit": 8_000_000, "count_limit": 2}
    assert (made.name, made.settings) == (topic, TopicSettings().to_map() | given)
    assert (made.first, made.last, made.count, made.segments, made.states) == (0, 0, 0, 1, "w")
    changed = client.update_topic(topic, max_age="infinity", max_bytes="1GiB", age_limit="1h30m")
    assert changed.settings == made.settings | {"max_age": 0, "max_bytes": 2**30, "age_limit": 5_400}
    assert client.roll(topic).segments == 1, "an empty segment is not sealed"
    acks = [client.publish(topic, b"%d" % number) for number in range(6)]
    info = client.topic(topic)
    assert (info.first, info.last, info.count, info.first_ordinal) == (acks[0].first, acks[5].last, 6, 0)
    assert (info.log, info.segments, info.problem) == (made.log, 3, "")
    (folder,) = broker.topics_directory.glob(f"*~{info.log:016x}")
    assert info.bytes == sum(segment.stat().st_size for segment in folder.glob("*.seg"))
    kept = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=acks[3].first)
    trimmed = client.trim(topic, kept)
    assert (trimmed.records, trimmed.first) == (2, acks[2].first)
    assert values(client, topic) == [b"2", b"3", b"4", b"5"]
    deleted = client.delete_topic(topic)
    assert (deleted.records, deleted.bytes > 0) == (4, True)
    assert topic not in client.topics()


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"max_ages": 5}, "max_ages", "did you mean max_age?"),
    ({"nonsense": 5}, "nonsense", "one of durability"),
    ({"max_age": -1}, "max_age", "correct what the text names"),
    ({"max_age": "5x"}, "max_age: '5x' is not a span of time: there is no unit 'x'", "like 7d"),
    ({"max_age": 1e11}, "max_age is a number from 0 to 10000000000", "correct what the text names"),
    ({"max_bytes": "1GiBB"}, "max_bytes: '1GiBB' is not a size", "like 1GiB"),
    ({"size_limit": "infinity"}, "size_limit: 'infinity' is not a size: it has to be finite", "like 1GiB"),
    ({"size_limit": 0}, "size_limit", "correct what the text names"),
    ({"count_limit": True}, "count_limit", "correct what the text names"),
    ({"durability": "eternal"}, "written or synced", "correct what the text names"),
    ({"max_bytes": 2**70}, "", ""),
    ({"durability": object()}, "", ""),
    ({"durability": "\ud800"}, "", ""),
]


def test_wrong_settings_change_nothing(client: Client, topic: str) -> None:
    client.create_topic(topic)
    for settings, text, hint in WRONG:
        for call, name in ((client.create_topic, f"{topic} 2"), (client.update_topic, topic)):
            with pytest.raises(RequestError) as caught:
                call(name, **settings)
            assert caught.value.code == ("bad_setting" if text else "bad_request"), settings
            assert text in caught.value.text
            assert hint in caught.value.hint
    assert client.topic(topic).settings == TopicSettings().to_map()
    assert f"{topic} 2" not in client.topics()


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


def test_a_conflict_and_a_missing_topic_name_the_topic_and_a_command(client: Client, topic: str) -> None:
    for ask in (
        lambda: client.topic(topic),
        lambda: client.delete_topic(topic),
        lambda: client.read(topic),
        lambda: next(client.batches(topic)),
        lambda: client.get(topic, 1),
    ):
        with pytest.raises(NotFound, match=topic) as missing:
            ask()
        assert missing.value.code == "unknown_topic"
        assert "quoth topic ls" in missing.value.hint
    client.create_topic(topic)
    with pytest.raises(Conflict, match=topic) as conflict:
        client.create_topic(topic)
    assert conflict.value.code == "topic_exists"
    assert "quoth topic set" in conflict.value.hint


def test_every_call_checks_the_name_of_its_topic(client: Client) -> None:
    for name in ("", "..", "a/b", "a\tb", "ä" * 101, "\udcff"):
        for ask in (
            client.topic,
            client.create_topic,
            client.update_topic,
            client.delete_topic,
            client.roll,
            client.count,
            client.advance,
            client.read,
            lambda name: client.publish(name, b"x"),
            lambda name: client.trim(name, "now"),
            lambda name: next(client.batches(name)),
        ):
            with pytest.raises(RequestError, match="bad_topic") as caught:
                ask(name)
            assert "200 bytes" in caught.value.hint
    for name in ("ä" * 100, " ", "~x", "CON", ".hidden", "%2F", "𝄞 music"):
        client.publish(name, b"a")
        assert client.read(name)[0].topic == name
        assert client.delete_topic(name).records == 1


# -- requests that had to be sent again ---------------------------------------------------------------------


def test_a_deletion_whose_reply_was_lost_succeeds_and_spares_a_topic_that_was_created_again(
    meddler: Meddler, impatient: Client, client: Client, topic: str
) -> None:
    requests, replies = count(), list[Answer]()

    def only_one(call: Call) -> bool:
        """Copies that meet at the broker would share the first one's answer."""
        return call.operation is Operation.DELETE and next(requests) > 0 and not replies

    def lose_first(call: Call, answer: Answer) -> bool:
        if call.operation is not Operation.DELETE:
            return False
        replies.append(answer)
        if len(replies) == 1:
            client.publish(topic, b"precious")
        return len(replies) == 1

    client.publish(topic, b"old")
    meddler.on_request, meddler.on_reply = only_one, lose_first
    assert impatient.delete_topic(topic) == Trimmed(0, 0, 0)
    assert values(client, topic) == [b"precious"]
