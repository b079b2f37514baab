"""The process of Poe's protocol: a client beside the broker, whose death hurts no other client."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import StartBroker
from kit.broker.peers import Peers
from kit.deadlines import eventually
from kit.gateways.poe import ANY_PORT, PoePeer, poe_url, put_frame
from kit.keys import KeyFiles
from kit.machine.ports import free_port
from kit.machine.processes import children, needs_prlimit, needs_proc, runs
from quothd import Broker
from quothd.gateways.poe.__main__ import DESCRIPTORS_KEPT
from quothd.gateways.poe.server import PoeServer
from quothd.gateways.poe.topics import PoeTopics
from quothwire.errors import Disconnected

pytestmark = needs_proc


def test_a_process_that_was_killed_is_started_again_at_the_same_port(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Native clients do not notice it; a client of Poe connects again."""
    broker = start_broker(poe_listen=ANY_PORT, scrub_interval=0)
    url = poe_url(broker)
    fast = peers.fast(broker)
    with PoePeer(url) as poe, quoth.connect(broker.url) as client:
        first = poe.put("t", b"1")
        counters = fast.status(limit=0).counters
        assert (counters["poe_running"], counters["poe_restarts"]) == (1, 0)
        eventually(lambda: fast.status(limit=0).counters["poe_connections"] == 1, "it is counted")
        (process,) = children(broker.pid)
        os.kill(process, signal.SIGKILL)
        second = client.publish("t", b"2").last
        assert poe.is_closed()
        broker.wait_for("event=poe_ended status=-9")
        with PoePeer(url) as again:  # waits in the socket's queue for the new process
            assert again.read("t") == [(first, b"1"), (second, b"2")]
            assert again.put("t", b"3") > second
        assert fast.status(limit=0).counters["poe_restarts"] == 1
    eventually(lambda: fast.status(limit=0).counters["poe_connections"] == 0, "its end is counted")


