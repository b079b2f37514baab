"""An exchange in every state, with everything that can happen to it: when it is sent, when it is settled."""

from __future__ import annotations

import math

import pytest

from quoth.core.request_state import BACKOFF_MAX_S, BACKOFF_S, RETRIED, RequestState
from quoth.core.options import RESEND_S
from quothwire.errors import CODES, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Fetch, Ping, Pong

NOW = 1_000.0


def begun(deadline: float = NOW + 600, wait: float = 0.0) -> RequestState:
    """One whose first copy was sent at `NOW`."""
    exchange = RequestState(Ping(), deadline=deadline, wait=wait)
    exchange.begin(1, NOW)
    exchange.unanswered += 1
    return exchange


def refused_by(code: str) -> Answer:
    """An answer that carries an error."""
    return Answer(1, error(code, "of the test"), b"")


def test_it_says_what_it_is_in_an_error() -> None:
    assert RequestState(Ping()).what == "ping"
    assert RequestState(Fetch(), "orders").what == "fetch orders"


def test_an_answer_settles_it() -> None:
    exchange = begun()
    assert exchange.is_settled_by(Answer(1, Pong(5), b""), NOW + 1)
    assert exchange.unanswered == 0


@pytest.mark.parametrize("code", sorted(set(CODES) - RETRIED))
def test_a_refusal_that_does_not_pass_settles_it(code: str) -> None:
    assert begun().is_settled_by(refused_by(code), NOW + 1)


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_a_refusal_that_passes_lets_it_rest_and_then_be_sent_again(code: str) -> None:
    exchange = begun()
    now, pause = NOW, BACKOFF_S
    for _ in range(10):
        assert not exchange.is_settled_by(refused_by(code), now)
        assert now + pause / 2 <= exchange.due <= now + pause
        early, now = now + pause / 4, exchange.due
        assert not exchange.is_to_be_sent(early, found=True, connected=True)
        assert exchange.is_to_be_sent(now, found=False, connected=False)
        assert not exchange.is_to_be_sent(now, found=False, connected=True)
        exchange.unanswered += 1
        pause = min(2 * pause, BACKOFF_MAX_S)


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_refusal_that_passes_is_an_answer_if_none_is_retried(code: str) -> None:
    exchange = RequestState(Ping(), retried=frozenset())
    exchange.begin(1, NOW)
    assert exchange.is_settled_by(refused_by(code), NOW + 1)


def test_a_refusal_settles_it_when_there_is_no_time_to_rest() -> None:
    assert begun(deadline=NOW + BACKOFF_S / 4).is_settled_by(refused_by("busy"), NOW)


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_a_refusal_does_not_settle_it_while_nothing_was_heard_of_an_earlier_copy(code: str) -> None:
    exchange = begun(deadline=NOW + BACKOFF_S / 4)
    exchange.unanswered += 1
    assert not exchange.is_settled_by(refused_by(code), NOW)
    assert exchange.due == exchange.deadline
    assert exchange.is_settled_by(refused_by(code), NOW)


def test_an_answer_to_an_earlier_copy_settles_it_while_it_rests() -> None:
    exchange = begun()
    exchange.unanswered += 1
    assert not exchange.is_settled_by(refused_by("busy"), NOW)
    assert exchange.is_settled_by(Answer(1, Pong(5), b""), NOW)


@pytest.mark.parametrize("wait", [0.0, 30.0])
def test_silence_lets_it_be_sent_again_to_a_connected_broker(wait: float) -> None:
    exchange = begun(wait=wait)
    assert exchange.due == NOW + wait + RESEND_S
    assert not exchange.is_to_be_sent(exchange.due - 0.1, found=False, connected=True)
    late = exchange.due
    assert exchange.is_to_be_sent(late, found=False, connected=True)
    assert exchange.due == late + wait + RESEND_S


def test_silence_of_a_broker_that_is_away_lets_it_wait_until_that_is_found() -> None:
    exchange = begun()
    assert not exchange.is_to_be_sent(exchange.due, found=False, connected=False)
    assert exchange.due == NOW + 2 * RESEND_S
    assert exchange.is_to_be_sent(NOW + RESEND_S + 1, found=True, connected=True)
    assert exchange.due == NOW + 2 * RESEND_S + 1


def test_absence_ends_it_unless_a_broker_is_there_in_time() -> None:
    exchange = RequestState(Ping(), absence=60.0)
    exchange.begin(1, NOW)
    for now, connected in ((NOW + 1, False), (NOW + 60, True), (NOW + 300, False)):
        assert not exchange.is_over(now)
        exchange.is_to_be_sent(now, found=False, connected=connected)
    exchange.is_to_be_sent(NOW + 330, found=False, connected=False)
    assert not exchange.is_over(NOW + 359)
    assert exchange.is_over(NOW + 360)


def test_a_connection_that_was_found_again_lets_it_be_sent_again_at_once() -> None:
    assert begun().is_to_be_sent(NOW + 0.1, found=True, connected=True)


def test_it_is_looked_at_by_its_deadline() -> None:
    assert begun(deadline=NOW + 1).due == NOW + 1
    exchange = begun(deadline=math.inf)
    exchange.expect(NOW + 2)
    assert (exchange.deadline, exchange.due) == (NOW + 2, NOW + 2)
    exchange.expect(NOW + 60)
    assert (exchange.deadline, exchange.due) == (NOW + 60, NOW + 2), "once too early does no harm"


def test_begun_anew_it_has_been_heard_of_in_nothing() -> None:
    exchange = begun()
    first = exchange.frames
    assert not exchange.is_settled_by(refused_by("busy"), NOW)
    exchange.begin(2, NOW + 1)
    assert (exchange.correlation, exchange.unanswered) == (2, 0)
    assert exchange.frames != first
    assert exchange.due == NOW + 1 + RESEND_S
