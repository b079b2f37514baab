"""The reader of several topics: its requests and how it handles answers, without a broker."""

from __future__ import annotations

import math

import pytest

from quoth.core.options import Timing
from quoth.core.request_state import BACKOFF_MAX_S, BACKOFF_S, RETRIED, RequestState
from quoth.merging.multi_reader import MultiReader, ReadPlan
from quoth.merging.rounds import ROUND_REST, ROUND_S
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer, encode_request
from quothwire.protocol.messages import TOPICS_MAX, Fetched, ListTopics, Pong, Reply, Topics

NOW = 1_000.0
LIST_PAUSE_S = Timing().list_pause
NOTHING = Fetched(next=0, newest=7, end=3, gone=0, damaged=0, log=5)
"""The answer of a topic of three records, whose end was asked for."""


def reader_of(
    *topics: str, follow: bool = True, ordered: bool = True, start: int | None = None
) -> MultiReader:
    """One that may take three seconds for what does not wait."""
    return MultiReader(topics, ReadPlan(follow, ordered, start), None, 3.0)


def asked(reader: MultiReader, now: float = NOW, every: float = math.inf) -> dict[str, RequestState]:
    """Return its requests now, by name."""
    return {request.what: request for request in reader.ask(now, every)}


def answer(reply: Reply | QuothError) -> Answer:
    """An answer without records."""
    return Answer(0, reply, b"")


def test_each_request_is_sent_once_until_it_is_answered() -> None:
    reading = reader_of("a", "b", start=0, ordered=False)
    assert reading.is_begun
    assert reading.due == 0.0
    first = asked(reading)
    assert set(first) == {"fetch a", "fetch b"}
    assert (asked(reading), reading.due) == ({}, math.inf)
    reading.take(first["fetch a"], answer(NOTHING), NOW)
    assert set(asked(reading)) == {"fetch a"}


def test_a_multi_reader_begins_once_it_knows_the_end_of_every_topic() -> None:
    reading = reader_of("a", "x.*", ordered=False)
    listing = asked(reading)
    assert set(listing) == {"list"}
    reading.take(listing["list"], answer(Topics(["b", "x.1"])), NOW)
    ends = asked(reading)
    assert set(ends) == {"fetch a", "fetch x.1"}
    reading.take(ends["fetch x.1"], answer(NOTHING), NOW)
    assert (reading.is_begun, asked(reading), reading.due) == (False, {}, math.inf)
    reading.take(ends["fetch a"], answer(error("unknown_topic", "of the test")), NOW)
    assert (reading.is_begun, reading.topics) == (True, ["a", "x.1"])
    assert set(asked(reading)) == {"fetch a", "fetch x.1"}
    assert reading.due == NOW + LIST_PAUSE_S
    assert set(asked(reading, NOW + LIST_PAUSE_S)) == {"list"}


def test_a_list_of_topics_is_requested_page_by_page() -> None:
    reading = reader_of("*", ordered=False, start=0)
    names = [f"{number:04}" for number in range(TOPICS_MAX + 1)]
    for after, page in (("", names[:TOPICS_MAX]), (names[TOPICS_MAX - 1], names[TOPICS_MAX:])):
        assert not reading.is_begun
        listing = asked(reading)["list"]
        listing.begin(7, NOW)
        assert listing.frames == encode_request(ListTopics(after=after), 7)
        reading.take(listing, answer(Topics(page)), NOW)
    assert (reading.is_begun, reading.topics) == (True, names)


def test_an_error_in_the_beginning_ends_a_multi_reader() -> None:
    for topics in ("a", "*"):
        reading = reader_of(topics)
        (request,) = reading.ask(NOW, math.inf)
        with pytest.raises(QuothError, match="of the test"):
            reading.take(request, answer(error("internal", "of the test")), NOW)


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_a_temporary_error_is_retried_in_the_beginning_and_settles_a_fetch_later(code: str) -> None:
    reading = reader_of("a", ordered=False)
    answered = answer(error(code, "of the test"))
    end = asked(reading)["fetch a"]
    assert not end.is_settled_by(answered, NOW)
    reading.take(end, answer(NOTHING), NOW)
    now, pause = NOW, BACKOFF_S
    for _ in range(10):
        fetch = asked(reading, now)["fetch a"]
        assert fetch.is_settled_by(answered, now)
        reading.take(fetch, answered, now)
        assert reading.due == now + pause
        assert asked(reading, now + 0.9 * pause) == {}
        now, pause = now + pause, min(2 * pause, BACKOFF_MAX_S)


def test_a_tail_has_no_deadline_and_a_read_has_one() -> None:
    assert asked(reader_of("a", start=0, ordered=False))["fetch a"].deadline == math.inf
    reading = reader_of("a", follow=False, start=0)
    fetch = asked(reading)["fetch a"]
    assert fetch.deadline == NOW + 3.0
    answered = answer(error("recovering", "of the test"))
    reading.take(fetch, answered, NOW)
    fetch = asked(reading, NOW + 2.9)["fetch a"]
    reading.take(fetch, answered, NOW + 2.9)
    fetch = asked(reading, NOW + 3.5)["fetch a"]
    with pytest.raises(QuothError, match="of the test"):
        reading.take(fetch, answered, NOW + 3.5)


def begun_with_nothing() -> MultiReader:
    """One that follows whatever topics come, of which there are none."""
    reading = reader_of("*")
    reading.take(asked(reading)["list"], answer(Topics([])), NOW)
    return reading


def test_a_round_settles_records_up_to_the_clock_of_the_broker() -> None:
    reading = begun_with_nothing()
    reading.take(asked(reading, every=0.0)["ping"], answer(Pong(50)), NOW)
    reading.take(asked(reading)["list"], answer(Topics([])), NOW)
    assert reading.watermark == 0
    asked(reading)
    assert reading.watermark == 50


def test_a_round_without_a_list_of_topics_settles_no_record() -> None:
    reading = begun_with_nothing()
    reading.take(asked(reading, every=0.0)["ping"], answer(Pong(50)), NOW)
    reading.take(asked(reading)["list"], answer(error("busy", "of the test")), NOW)
    asked(reading)
    assert reading.watermark == 0


@pytest.mark.parametrize("unanswered", [0, 1], ids=["slow answers", "an outage"])
def test_a_slow_round_is_followed_by_a_longer_pause_but_not_after_an_outage(unanswered: int) -> None:
    reading = begun_with_nothing()
    ping = asked(reading, every=0.0)["ping"]
    reading.waited(0.1)
    ping.unanswered = unanswered
    reading.take(ping, answer(Pong(50)), NOW)
    reading.take(asked(reading)["list"], answer(Topics([])), NOW)
    rest = ROUND_S if unanswered else 0.1 * ROUND_REST
    assert "ping" not in asked(reading, NOW + rest - 0.001, every=0.0)
    assert "ping" in asked(reading, NOW + rest + 0.001, every=0.0)
