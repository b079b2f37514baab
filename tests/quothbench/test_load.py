"""Load: the requests of clients, and servers that end with the benchmark."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess
from quothbench.load import driver
from quothbench.load.servers import Target, running_broker, serving
from quothwire import batch
from quothwire.errors import Disconnected
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched


def fetched(socket: zmq.Socket[bytes], frames: driver.Frames) -> tuple[Fetched, Any]:
    """Send a fetch; the reply and the header of its first batch."""
    socket.send_multipart(frames)
    answer = binary_codec.decode_answer(socket.recv_multipart()[1:])
    assert isinstance(answer.reply, Fetched)
    return answer.reply, batch.check(answer.payload, answer.reply.log)


def test_ordinal_of_a_read_is_the_expected_one(broker: BrokerProcess, topic: str) -> None:
    """A wrong ordinal is reported as records that are gone, so a right one was understood."""
    with quoth.connect(broker.url) as client, driver.dealer(broker.url) as socket:
        lasts = [client.publish(topic, [b"x"] * 5).last for _ in range(3)]
        fetches = driver.fetches(topic, [0, lasts[0], lasts[1]], 5, 1, [0, 5, 7])
        assert [fetched(socket, frames)[0].gone for frames in fetches] == [0, 0, 3]


def test_process_of_a_broker_is_known_if_it_is_here(broker: BrokerProcess) -> None:
    for url in (broker.url, broker.url.replace("127.0.0.1", "localhost")):
        with quoth.connect(url) as client:
            assert running_broker(client) == Target(url, broker.pid)
    assert Target("tcp://192.0.2.1:5555").cpu() is None


def test_server_that_does_not_start_is_an_error_with_its_last_line() -> None:
    command = [sys.executable, "-c", "print('a'); print('no room'); print()"]
    with pytest.raises(Disconnected, match="it did not start: no room"), serving("it", command, "ready"):
        pass
