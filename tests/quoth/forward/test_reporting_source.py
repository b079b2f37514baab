"""A source that shows the progress of its forwarding as a named cursor, also after failures."""

from __future__ import annotations

import pytest

from kit.broker.brokers import BrokerProcess
from quoth import Client, Conflict, QuothError, connect
from quoth.forward import reporting_source
from quoth.forward.reporting_source import ReportingSource
from quoth.forward.source import StoredSource
from quoth.reported_cursor import ReportedCursor
from quothwire.errors import RequestError


def test_report_that_failed_is_repeated_while_the_source_is_read(
    own_broker: BrokerProcess, own_client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting_source, "AGAIN_S", 0.0)
    own_client.publish(topic, [b"x"] * 5)
    failed: list[QuothError] = []
    with connect(own_broker.url) as impatient:
        cursor = ReportedCursor(impatient, topic, "copy")
        source = ReportingSource(StoredSource(own_client, topic), cursor, lambda one, _: failed.append(one))
        assert len(source.wait(0.0)) == 1
        last = own_client.topic(topic).last
        impatient.timeout = 0.3
        own_broker.terminate()
        source.finish(last)
        assert [one.code in ("disconnected", "timed_out") for one in failed] == [True]
        own_broker.restart()
        while failed:
            failed.clear()
            assert source.wait(0.0) == []
    assert own_client.cursor(topic, "copy", create=False).pointer() == last


def test_groups_with_leases_and_wrong_names_are_refused(client: Client, topic: str) -> None:
    client.publish(topic, b"x")
    client.group(topic, "billing").info()
    source = ReportingSource(
        StoredSource(client, topic),
        ReportedCursor(client, topic, "billing"),
        lambda problem, _: pytest.fail(f"{problem}"),
    )
    with pytest.raises(Conflict) as refused:
        source.finish(0)
    assert refused.value.code == "group_exists"
    with pytest.raises(RequestError):
        ReportedCursor(client, topic, "a/b")
