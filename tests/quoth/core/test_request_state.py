"""A request in every state, with everything that can happen to it: when it is sent, when it is settled."""

from __future__ import annotations

import math

import pytest

from quoth.core.options import RESEND_S
from quoth.core.request_state import BACKOFF_MAX_S, BACKOFF_S, RETRIED, RequestState
from quothwire.errors import CODES, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Fetch, Ping, Pong

NOW = 1_000.0
PONG = Answer(1, Pong(5), b"")

passing = pytest.mark.parametrize("code", sorted(RETRIED))


def begun(deadline: float = NOW + 600, wait: float = 0.0) -> RequestState:
    """One whose first copy was sent at `NOW`."""
    request = RequestState(Ping(), deadline=deadline, wait=wait)
    request.begin(1, NOW)
    request.unanswered += 1
    return request


def refused_by(code: str) -> Answer:
    """An answer that carries an error."""
    return Answer(1, error(code, "of the test"), b"")


def test_a_request_is_named_by_operation_and_topic() -> None:
    assert RequestState(Ping()).what == "ping"
    assert RequestState(Fetch(), "orders").what == "fetch orders"


def test_an_answer_or_a_lasting_or_unretried_error_settles_a_request() -> None:
    for answer in (PONG, *map(refused_by, set(CODES) - RETRIED)):
        request = begun()
        assert request.is_settled_by(answer, NOW + 1), answer
        assert request.unanswered == 0
    for code in RETRIED:
        request = RequestState(Ping(), retried=frozenset())
        request.begin(1, NOW)
        assert request.is_settled_by(refused_by(code), NOW + 1)


@passing
def test_a_request_with_a_temporary_error_is_sent_again_after_a_pause(code: str) -> None:
    request = begun()
    now, pause = NOW, BACKOFF_S
    for _ in range(10):
        assert not request.is_settled_by(refused_by(code), now)
        assert now + pause / 2 <= request.due <= now + pause
        early, now = now + pause / 4, request.due
        assert not request.is_to_be_sent(early, found=True, connected=True)
        assert request.is_to_be_sent(now, found=False, connected=False)
        assert not request.is_to_be_sent(now, found=False, connected=True)
        request.unanswered += 1
        pause = min(2 * pause, BACKOFF_MAX_S)
    assert request.is_to_be_sent(now, found=True, connected=True)


@passing
def test_an_error_without_time_for_a_retry_settles_a_request_once_all_copies_are_answered(code: str) -> None:
    request = begun(deadline=NOW + BACKOFF_S / 4)
    request.unanswered += 1
    assert not request.is_settled_by(refused_by(code), NOW)
    assert request.due == request.deadline
    assert request.is_settled_by(refused_by(code), NOW)


def test_an_answer_to_an_earlier_copy_settles_a_waiting_request() -> None:
    request = begun()
    request.unanswered += 1
    assert not request.is_settled_by(refused_by("busy"), NOW)
    assert request.is_settled_by(PONG, NOW)


@pytest.mark.parametrize("wait", [0.0, 30.0])
def test_an_unanswered_request_is_sent_again_to_a_connected_broker(wait: float) -> None:
    request = begun(wait=wait)
    assert request.due == NOW + wait + RESEND_S
    assert not request.is_to_be_sent(request.due - 0.1, found=False, connected=True)
    late = request.due
    assert request.is_to_be_sent(late, found=False, connected=True)
    assert request.due == late + wait + RESEND_S


def test_a_request_is_sent_again_at_once_after_a_reconnect() -> None:
    assert begun().is_to_be_sent(NOW + 0.1, found=True, connected=True)
    request = begun()
    assert not request.is_to_be_sent(request.due, found=False, connected=False), "copies would only queue up"
    assert request.due == NOW + 2 * RESEND_S
    assert request.is_to_be_sent(NOW + RESEND_S + 1, found=True, connected=True)
    assert request.due == NOW + 2 * RESEND_S + 1


def test_a_request_ends_after_the_absence_of_the_broker() -> None:
    request = RequestState(Ping(), absence=60.0)
    request.begin(1, NOW)
    for now, connected in ((NOW + 1, False), (NOW + 60, True), (NOW + 300, False)):
        assert not request.is_over(now)
        request.is_to_be_sent(now, found=False, connected=connected)
    request.is_to_be_sent(NOW + 330, found=False, connected=False)
    assert not request.is_over(NOW + 359)
    assert request.is_over(NOW + 360)


def test_a_request_is_due_by_its_deadline() -> None:
    assert begun(deadline=NOW + 1).due == NOW + 1
    request = begun(deadline=math.inf)
    request.expect(NOW + 2)
    assert (request.deadline, request.due) == (NOW + 2, NOW + 2)
    request.expect(NOW + 60)
    assert (request.deadline, request.due) == (NOW + 60, NOW + 2), "one check too early is allowed"


def test_a_request_that_begins_again_has_no_unanswered_copies() -> None:
    request = begun()
    first = request.frames
    assert not request.is_settled_by(refused_by("busy"), NOW)
    request.begin(2, NOW + 1)
    assert (request.correlation, request.unanswered, request.due) == (2, 0, NOW + 1 + RESEND_S)
    assert request.frames != first
