"""Connecting and parting: who is there, who is not, how long that takes, and what is left afterwards."""

from __future__ import annotations

import gc
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context, refused
from kit.broker.proxies import Wire
from kit.clocks import JumpingClock
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.commands import COMMAND_S
from kit.machine.processes import descriptors, needs_proc, threads
from quoth import Client, Disconnected, RequestError
from quoth.connection import connection
from quoth.connection.connection import Link
from quothd import Broker

Connect = Callable[..., Client]


@pytest.fixture
def silence() -> Iterator[str]:
    """The URL of a peer that accepts connections and sends nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def unused_url() -> str:
    """Return a URL at which nothing listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


# -- who is there -------------------------------------------------------------------------------------------


def test_missing_broker_is_an_error_within_the_timeout_with_a_hint(twin: Connect) -> None:
    url = unused_url()
    began = time.monotonic()
    with pytest.raises(Disconnected) as caught:
        twin(url, timeout=0.3)
    assert 0.3 <= time.monotonic() - began < DEADLINE_S
    assert caught.value.code == "disconnected"
    assert caught.value.retryable
    assert url in caught.value.text
    assert "quoth serve" in caught.value.hint


def test_peer_that_is_no_broker_counts_as_none(twin: Connect, silence: str) -> None:
    with refused("disconnected"):
        twin(silence, timeout=0.3)


def test_a_peer_that_never_answers_is_a_timeout(
    twin: Connect, context: Context, pool: ThreadPoolExecutor, clock: JumpingClock
) -> None:
    with context.socket(zmq.ROUTER) as mute:
        port = mute.bind_to_random_port("tcp://127.0.0.1")
        connecting = pool.submit(twin, f"tcp://127.0.0.1:{port}", timeout=2 * DEADLINE_S)
        mute.recv_multipart()
        clock.jump(2 * DEADLINE_S)
        problem = connecting.exception(DEADLINE_S)
    assert isinstance(problem, Disconnected)
    assert problem.code == "timed_out"
    assert "not known" in problem.hint


@pytest.mark.parametrize(
    "url",
    ["", "localhost:5555", "http://127.0.0.1:1", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:http",
     "nonsense://x"],
)  # fmt: skip
def test_bad_url_is_refused_at_once_with_an_example(twin: Connect, url: str) -> None:
    with pytest.raises(RequestError) as caught:
        twin(url, timeout=0.3)
    assert caught.value.code == "bad_request"
    assert repr(url) in caught.value.text
    assert "tcp://127.0.0.1:5555" in caught.value.hint


def test_broker_that_comes_late_is_found_within_the_timeout(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker()
    broker.kill()
    with ThreadPoolExecutor() as pool:
        late = pool.submit(connect, broker.url, timeout=DEADLINE_S)
        broker.restart()
        assert late.result().ping() > 0


def test_hello_tells_version_and_limits(client: Client) -> None:
    welcome = client.hello()
    assert welcome.server.startswith("quothd ")
    assert welcome.limits["batch_records_max"] == 100_000
    assert "fetch" in welcome.operations


# -- a broker of this process -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["inproc", "tcp", "ipc"])
def test_broker_object_of_this_process_can_be_connected_to(twin: Connect, kind: str, tmp_path: Path) -> None:
    settings: dict[str, dict[str, Any]] = {
        "inproc": {},
        "tcp": {"host": "127.0.0.1"},
        "ipc": {"listen": (f"ipc://{tmp_path}/socket",)},
    }
    with Broker(tmp_path / "data", **settings[kind]) as broker, twin(broker) as client:
        assert client.url.startswith(f"{kind}://")
        ack = client.publish("t", [b"one", b"two"])
        assert [message.value for message in client.read("t")] == [b"one", b"two"]
        with client.producer("t") as producer:
            producer.send(b"three")
        assert producer.acknowledged == 1
        assert next(client.tail("t", after=ack.last)).value == b"three"


def test_address_inside_a_process_is_refused_with_the_way_to_it(twin: Connect, tmp_path: Path) -> None:
    """Nobody would answer there: another context has its own addresses."""
    with Broker(tmp_path) as broker, pytest.raises(RequestError, match="connect to the Broker"):
        twin(broker.url)


@pytest.mark.parametrize("settings", [{}, {"host": "127.0.0.1"}], ids=["inproc", "tcp"])
def test_broker_of_this_process_that_stops_closes_its_clients(
    twin: Connect, settings: dict[str, Any], tmp_path: Path
) -> None:
    """What waits ends, what comes later is refused, nothing hangs."""
    broker = Broker(tmp_path / "data", **settings).start()
    with twin(broker, timeout=DEADLINE_S) as client, ThreadPoolExecutor() as pool:
        client.publish("t", b"one")
        producer = client.producer("t")
        tail = pool.submit(next, client.tail("t"))
        waiting = pool.submit(client.read, "t", since="now", timeout=60.0)
        eventually(lambda: client.status().waits == 2, "both wait at the broker")
        broker.stop()
        for ended in (tail, waiting):
            assert isinstance(ended.exception(DEADLINE_S), Disconnected)
        with refused("closed"):
            client.publish("t", b"two")
        with refused("closed"):
            client.producer("t")
        with refused("closed"):
            producer.flush(DEADLINE_S)
        producer.close()
    with Broker(tmp_path / "data") as broker, quoth.connect(broker) as client:
        assert [message.value for message in client.read("t")] == [b"one"]


# -- parting ------------------------------------------------------------------------------------------------

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
    "topics": lambda client: client.topics(),
    "topic": lambda client: client.topic("t"),
    "create_topic": lambda client: client.create_topic("t"),
    "update_topic": lambda client: client.update_topic("t"),
    "delete_topic": lambda client: client.delete_topic("t"),
    "trim": lambda client: client.trim("t", 1),
    "roll": lambda client: client.roll("t"),
    "hello": lambda client: client.hello(),
    "status": lambda client: client.status(),
    "ping": lambda client: client.ping(),
}


