"""The frame of all jobs: reports of the broker and of what is kept, the division of files among tasks."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.deadlines import DEADLINE_S, eventually
from quoth import Client
from quoth.spark.jobs.session import TASK_BYTES_MIN, TASK_FILES_MIN, Job, JobBroker, JobSummary, shares
from quothwire.errors import QuothError, error

LOOK_S = 0.5


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One for the test, which kills it."""
    return start_broker()


def test_outages_and_hangs_are_reported_once_each_with_their_end(
    broker: BrokerProcess, reports: list[str]
) -> None:
    silence = f"{broker.url} does not answer; it is waited for, 90 s at least"
    with JobBroker(broker.url, 90.0, reports.append).awaited(LOOK_S) as client:
        assert client.timeout == 90.0
        for _ in range(2):
            client.ping()
            broker.kill()
            eventually(lambda: reports[-1:] == [silence], "that it is away")
            broker.restart()
            eventually(lambda: reports[-1:] == [f"{broker.url} answers again"], "that it is back")
        broker.freeze()
        eventually(lambda: reports[-1:] == [silence], "that it hangs")
    assert reports == [silence, f"{broker.url} answers again"] * (len(reports) // 2) + [silence]


@pytest.mark.parametrize(("code", "says"), [("disconnected", True), ("damaged", False)])
def test_failing_job_prints_what_is_kept_if_it_may_be_run_again(code: str, says: bool) -> None:
    def work(_: Any) -> JobSummary:
        raise error(code, "it is", "look")

    job: Any = Job(work, "all of it: run it again")
    with pytest.raises(QuothError) as caught:
        job(None)
    assert caught.value.hint == ("look; all of it: run it again" if says else "look")


@pytest.mark.parametrize("fails", [False, True])
def test_watch_ends_with_the_job(broker: BrokerProcess, reports: list[str], fails: bool) -> None:
    def watchers() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name == "broker"]

    with suppress(KeyError), JobBroker(broker.url, 5.0, reports.append).awaited():
        assert watchers()
        if fails:
            raise KeyError
    assert not watchers()
    assert reports == []


def test_job_that_ends_while_its_broker_is_asked_does_not_report_an_outage(
    broker: BrokerProcess, context: Context, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would be as impatient as it looks often."""
    monkeypatch.setattr(JobBroker, "client", lambda self, _: Client(self.url, None, 3 * DEADLINE_S))
    with Meddler(context, broker.url) as meddler:
        meddler.on_request = lambda _: True
        with JobBroker(meddler.url, 5.0, reports.append).awaited(look=0.05):
            eventually(lambda: meddler.requests, "it asks")
    assert reports == []


# -- tasks --------------------------------------------------------------------------------------------------


def test_each_file_belongs_to_one_task_and_a_task_gets_as_few_as_are_enough(rng: random.Random) -> None:
    limits = (100, 1_000, TASK_BYTES_MIN // 10, 2 * TASK_BYTES_MIN)
    cases = [[1_000] * 2 * TASK_FILES_MIN, [TASK_BYTES_MIN] * 2, [10, 20, 30], []]
    cases += [[rng.randrange(limit) for _ in range(rng.choice((1, 30, 2_500)))] for limit in limits * 5]
    for sizes in cases:
        found = list(shares(enumerate(sizes)))
        assert [row for share in found for row in share] == list(range(len(sizes)))
        for share in found:
            some = [sizes[row] for row in share]
            assert sum(some) >= TASK_BYTES_MIN or len(some) == TASK_FILES_MIN or share is found[-1]
            assert sum(some[:-1]) < TASK_BYTES_MIN
            assert len(some) <= TASK_FILES_MIN