def test_the_connections_of_a_process_that_was_killed_count_no_more(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(poe_listen=ANY_PORT, scrub_interval=0)
    fast = peers.fast(broker)

    def counted() -> tuple[int, int, int]:
        counters = fast.status(limit=0).counters
        return tuple(counters[f"poe_{name}"] for name in ("running", "restarts", "connections"))

    with PoePeer(poe_url(broker)) as poe:
        poe.put("t", b"1")
        eventually(lambda: counted() == (1, 0, 1), "it is counted")
        (process,) = children(broker.pid)
        os.kill(process, signal.SIGKILL)
        assert poe.is_closed()
    eventually(lambda: counted() == (1, 1, 0), "the new process has none")


def test_the_process_ends_once_its_client_of_the_broker_has_ended(tmp_path: Path) -> None:
    """Otherwise it would close all connections. An error of one request ends one connection alone."""

    async def act(broker: Broker, listener: socket.socket) -> None:
        async with quoth.aio.connect(broker.url) as client:
            serving = asyncio.create_task(PoeServer(PoeTopics(client), 10, 10.0).serve(listener))
            host, port = listener.getsockname()
            await client.publish("one", b"1")
            for ends in (False, True):
                if ends:
                    await client.close()
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(put_frame(b"one" if ends else b"another", [b"1"]))
                assert await reader.read() == b""
                writer.close()
                assert serving.done() == ends
            with pytest.raises(Disconnected) as ended:
                await serving
            assert ended.value.code == "closed"

    with (
        Broker(tmp_path, host="127.0.0.1", topics_max=1) as broker,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        asyncio.run(act(broker, listener))


@needs_prlimit
def test_connections_end_below_the_limit_of_descriptors(start_broker: StartBroker) -> None:
    """Connections above it are closed at once; those below it and the client of the broker go on."""
    limit = 256
    prefix = "sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh"
    broker = start_broker(poe_listen=ANY_PORT, poe_connections_max=2 * limit, scrub_interval=0, prefix=prefix)
    with ExitStack() as stack:
        early = stack.enter_context(PoePeer(poe_url(broker)))
        early.put("t", b"1")
        (process,) = children(broker.pid)
        assert resource.prlimit(process, resource.RLIMIT_NOFILE) == (limit, limit)
        others = [stack.enter_context(PoePeer(poe_url(broker))) for _ in range(limit + 50)]
        assert others[-1].is_closed()
        early.put("t", b"2")
        assert len(others[0].read("t")) == 2
        broker.wait_for(f"there are {limit - DESCRIPTORS_KEPT} connections already")
        assert "Traceback" not in broker.stderr


def test_a_process_that_hangs_holds_up_no_native_client(start_broker: StartBroker) -> None:
    broker = start_broker(poe_listen=ANY_PORT, scrub_interval=0)
    with PoePeer(poe_url(broker)) as poe, quoth.connect(broker.url, timeout=5) as client:
        poe.put("t", b"1")
        (process,) = children(broker.pid)
        os.kill(process, signal.SIGSTOP)
        try:
            poe.send(bytes.fromhex("00000012 0000 00000000000000 0000000a 746f706963"))
            for _ in range(50):
                client.publish("t", b"2")
        finally:
            os.kill(process, signal.SIGCONT)
        assert poe.records() == []
        assert len(poe.read("t")) == 51


@pytest.mark.parametrize("by_signal", [True, False])
def test_the_process_ends_with_its_broker(start_broker: StartBroker, by_signal: bool) -> None:
    """At once. A broker that is started again has the same port, and what was stored."""
    url = f"tcp://127.0.0.1:{free_port()}"
    broker = start_broker(poe_listen=url, scrub_interval=0)
    with PoePeer(url) as poe:
        poe.put("t", b"1")
        (process,) = children(broker.pid)
        if by_signal:
            assert broker.terminate() == 0
        else:
            broker.kill()
        assert poe.is_closed()
        eventually(lambda: not runs(process), "it has ended")
        broker.restart()
    with PoePeer(url) as poe:
        assert [value for _, value in poe.read("t")] == [b"1"]


_FORKS = """\
import os, signal, sys
from quothd import Broker
broker = Broker(sys.argv[1], host="127.0.0.1", poe_listen="tcp://127.0.0.1:0")
broker.start()
input(broker.poe_url + "\\n")  # until the process runs
child = os.fork()
if not child:
    signal.pause()
print(child, flush=True)
signal.pause()
"""


def test_the_process_ends_with_a_broker_whose_process_has_forked(tmp_path: Path) -> None:
    """A forked process still holds the other end of its stdin."""
    command = sys.executable, "-c", _FORKS, str(tmp_path)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        forked = 0
        try:
            with PoePeer(parent.stdout.readline().strip()) as poe:
                poe.put("t", b"1")
                (process,) = children(parent.pid)
                parent.stdin.write("\n")
                parent.stdin.flush()
                forked = int(parent.stdout.readline())
                parent.kill()
                assert poe.is_closed()
            eventually(lambda: not runs(process), "it has ended")
            assert runs(forked)
        finally:
            parent.kill()
            if forked:
                os.kill(forked, signal.SIGKILL)


def test_an_embedded_broker_serves_clients_of_poe(tmp_path: Path) -> None:
    """At an address that it says; it leaves no process."""
    before = {*children(os.getpid())}
    broker = Broker(tmp_path, host="127.0.0.1", poe_listen=ANY_PORT)
    assert broker.poe_url == ""
    with broker, quoth.connect(broker) as client, PoePeer(broker.poe_url) as poe:
        pointer = poe.put("t", b"1", b"22")
        assert [(one.pointer, one.value) for one in client.read("t")] == [
            (pointer - 1, b"1"),
            (pointer, b"22"),
        ]
    assert broker.poe_url == ""
    eventually(lambda: {*children(os.getpid())} <= before, "its process has ended")


def test_a_broker_that_listens_on_ipc_alone_serves_clients_of_poe(tmp_path: Path) -> None:
    listen = f"ipc://{tmp_path}/quoth"
    broker = Broker(tmp_path / "data", listen=listen, poe_listen=ANY_PORT)
    with broker, PoePeer(broker.poe_url) as poe:
        pointer = poe.put("t", b"1")
        assert poe.read("t") == [(pointer, b"1")]


def test_a_broker_with_keys_lets_clients_of_poe_in_on_loopback(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Clients of Poe need none. The process has a key, with which no topic of the system can be changed."""
    keys = KeyFiles(tmp_path)
    alice = keys.add("alice")
    broker = start_broker(**keys.settings, poe_listen=ANY_PORT, scrub_interval=0)
    broker.wait_for("clients need keys; 1 known")
    with quoth.connect(broker.url, key=alice) as client, PoePeer(poe_url(broker)) as poe:
        pointer = poe.put("t", b"1")
        assert [one.pointer for one in client.read("t")] == [pointer]
        last = client.publish("t", b"2").last
        assert poe.read("t", pointer) == [(last, b"2")]
        keys.add("bob")
        os.kill(broker.pid, signal.SIGHUP)
        broker.wait_for("event=clients_changed added=bob")
        assert poe.read("t", pointer) == [(last, b"2")]
        (process,) = children(broker.pid)
        assert b"secret" not in Path(f"/proc/{process}/cmdline").read_bytes()
        client.publish("quoth.rules.stats", b"x")
        with PoePeer(poe_url(broker)) as other:
            other.send(bytes.fromhex("00000016 0002 0000000b 71756f74682e72756c6573 00000001 78"))
            assert other.is_closed()
        broker.wait_for("denied")
        assert "quoth.rules" not in client.topics()
