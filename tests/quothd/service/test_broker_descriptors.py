"""The limit of open files and connections: the daemon raises it, and survives it."""

from __future__ import annotations

import resource

import pytest

from kit.broker.brokers import StartBroker
from kit.machine.processes import needs_prlimit
from quothd.service.descriptors import DESCRIPTORS_LOW, DESCRIPTORS_MOST, descriptors_max


def limited(soft: int, hard: int) -> tuple[str, ...]:
    """Return the prefix of a command whose process gets a limit of descriptors."""
    return "sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"


@needs_prlimit
def test_the_daemon_raises_its_limit_of_descriptors_to_the_hard_one(start_broker: StartBroker) -> None:
    hard = DESCRIPTORS_LOW + 1
    broker = start_broker(prefix=limited(256, hard))
    assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    assert "descriptors_low" not in broker.stderr


@needs_prlimit
def test_a_low_limit_of_descriptors_is_logged_at_the_start(start_broker: StartBroker) -> None:
    broker = start_broker(prefix=limited(256, 512))
    assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (512, 512)
    assert "descriptors=512" in broker.wait_for("event=descriptors_low")


def test_the_limit_of_descriptors_is_a_number_even_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert descriptors_max() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda limit: unlimited)
    assert descriptors_max() == DESCRIPTORS_MOST
