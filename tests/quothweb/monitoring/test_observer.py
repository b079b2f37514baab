"""The observer of the broker: it goes on whatever a round meets, and says what that was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.keys import KeyFiles
from kit.web.servers import WebProcess
from quothweb import main
from quothweb.monitoring.history import TrafficRates
from quothweb.monitoring.observer import SILENCE_S, BrokerObserver
from quothweb.problems import HttpProblem
from quothwire.protocol.metric_messages import Metrics

ANSWER = Metrics("quothd 1", 1_000_000, 1.0, 0, 0, {}, {}, {}, {}, [], False)


class _Rounds:
    """Lends clients whose answers, or errors, are given one after the other; then waits for ever."""

    url, timeout = "tcp://broker", 1.0

    def __init__(self, *answers: Metrics | Exception) -> None:
        self._answers = [*answers]
        self.are_over = asyncio.Event()

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Any]:
        if self._answers and isinstance(problem := self._answers[0], HttpProblem):
            del self._answers[0]
            raise problem
        yield self

    async def execute(self, call: Any) -> Metrics:
        call.close()
        if not self._answers:
            self.are_over.set()
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def observed(*answers: Metrics | Exception) -> BrokerObserver:
    """Let an observer run until it has got all answers."""

    async def run() -> BrokerObserver:
        rounds = _Rounds(*answers)
        observer = BrokerObserver(rounds.lend, 0.0)
        running = asyncio.create_task(observer.run())
        over = asyncio.create_task(rounds.are_over.wait())
        await asyncio.wait((running, over), return_when=asyncio.FIRST_COMPLETED)
        assert not running.done(), running.exception()
        running.cancel(), over.cancel()
        return observer

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("met", "code"),
    [
        (HttpProblem("key_unusable", "no key"), "key_unusable"),
        (HttpProblem("overloaded", "too many"), "overloaded"),
        (replace(ANSWER, rows=[{"no": "name"}]), "defect"),
    ],
    ids=["no client", "no room for a client", "a row of another kind"],
)
def test_a_round_that_fails_is_a_failure_and_the_next_one_is_executed(
    met: Metrics | Exception, code: str
) -> None:
    failed = observed(met)
    assert failed.failure is not None
    assert failed.failure.code == code
    assert not failed.is_reachable
    assert [one.code for one in failed.alarms()] == ["unreachable"]
    followed = observed(met, ANSWER, ANSWER)
    assert followed.failure is None
    assert followed.is_reachable


def test_an_answer_of_long_ago_does_not_count_as_reachable() -> None:
    observer = observed(ANSWER, ANSWER)
    assert observer.is_reachable
    observer.answered_at = time.monotonic() - SILENCE_S - 1
    assert not observer.is_reachable


def test_a_key_file_without_a_secret_key_is_refused_at_the_start_and_by_the_check(
    broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = KeyFiles(tmp_path)
    public = keys.write_key(keys.add("web")._replace(secret_key=""), "public")
    assert main.print_check({"key_file": str(public)}) == 2
    assert "public.key has no secret-key" in capfd.readouterr().err
    web = WebProcess(url=broker.url, key_file=public)
    web.launch()
    assert web.wait() == 2
    assert "public.key has no secret-key" in web.stderr


NEVER_OPENED = {"name": "orders", "log": 1}
OPEN = {
    **NEVER_OPENED,
    "first": 5_000_000,
    "records_in": 10,
    "bytes_in": 100,
    "records_out": 0,
    "bytes_out": 0,
}
TEN = TrafficRates(5, 50)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([NEVER_OPENED], OPEN, TEN),
        ([], OPEN, TEN),
        ([{**OPEN, "log": 2}], OPEN, TEN),
        ([{**OPEN, "records_in": 4, "bytes_in": 40}], OPEN, TrafficRates(3, 30)),
        ([], {**OPEN, "first": 500_000}, None),
    ],
    ids=["opened since", "made since", "deleted and made again since", "open before", "old, but seen first"],
)
def test_all_that_came_into_a_topic_since_the_last_round_counts(
    before: list[dict[str, Any]], after: dict[str, Any], expected: TrafficRates | None
) -> None:
    first = replace(ANSWER, topics=len(before), time=2_000_000)
    then = replace(ANSWER, uptime=3.0, topics=1, time=4_000_000, rows=[after])
    observer = observed(first, replace(first, rows=before, serial=1), then)
    assert observer.rates.get("orders") == expected
