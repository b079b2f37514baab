"""Fixtures of the tests of rules: clients of a broker, and a proxy between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.rules import CATASTROPHE, UNHURRIED_S
from quoth import Client, Message
from quothrules.evaluator.evaluator import Evaluator


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what was entered, last first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def client(broker: BrokerProcess, stack: ExitStack) -> Client:
    """A client of the broker of all tests of a file."""
    return stack.enter_context(quoth.connect(broker.url))


@pytest.fixture
def meddler(broker: BrokerProcess, context: Context, stack: ExitStack) -> Meddler:
    """A proxy in front of the broker, which loses and refuses what a test says."""
    return stack.enter_context(Meddler(context, broker.url))


@pytest.fixture
def impeded(meddler: Meddler, stack: ExitStack) -> Client:
    """A client behind the proxy, which does not wait for long."""
    client = stack.enter_context(quoth.connect(meddler.url))
    client.timeout = 1.0
    client._timing.resend = 0.05
    return client


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the deadline of rules hold for `CATASTROPHE` alone: a busy machine delays other records, too."""

    def patient(evaluate: Callable[..., Any]) -> Callable[..., Any]:
        def call(evaluator: Evaluator, records: Message | Sequence[Message], *rest: object) -> Any:
            chunk = [records] if isinstance(records, Message) else records
            with monkeypatch.context() as patch:
                if all(record.value != CATASTROPHE for record in chunk):
                    patch.setattr(evaluator, "_rules", replace(evaluator._rules, deadline=UNHURRIED_S))
                return evaluate(evaluator, records, *rest)

        return call

    for name in ("_outcome", "_learn"):
        monkeypatch.setattr(Evaluator, name, patient(getattr(Evaluator, name)))
