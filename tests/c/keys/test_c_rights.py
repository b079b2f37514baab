"""Requests of C clients that lack a right or exceed a quota: they end at once and are never sent again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.machine.cprograms import MakeCalls
from quothwire.errors import error
from quothwire.protocol.messages import Operation

TIMEOUT_MS = "20000"
RESEND_MS = "20000"
"""No request is sent again because its answer comes late."""
CODES = "denied", "quota_exceeded"
CALLS: dict[Operation, list[object]] = {
    Operation.PUBLISH: ["publish", "t", 0, "00:~:~"],
    Operation.FETCH: ["read", "t", 0, 0, 0, 0, 1_000],
    Operation.DESCRIBE: ["describe", "t"],
    Operation.CREATE: ["create", "other"],
    Operation.DELETE: ["delete", "t"],
    Operation.STAGE: ["stage", "t", "etl", 1, 0, 0, 3],
    Operation.OPEN_GROUP: ["group_join", "t", "billing", 10, 0],
    Operation.GROUP_FETCH: ["group_fetch", 1_000],
    Operation.DESCRIBE_GROUP: ["group_info", "t", "billing"],
}


@pytest.fixture
def meddler(context: Context, broker: BrokerProcess) -> Iterator[Meddler]:
    with Meddler(context, broker.url) as meddler:
        yield meddler


def refuse(meddler: Meddler, operation: Operation, code: str) -> None:
    """Let an operation be refused."""
    meddler.on_request = lambda call: call.operation is operation and error(code, f"no {operation.name}")


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("operation", CALLS, ids=lambda operation: operation.name)
def test_a_refused_request_is_sent_once_and_did_nothing(
    make_calls: MakeCalls, meddler: Meddler, operation: Operation, code: str
) -> None:
    calls = make_calls(meddler.url, TIMEOUT_MS, RESEND_MS)
    assert calls("publish", "t", 0, "00:~:~")[0].startswith("ok ")
    if operation is Operation.GROUP_FETCH:
        assert calls("group_join", "t", "billing", 10, 0) == ["ok"]
    before = meddler.count(operation)
    refuse(meddler, operation, code)
    lines = [line for line in calls(*CALLS[operation]) if line.startswith("error")]
    assert lines == [f"error {code} 0 no {operation.name}"]
    assert calls("ping")[0].startswith("ok ")
    assert meddler.count(operation) == before + 1


@pytest.mark.parametrize("code", CODES)
def test_batches_of_a_producer_are_refused_one_by_one_and_not_sent_again(
    make_calls: MakeCalls, meddler: Meddler, topic: str, code: str
) -> None:
    calls = make_calls(meddler.url, TIMEOUT_MS, RESEND_MS)
    refuse(meddler, Operation.PUBLISH, code)
    assert calls("send", topic, 1, 20_000, "00") == [f"error {code} 0 no PUBLISH"]
    assert meddler.count(Operation.PUBLISH) == 1
    assert calls("send", topic, 1, 20_000, "00", "01", "02") == [f"error {code} 0 no PUBLISH"] * 3


@pytest.mark.parametrize("code", CODES)
def test_a_refused_settlement_is_reported_once_and_not_sent_again(
    make_calls: MakeCalls, meddler: Meddler, topic: str, code: str
) -> None:
    calls = make_calls(meddler.url, TIMEOUT_MS, RESEND_MS)
    pointer = int(calls("publish", topic, 0, "00:~:~")[0].split()[1])
    assert calls("group_join", topic, "billing", 10, 0) == ["ok"]
    assert calls("group_fetch", 1_000)[0].startswith(f"leased {pointer} ")
    refuse(meddler, Operation.GROUP_SETTLE, code)
    assert calls("group_ack", pointer) == [f"error {code} 0 no GROUP_SETTLE"]
    assert calls("group_flush", 1_000) == ["ok"]
    assert meddler.count(Operation.GROUP_SETTLE) == 1