def test_the_table_of_calls_is_complete() -> None:
    public = {name for name in dir(Client) if not name.startswith("_")}
    assert {name.split()[0] for name in CALLS} == public - {"close"}


@pytest.mark.parametrize("call", CALLS)
def test_closed_client_refuses_everything(twin: Connect, broker: BrokerProcess, call: str) -> None:
    with twin(broker.url) as client:
        assert client.ping() > 0
        client.close()
        with refused("closed"):
            CALLS[call](client)
        client.close()


@pytest.mark.parametrize(("of", "step"), [(zmq.Socket, "monitor"), (Link, "wait")])
def test_ctrl_c_while_a_connection_is_made_ends_the_call_and_leaves_no_socket(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, of: type, step: str
) -> None:
    with quoth.connect(broker.url) as client:
        client._pool._idle.pop()._link.close()

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(of, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.topics()


def test_closing_waits_for_no_socket_that_nobody_can_close(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the making of a socket and the line that keeps it leaves one."""
    monkeypatch.setattr(connection, "TERMINATE_S", 0.01)
    client = quoth.connect(broker.url)
    before = set(threading.enumerate())
    with client._pool.context.socket(zmq.DEALER):
        client.close()
        (ending,) = set(threading.enumerate()) - before
    assert ending.name == "quoth-end"
    ending.join(DEADLINE_S)
    assert not ending.is_alive()


def test_closing_ends_what_other_threads_wait_for(
    quiet_broker: BrokerProcess, connect: Connect, twin: Connect, topic: str
) -> None:
    witness = connect(quiet_broker)
    with twin(quiet_broker.url) as client, ThreadPoolExecutor() as pool:
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


def test_closing_at_any_moment_ends_calls_with_one_error(
    broker: BrokerProcess, connect: Connect, rng: random.Random
) -> None:
    for _ in range(10):
        client = connect(broker)

        def call(client: Client = client) -> None:
            while True:
                client.ping()

        with ThreadPoolExecutor(4) as pool:
            calling = [pool.submit(call) for _ in range(4)]
            time.sleep(rng.uniform(0, 0.01))  # any moment
            client.close()
            problems = [one.exception(DEADLINE_S) for one in calling]
        assert all(isinstance(one, Disconnected) and one.code == "closed" for one in problems), problems


def test_closing_ends_an_open_producer_and_tells_what_it_had(
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


def test_process_that_closes_nothing_still_ends(broker: BrokerProcess) -> None:
    ended = run_script(ABANDONING, broker.url)
    assert ended.stderr == ""
    assert ended.returncode == 0


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


# -- threads and forks --------------------------------------------------------------------------------------


def test_many_threads_publish_and_read_through_one_client(client: Client, topic: str) -> None:
    """Nothing is lost, nothing is mixed up, each thread keeps its order."""
    threads, rounds = 16, 25
    together = threading.Barrier(threads)

    def work(me: int) -> None:
        together.wait()
        for i in range(rounds):
            ack = client.publish(topic, [b"%d %d %d" % (me, i, part) for part in range(3)])
            (found,) = client.read(topic, after=ack.first, limit=1)
            assert (found.pointer, found.value) == (ack.first + 1, b"%d %d 1" % (me, i))

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, me) for me in range(threads)]:
            done.result()
    messages = client.read(topic, limit=10_000)
    assert len(messages) == threads * rounds * 3
    assert all(a.pointer < b.pointer for a, b in pairwise(messages))
    for me in range(threads):
        mine = [message.value for message in messages if message.value.startswith(b"%d " % me)]
        assert mine == [b"%d %d %d" % (me, i, part) for i in range(rounds) for part in range(3)]


FORKING = """
import multiprocessing, os, sys, threading, quoth
url, kind = sys.argv[1:]
client = quoth.connect(url)
client.publish("forked", b"parent 0")
producer = client.producer("forked", linger=60)
producer.send(b"parent, later")
tail = client.tail("forked", after=0)
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
    if number == 2:
        client.close()

if kind == "os":
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
else:
    forking = multiprocessing.get_context("fork")
    for number in range(3):
        process = forking.Process(target=child, args=(number,))
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode
        client.publish("forked", b"parent %d" % (number + 1))
stop.set()
for thread in busy:
    thread.join()
producer.close()
values = sorted(message.value for message in client.read("forked"))
expected = [b"parent %d" % i for i in range(4)] + [b"parent, later"]
for number in range(3):
    expected += [b"child %d" % number, b"child's producer %d" % number]
assert values == sorted(expected), values
assert next(tail).value == b"parent 0"
client.close()
"""


@pytest.mark.parametrize("kind", ["os", "multiprocessing"])
def test_forked_child_uses_connections_of_its_own_and_leaves_the_parent_unharmed(
    start_broker: StartBroker, kind: str
) -> None:
    ended = run_script(FORKING, start_broker().url, kind)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr


FORKED_TAIL = """
import os, sys, quoth
client = quoth.connect(sys.argv[1])
client.publish("t", [b"a", b"b"])
tail = client.tail("t", after=0)
assert next(tail).value == b"a"
pid = os.fork()
if not pid:
    client.publish("t", b"c")
    assert [next(tail).value, next(tail).value] == [b"b", b"c"]
    client.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert [next(tail).value, next(tail).value] == [b"b", b"c"]
client.close()
"""


def test_forked_child_that_goes_on_with_a_tail_can_close_its_client(start_broker: StartBroker) -> None:
    ended = run_script(FORKED_TAIL, start_broker().url)
    assert ended.returncode == 0, ended.stderr


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


# -- finding a broker again ---------------------------------------------------------------------------------


def test_client_finds_a_broker_again_that_was_restarted(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker()
    client = connect(broker)
    sent = []
    for number in range(3):
        sent.append(b"%d" % number)
        assert client.publish("t", sent[-1]).duplicate is False
        if number % 2:
            broker.kill()
        else:
            broker.terminate()
        broker.restart()
        assert [message.value for message in client.read("t")] == sent


def test_call_to_a_broker_that_is_gone_ends_at_its_timeout(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    broker = start_broker()
    client = stack.enter_context(quoth.connect(broker.url))
    client.publish("t", b"one")
    client.timeout = 0.3
    broker.kill()
    link = client._pool._idle[-1]._link
    eventually(lambda: not (link.read_events() or link.connected), "the loss is noticed")
    began = time.monotonic()
    with refused("disconnected"):
        client.read("t")
    with refused("disconnected"):
        client.publish("t", b"two", timeout=0.2)
    assert time.monotonic() - began < DEADLINE_S
    broker.restart()
    client.timeout = DEADLINE_S
    assert [message.value for message in client.read("t")] == [b"one"]


def test_black_hole_is_a_timeout_and_calls_go_on_once_it_is_cut(
    wire: Wire, connect: Connect, topic: str
) -> None:
    client = connect(wire)
    client.publish(topic, b"one")
    client.timeout = 0.3
    wire.die()
    with refused("timed_out"):
        client.read(topic)
    wire.cut()
    client.timeout = DEADLINE_S
    assert [message.value for message in client.read(topic)] == [b"one"]


def test_connections_do_not_pile_up(pooled: Client, topic: str) -> None:
    """One thread needs one connection."""
    pooled.publish(topic, b"x")
    pool = pooled._pool
    for _ in range(50):
        pooled.ping()
        list(pooled.batches(topic))
        next(pooled.tail(topic, after=0))
    assert len(pool._idle) == 1
