"""A job reports when its broker does not answer and when it answers again, and continues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.deadlines import DEADLINE_S, eventually
from quoth.spark import connections
from quoth.spark.jobs.session import Job, JobSummary, awaited
from quothwire.errors import Damaged, Disconnected, error

LOOK_S = 0.5


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One for the test, which kills it."""
    return start_broker()


def test_outages_are_reported_once_each_with_their_end(broker: BrokerProcess, told: list[str]) -> None:
    silence = f"{broker.url} does not answer; it is waited for, {connections.TIMEOUT_S:g} s at least"
    with awaited(broker.url, 5.0, told.append, LOOK_S) as client:
        for _ in range(2):
            client.ping()
            broker.kill()
            eventually(lambda: told[-1:] == [silence], "that it is away")
            broker.restart()
            eventually(lambda: told[-1:] == [f"{broker.url} answers again"], "that it is back")
    assert told == [silence, f"{broker.url} answers again"] * (len(told) // 2)


def test_broker_that_hangs_is_reported_too(broker: BrokerProcess, told: list[str]) -> None:
    with awaited(broker.url, 90.0, told.append, LOOK_S) as client:
        broker.freeze()
        eventually(lambda: told == [f"{broker.url} does not answer; it is waited for, 90 s at least"], "that")
        assert client.timeout == 90.0


def test_job_whose_broker_stays_away_says_what_is_kept(broker: BrokerProcess) -> None:
    timeout = DEADLINE_S

    def work(_: Any) -> JobSummary:
        connections.client(broker.url, timeout).ping()
        return JobSummary([], {})

    job: Any = Job(work, "all of it: run it again")
    assert job(None).good
    broker.kill()
    timeout = 0.2
    with pytest.raises(Disconnected) as told:
        job(None)
    assert str(told.value.hint).endswith("; all of it: run it again")


def test_error_that_is_not_retryable_does_not_say_run_it_again() -> None:
    def work(_: Any) -> JobSummary:
        raise error("damaged", "it is")

    job: Any = Job(work, "run it again")
    with pytest.raises(Damaged) as told:
        job(None)
    assert "run it again" not in (told.value.hint or "")


@pytest.mark.parametrize("fails", [False, True])
def test_watch_ends_with_the_job(broker: BrokerProcess, told: list[str], fails: bool) -> None:
    def watchers() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name == "broker"]

    with suppress(KeyError), awaited(broker.url, 5.0, told.append):
        assert watchers()
        if fails:
            raise KeyError
    assert not watchers()
    assert told == []


def test_job_that_ends_while_its_broker_is_asked_does_not_report_an_outage(
    broker: BrokerProcess, context: Context, told: list[str]
) -> None:
    with Meddler(context, broker.url) as meddler:
        meddler.on_request = lambda _: True
        with awaited(meddler.url, 5.0, told.append, look=2.0):
            eventually(lambda: meddler.requests, "it asks")
    assert told == []
