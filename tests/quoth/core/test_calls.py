"""Calls that meet their own effect: the answer to a copy, after an earlier copy was lost or was not."""

from __future__ import annotations

from typing import Any

import pytest

from kit.broker.peers import refused
from quoth.core import calls
from quoth.core.calls import ClientState
from quoth.core.request_state import ClientCall, RequestState
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import DeleteTopic, Reply, TopicInfo, Trimmed
from quothwire.settings import TopicSettings

Outcome = Reply | QuothError


@pytest.fixture
def client() -> ClientState:
    """A client without connections."""
    return ClientState("tcp://127.0.0.1:1", 10.0)


def info(**settings: Any) -> TopicInfo:
    """The description of a topic."""
    given = TopicSettings().to_map() | settings
    return TopicInfo("t", 5, 0, 0, 0, 0, 0, 1, "w", given, "", {})


def drive(call: ClientCall[Any], *outcomes: Outcome, lost: int = 0) -> tuple[Any, list[RequestState]]:
    """Return the result of a call and its requests. lost: copies of each request without an answer."""
    asked = [next(call)]
    try:
        for outcome in outcomes:
            asked[-1].unanswered = lost
            if isinstance(outcome, QuothError):
                asked.append(call.throw(outcome))
            else:
                asked.append(call.send(Answer(0, outcome, b"")))
    except StopIteration as end:
        return end.value, asked
    raise AssertionError("it asks for more")


def test_a_creation_that_finds_the_topic_there_succeeds_if_an_earlier_copy_may_have_created_it(
    client: ClientState,
) -> None:
    exists = error("topic_exists", "of the test")
    made, _ = drive(calls.create_topic(client, "t", max_age=5), exists, info(max_age=5), lost=1)
    assert made == info(max_age=5)
    with refused("topic_exists"):
        drive(calls.create_topic(client, "t", max_age=5), exists, info(max_age=7), lost=1)
    with refused("topic_exists"):
        drive(calls.create_topic(client, "t", max_age=5), exists)


def test_a_deletion_names_the_log_and_succeeds_if_an_earlier_copy_may_have_deleted_it(
    client: ClientState,
) -> None:
    missing = error("unknown_topic", "of the test")
    removed, asked = drive(calls.delete_topic(client, "t"), info(), Trimmed(3, 100, 0))
    assert removed == Trimmed(3, 100, 0)
    assert asked[1]._request == DeleteTopic(5)
    assert drive(calls.delete_topic(client, "t"), info(), missing, lost=1)[0] == Trimmed(0, 0, 0)
    for outcomes in ((missing,), (info(), missing)):
        with refused("unknown_topic"):
            drive(calls.delete_topic(client, "t"), *outcomes)
