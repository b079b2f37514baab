"""One client for each process and address, also in processes that are forked."""

from __future__ import annotations

import os

from kit.broker.brokers import BrokerProcess
from quoth.spark import connections


def test_an_address_has_one_client(broker: BrokerProcess) -> None:
    one = connections.client(broker.url)
    assert connections.client(broker.url) is one
    assert one.timeout == connections.TIMEOUT_S
    assert connections.client(broker.url, 5.0) is not one


def test_a_forked_process_has_a_client_of_its_own(broker: BrokerProcess, topic: str) -> None:
    parents = connections.client(broker.url)
    parents.publish(topic, b"parent")
    child = os.fork()
    if not child:
        status = 1
        try:
            own = connections.client(broker.url)
            own.publish(topic, b"child")
            status = 0 if own is not parents else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert [one.value for one in parents.read(topic)] == [b"parent", b"child"]
