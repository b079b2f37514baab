"""Closing a client: calls end, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.broker.proxies import Wire
from kit.client.records import Connect
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.machine.commands import run_script
from kit.machine.processes import descriptors, needs_proc, threads
from quoth import Client, Disconnected

CALLS: dict[str, Callable[[Client], object]] = {
    "publish": lambda client: client.publish("t", b"x"),
    "producer": lambda client: client.producer("t"),
    "read": lambda client: client.read("t"),
    "get": lambda client: client.get("t", 1),
    "batches": lambda client: next(client.batches("t")),
    "stored": lambda client: next(client.stored("t")),
    "advance": lambda client: client.advance("t"),
    "split": lambda client: client.split("t", 0, 1, 1),
    "count": lambda client: client.count("t"),
    "tail": lambda client: client.tail("t"),
    "tail after": lambda client: next(client.tail("t", after=0)),
    "read_many": lambda client: client.read_many("t"),
    "tail_many": lambda client: client.tail_many("t", after=0),
    "transaction": lambda client: client.transaction("t", "app", 0).status(),
    "group": lambda client: client.group("t", "g").info(),
    "group fetch": lambda client: client.group("t", "g").fetch(1),
    "groups": lambda client: client.groups("t"),
    "cursor": lambda client: client.cursor("t", "c").pointer(),
    "topics": lambda client: client.topics(),
    "topic": lambda client: client.topic("t"),
    "create_topic": lambda client: client.create_topic("t"),
    "update_topic": lambda client: client.update_topic("t"),
    "delete_topic": lambda client: client.delete_topic("t"),
    "trim": lambda client: client.trim("t", 1),
    "roll": lambda client: client.roll("t"),
    "hello": lambda client: client.hello(),
    "status": lambda client: client.status(),
    "metrics": lambda client: client.metrics(),
    "ping": lambda client: client.ping(),
}
WITHOUT_A_REQUEST = ("subscribe", "run", "stop")


def test_the_table_of_calls_is_complete() -> None:
    public = {name for name in dir(Client) if not name.startswith("_")}
    assert {name.split()[0] for name in CALLS} == public - {"close", *WITHOUT_A_REQUEST}


def test_closed_client_refuses_everything(client: Client) -> None:
    assert client.ping() > 0
    client.close()
    for call in CALLS.values():
        with refused("closed"):
            call(client)
    client.close()


@pytest.mark.parametrize("step", ["monitor", "connect", "send"])
def test_ctrl_c_while_a_connection_is_made_ends_the_call_and_leaves_no_socket(
    broker: BrokerProcess, step: str
) -> None:
    def interrupt(*_: object, **_named: object) -> None:
        raise KeyboardInterrupt

    class InterruptedContext(zmq.Context):  # type: ignore[type-arg]
        _socket_class = type("InterruptedSocket", (zmq.Socket,), {step: interrupt})

    context = InterruptedContext()
    with Client(broker.url, context, DEADLINE_S) as client, pytest.raises(KeyboardInterrupt):
        client.topics()
    context.term()  # waits for every socket


def test_closing_does_not_wait_for_a_socket_without_an_owner(broker: BrokerProcess) -> None:
    """Ctrl-C between the making of a socket and the line that keeps it leaves one."""
    client = quoth.connect(broker.url)
    before = set(threading.enumerate())
    with client._pool.context.socket(zmq.DEALER):
        client.close()
        (ending,) = set(threading.enumerate()) - before
    assert ending.name == "quoth-end"
    ending.join(DEADLINE_S)
    assert not ending.is_alive()


def test_closing_ends_the_calls_of_other_threads(
    own_broker: BrokerProcess, connect: Connect, twin: Connect, topic: str
) -> None:
    witness = connect(own_broker)
    with twin(own_broker.url) as client, ThreadPoolExecutor() as pool:
        client.create_topic(topic)
        waiting: list[Future[Any]] = [
            pool.submit(client.read, topic, timeout=60.0),
            pool.submit(next, client.tail(topic)),
            pool.submit(next, client.tail(f"{topic} that is not there")),
        ]
        eventually(lambda: witness.status().waits == len(waiting), "they wait")
        client.close()
        for ended in waiting:
            problem = ended.exception(DEADLINE_S)
            assert isinstance(problem, Disconnected)
            assert problem.code == "closed"


def test_closing_at_any_time_ends_calls_with_one_error(
    broker: BrokerProcess, connect: Connect, rng: random.Random
) -> None:
    for _ in range(10):
        client = connect(broker)

        def call(client: Client = client) -> None:
            while True:
                client.ping()

        with ThreadPoolExecutor(4) as pool:
            calling = [pool.submit(call) for _ in range(4)]
            pause(rng.uniform(0, 0.01))  # any moment
            client.close()
            problems = [one.exception(DEADLINE_S) for one in calling]
        assert all(isinstance(one, Disconnected) and one.code == "closed" for one in problems), problems


def test_closing_ends_an_open_producer_and_reports_its_batches(
    wire: Wire, connect: Connect, topic: str
) -> None:
    client = connect(wire)
    producer = client.producer(topic, linger=60)
    producer.send(b"never sent")
    client.close()
    with pytest.raises(quoth.ProducerError) as caught:
        producer.flush(DEADLINE_S)
    (failure,) = caught.value.failures
    assert failure.values == [b"never sent"]
    assert failure.error.code == "closed"
    with refused("closed"):
        producer.send(b"more")
    producer.close()


@needs_proc
def test_closing_leaves_no_descriptors_and_no_threads_behind(
    twin: Connect, broker: BrokerProcess, topic: str
) -> None:
    def use() -> None:
        with twin(broker.url) as client:
            client.publish(topic, b"x")
            next(client.tail(topic, after=0))
            next(client.tail_many(topic, after=0))
            with client.producer(topic) as producer:
                producer.send(b"y")

    def left() -> tuple[int, int]:
        gc.collect()
        return descriptors(os.getpid()), threads(os.getpid())

    use()
    before = left()
    for _ in range(10):
        use()
    eventually(lambda: left() <= before, "everything is given back")


ABANDONING = """
import sys, quoth
client = quoth.connect(sys.argv[1])
client.publish("abandoned", b"x")
iterator = client.tail("abandoned", after=0)
next(iterator)
producer = client.producer("abandoned", linger=60)
producer.send(b"y")
"""


def test_process_with_an_open_client_ends(broker: BrokerProcess) -> None:
    ended = run_script(ABANDONING, broker.url, options=())
    assert ended.stderr == ""
    assert ended.returncode == 0


FORGOTTEN = """
import faulthandler, gc, quoth, sys, weakref
faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)

class Owner:
    def __init__(self, url):
        self.client = quoth.connect(url)
        self.handlers = [self.handle]
        self.client.publish("forgotten", [b"x"] * 10)
        self.client.read("forgotten", limit=5)
        self.tail = self.client.tail("forgotten", after=0)
        next(self.tail)

    def handle(self):
        pass

owner = Owner(sys.argv[1])
known = weakref.ref(owner)
del owner
gc.collect()
assert known() is None
"""


def test_the_collector_ends_a_client_that_is_in_a_cycle_and_was_not_closed(broker: BrokerProcess) -> None:
    ended = run_script(FORGOTTEN, broker.url, str(DEADLINE_S), options=())
    assert ended.stderr == ""
    assert ended.returncode == 0
