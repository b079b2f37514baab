"""A job whose broker does not answer says so, and goes on when it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.deadlines import DEADLINE_S, eventually
from quoth import Client
from quoth.spark import connections
from quoth.spark.jobs import broker as broker_of_job
from quoth.spark.jobs.broker import awaited
from quoth.spark.jobs.session import Job, JobSummary
from quothwire.errors import Damaged, Disconnected, error


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One for the test, which kills it."""
    return start_broker()


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed in a second."""
    monkeypatch.setattr(broker_of_job, "LOOK_S", 0.5)


def test_silence_is_told_once_and_its_end(broker: BrokerProcess, told: list[str]) -> None:
    silence = f"{broker.url} does not answer; it is waited for, {connections.TIMEOUT_S:g} s at least"
    with awaited(broker.url, 5.0, told.append) as client:
        client.ping()
        for _ in range(2):
            broker.kill()
            eventually(lambda: told[-1:] == [silence], "that it is away")
            broker.restart()
            eventually(lambda: told[-1:] == [f"{broker.url} answers again"], "that it is back")
            client.ping()
    assert told == [silence, f"{broker.url} answers again"] * (len(told) // 2)


def test_broker_that_stands_still_is_silent_too(broker: BrokerProcess, told: list[str]) -> None:
    with awaited(broker.url, 90.0, told.append) as client:
        broker.freeze()
        eventually(lambda: told == [f"{broker.url} does not answer; it is waited for, 90 s at least"], "that")
        assert client.timeout == 90.0


def test_job_whose_broker_stays_away_says_what_is_kept(broker: BrokerProcess) -> None:
    patience = DEADLINE_S

    def work(_: Any) -> JobSummary:
        connections.client(broker.url, patience).ping()
        return JobSummary([], {})

    job = Job(work, "all of it: run it again")
    assert job(None).good  # type: ignore[arg-type]
    broker.kill()
    patience = 0.2
    with pytest.raises(Disconnected) as told:
        job(None)  # type: ignore[arg-type]
    assert told.value.hint is not None
    assert told.value.hint.endswith("; all of it: run it again")


def test_error_that_does_not_pass_does_not_say_run_it_again() -> None:
    def work(_: Any) -> JobSummary:
        raise error("damaged", "it is")

    with pytest.raises(Damaged) as told:
        Job(work, "run it again")(None)  # type: ignore[arg-type]
    assert "run it again" not in (told.value.hint or "")


@pytest.mark.parametrize("fails", [False, True])
def test_watch_ends_with_the_job(broker: BrokerProcess, told: list[str], fails: bool) -> None:
    with suppress(KeyError), awaited(broker.url, 5.0, told.append):
        assert "broker" in threads()
        if fails:
            raise KeyError
    assert "broker" not in threads()
    assert told == []


def test_a_job_that_ends_while_the_broker_is_asked_does_not_say_that_it_is_silent(
    broker: BrokerProcess, context: Context, pool: ThreadPoolExecutor, told: list[str]
) -> None:
    over = threading.Event()
    with Meddler(context, broker.url) as meddler, Client(meddler.url, None, DEADLINE_S) as asking:
        meddler.on_request = lambda _: True
        watching = pool.submit(broker_of_job._watch, asking, 5.0, told.append, over)
        eventually(lambda: meddler.requests, "it asks")
        over.set()
        asking.close()
        watching.result(DEADLINE_S)
    assert told == []


def threads() -> set[str]:
    return {one.name for one in threading.enumerate()}
