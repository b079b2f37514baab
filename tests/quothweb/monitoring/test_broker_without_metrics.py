"""Brokers that answer, but tell no metrics: one of a release without them, and one that refuses the key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import eventually
from kit.keys import KeyFiles
from kit.machine.commands import Command
from kit.releases.releases import broker_of, unpacked
from kit.web.servers import TokenFile, WebProcess

from ..conftest import StartWeb

WITHOUT_METRICS = "0.1.0"
POLL = {"poll_interval": "0.1"}


@pytest.fixture
def older_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running broker of the last release without metrics."""
    broker = broker_of(unpacked(WITHOUT_METRICS, tmp_path / "code"), tmp_path / "data")
    yield broker.start()
    broker.close()


def answer(web: WebProcess, path: str) -> tuple[int, str]:
    found = httpx.get(f"{web.url}/{path}")
    return found.status_code, found.text.strip()


def test_an_older_broker_is_reachable_and_its_state_a_warning(
    older_broker: BrokerProcess, start_web: StartWeb
) -> None:
    """A supervisor hears that the broker is away long before `timeout` ends."""
    web = start_web(older_broker.url, timeout=300, **POLL)
    eventually(lambda: answer(web, "readyz") == (200, "ok"), "the broker has answered")
    assert answer(web, "healthz") == (200, "warning")
    verbose = httpx.get(f"{web.url}/healthz?verbose").json()
    assert [(one["code"], one["severity"]) for one in verbose["alarms"]] == [("metrics_unknown", "warning")]
    assert verbose["age_seconds"] >= 0
    metrics = answer(web, "metrics")[1].splitlines()
    assert "quoth_up 1.0" in metrics
    assert 'quoth_alarms{alarm="metrics_unknown",severity="warning"} 1.0' in metrics
    for page in ("", "topics", "groups"):
        assert "The broker answers, but tells no metrics" in answer(web, page)[1]
    older_broker.kill()
    eventually(lambda: answer(web, "readyz")[0] == 503, "the broker is away", seconds=60)
    assert answer(web, "healthz") == (503, "critical")
    assert "The broker does not answer" in answer(web, "")[1]


def test_the_state_of_an_older_broker_is_not_known_instead_of_critical(
    older_broker: BrokerProcess, alone: Command
) -> None:
    found = alone("check", "--url", older_broker.url)
    assert found.status == 3
    first, alarm, action = found.lines
    assert first.startswith("QUOTH UNKNOWN - the broker answers, but tells no metrics: ")
    assert alarm.startswith("unknown: metrics_unknown: ")
    assert "upgrade" in action
    assert "systemctl" not in found.out.decode()


def test_a_server_whose_key_the_broker_refuses_is_not_ready(
    start_broker: StartBroker, start_web: StartWeb, tmp_path: Path
) -> None:
    keys = KeyFiles(tmp_path)
    own = keys.write_key(keys.add("web"))
    keys.remove("web")
    broker = start_broker(**keys.settings)
    web = start_web(broker.url, key_file=own, tokens=TokenFile(tmp_path).path, **POLL)
    eventually(lambda: answer(web, "readyz") == (503, "auth_failed"), "the broker has refused the key")
    assert answer(web, "healthz") == (200, "warning")
