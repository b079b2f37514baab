"""A file that may not grow is not reported as a full disk: the error names its limit and how to raise it."""

from __future__ import annotations

import pytest

import quoth
from kit.broker.brokers import StartBroker
from kit.machine.limits import file_bytes, needs_prlimit
from quoth import Unavailable

LIMIT = 64 * 2**10


@needs_prlimit
def test_publish_above_the_limit_of_a_file_names_the_limit_and_passes(start_broker: StartBroker) -> None:
    broker = start_broker()
    with quoth.connect(broker.url) as client:
        client.publish("t", b"before")
        with file_bytes(broker.pid, LIMIT):
            with pytest.raises(Unavailable) as caught:
                client.publish("t", b"x" * 2 * LIMIT)
            assert caught.value.code == "disk_low"
            assert "a file of this process holds at most 64 KiB (RLIMIT_FSIZE)" in caught.value.text
            assert "the disk is not full" in caught.value.text
            assert "are free" not in caught.value.text
            assert "LimitFSIZE=" in str(caught.value.hint)
        client.publish("t", b"x" * 2 * LIMIT)
        assert [len(message.value) for message in client.read("t")] == [6, 2 * LIMIT]


@needs_prlimit
def test_new_topic_above_the_limit_of_a_file_names_the_limit(start_broker: StartBroker) -> None:
    broker = start_broker()
    with quoth.connect(broker.url) as client, file_bytes(broker.pid, 0):
        with pytest.raises(Unavailable, match="RLIMIT_FSIZE") as caught:
            client.create_topic("t")
        assert caught.value.code == "disk_low"
