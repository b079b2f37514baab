"""Threads and forked children that share a client."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

from kit.broker.brokers import StartBroker
from kit.client.records import at_once
from kit.machine.commands import run_script
from quoth import Client


def test_many_threads_publish_and_read_through_one_client(client: Client, topic: str) -> None:
    """Nothing is lost, nothing is mixed up, each thread keeps its order."""
    threads, rounds = 16, 10
    together = threading.Barrier(threads)

    def work(me: int) -> None:
        together.wait()
        for i in range(rounds):
            ack = client.publish(topic, [b"%d %d %d" % (me, i, part) for part in range(3)])
            (found,) = client.read(topic, after=ack.first, limit=1)
            assert (found.pointer, found.value) == (ack.first + 1, b"%d %d 1" % (me, i))

    at_once(threads, work)
    messages = client.read(topic, limit=10_000)
    assert len(messages) == threads * rounds * 3
    assert all(a.pointer < b.pointer for a, b in pairwise(messages))
    for me in range(threads):
        mine = [message.value for message in messages if message.value.startswith(b"%d " % me)]
        assert mine == [b"%d %d %d" % (me, i, part) for i in range(rounds) for part in range(3)]


FORKING = """
import os, sys, threading, quoth
client = quoth.connect(sys.argv[1])
client.publish("forked", b"parent 0")
producer = client.producer("forked", linger=60)
producer.send(b"parent, later")
tail = client.tail("forked", after=0)
next(tail)  # the next records are on their way to it
client.publish("forked", b"parent, too")
stop = threading.Event()
busy = [threading.Thread(target=lambda: [client.ping() for _ in iter(stop.is_set, True)]) for _ in range(4)]
for thread in busy:
    thread.start()

def child(number):
    client.publish("forked", b"child %d" % number)
    assert b"child %d" % number in [message.value for message in client.read("forked")]
    for forbidden in (lambda: producer.send(b"x"), producer.flush, producer.future):
        try:
            forbidden()
        except quoth.Disconnected as problem:
            assert problem.code == "closed", problem
        else:
            raise AssertionError("a forked child used the producer")
    producer.close()
    with client.producer("forked") as own:
        own.send(b"child's producer %d" % number)
    assert next(tail).value == b"parent, too"
    if number == 2:
        client.close()

for number in range(3):
    pid = os.fork()
    if not pid:
        try:
            child(number)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    client.publish("forked", b"parent %d" % (number + 1))
stop.set()
for thread in busy:
    thread.join()
producer.close()
values = sorted(message.value for message in client.read("forked"))
expected = [b"parent %d" % i for i in range(4)] + [b"parent, too", b"parent, later"]
for number in range(3):
    expected += [b"child %d" % number, b"child's producer %d" % number]
assert values == sorted(expected), values
assert next(tail).value == b"parent, too"
client.close()
"""


def test_forked_child_uses_connections_of_its_own_and_leaves_the_parent_unharmed(
    start_broker: StartBroker,
) -> None:
    ended = run_script(FORKING, start_broker().url)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr


IN_PROCESS_FORKING = """
import os, sys, quoth
from quothd import Broker
with Broker(sys.argv[1]) as broker, quoth.connect(broker) as client:
    client.publish("t", b"x")
    pid = os.fork()
    if not pid:
        try:
            client.publish("t", b"y")
        except quoth.Disconnected as problem:
            os._exit(0 if problem.code == "closed" else 1)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(client.read("t")) == 1
"""


def test_forked_child_cannot_reach_a_broker_inside_its_parent(tmp_path: Path) -> None:
    ended = run_script(IN_PROCESS_FORKING, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
