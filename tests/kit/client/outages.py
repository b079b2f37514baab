"""A broker that goes away for a while, all kinds of clients that use it at the same time, and when each of
them is served again: seconds from the broker's return.

`python -m kit.client.outages KIND SECONDS DIRECTORY [PROGRAM]` prints these as an object of JSON;
with the folder of the examples in C, they are the only clients.

    killed     it is killed and started again on the same port: until then connections are refused
    frozen     it is stopped where it stands, and goes on: the operating system takes connections meanwhile
    cut        the network between it and its clients swallows every packet; see `kit.machine.networks`
    gone       it is killed, and then all packets are swallowed, as if its host were off
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import quoth
from kit.broker.brokers import BrokerProcess
from kit.client.loops import TWINS
from kit.deadlines import eventually, pause
from kit.machine.commands import Command, Running
from kit.machine.networks import OF_ITS_OWN, Network
from quoth import Client, Cursor, Message, QuothError
from quoth.forward.forwarder import Forwarder
from quoth.forward.source import ForwarderSource, StoredSource
from quothcli.commands.records.forwarding import log_source
from quothlog import Log

OF_A_NETWORK = ("cut", "gone")
FED = ("fed.one", "fed.two")
"""Topics that get records as long as the broker is there, each of which says when it was published."""
EVERY_S = 0.05
"""How often each of the clients does something, and the topics are fed."""
REFUSED_S = 0.5
"""How long a broker that is gone refuses connections before its host does not react any more: clients have
noticed its end by then, and try to connect."""
SERVED_MAX_S = 30.0
"""Far beyond what is asked for."""


class Served:
    """The times at which clients were served. Any thread may call it."""

    def __init__(self) -> None:
        self.over = False
        self.problems: list[BaseException] = []
        self._since = 0.0
        self._waiting: set[str] = set()
        self._times: dict[str, float] = {}
        self._lock = threading.Lock()

    def expect(self, names: set[str]) -> None:
        """From now on wait for each of these to be served with something of now."""
        with self._lock:
            self._since, self._waiting, self._times = time.monotonic(), set(names), {}

    def served(self, name: str, of: float) -> None:
        """This one was, with something of that time."""
        with self._lock:
            if of >= self._since and name in self._waiting:
                self._waiting.discard(name)
                self._times[name] = time.monotonic() - self._since

    @property
    def waiting(self) -> set[str]:
        with self._lock:
            return set(self._waiting)

    @property
    def times(self) -> dict[str, float]:
        """The seconds that each client has waited, the longest first."""
        with self._lock:
            return dict(sorted(self._times.items(), key=lambda item: -item[1]))


# -- what clients do -----------------------------------------------------------------------------------------

Use = Callable[[Client, Served, str, Path], None]


def _again_and_again(call: Callable[[Client, str], object]) -> Use:
    """Make a call every `EVERY_S` seconds; an answer is of the time when it comes."""

    def use(client: Client, served: Served, name: str, _: Path) -> None:
        while not served.over:
            with suppress(QuothError):
                call(client, name)
                served.served(name, time.monotonic())
            pause(EVERY_S)

    return use


def _stage(client: Client, name: str) -> None:
    transaction = client.transaction(name, "outages", time.monotonic_ns())
    with transaction.part(0) as writer:
        writer.write([b"value"] * 3)
        transaction.publish([writer.finish()])


def _produce(client: Client, served: Served, name: str, _: Path) -> None:
    producer = client.producer(name, on_full="raise")
    stored = 0
    while not served.over:
        with suppress(QuothError):
            producer.send(b"value")
        if producer.acknowledged > stored:
            stored = producer.acknowledged
            served.served(name, time.monotonic())
        pause(EVERY_S)
    with suppress(QuothError):
        producer.close()


def _follow(served: Served, name: str, messages: Iterable[Message], cursor: Cursor | None = None) -> None:
    """Take records of a topic that is fed; each is of the time in it."""
    for message in messages:
        served.served(name, float(message.value))
        if cursor is not None:
            cursor.advance(message)
            cursor.save()
        if served.over:
            return


def _tail(client: Client, served: Served, name: str, _: Path) -> None:
    _follow(served, name, client.tail(FED[0]))


def _tail_many(client: Client, served: Served, name: str, _: Path) -> None:
    with client.tail_many(FED) as reading:
        _follow(served, name, reading)


def _merge(client: Client, served: Served, name: str, _: Path) -> None:
    with client.tail_many("fed.*", ordered=True) as reading:
        _follow(served, name, reading)


def _consume(client: Client, served: Served, name: str, directory: Path) -> None:
    with Cursor(directory / f"{name}.cursor") as cursor, client.tail_many(FED, cursor=cursor) as reading:
        _follow(served, name, reading, cursor)


USES: dict[str, Use] = {
    "read": _again_and_again(lambda client, _: client.read(FED[0], since="now", timeout=5.0)),
    "batches": _again_and_again(lambda client, _: list(client.batches(FED[0]))),
    "stored": _again_and_again(lambda client, _: list(client.stored(FED[0]))),
    "status": _again_and_again(lambda client, _: client.status()),
    "publish": _again_and_again(lambda client, topic: client.publish(topic, b"value")),
    "transaction": _again_and_again(_stage),
    "producer": _produce,
    "tail": _tail,
    "tail_many": _tail_many,
    "merge": _merge,
    "cursor": _consume,
}


def _forward(client: Client, source: ForwarderSource, served: Served, name: str) -> None:
    """Forward until the test is over."""

    def forwarded(*_: object) -> None:
        served.served(name, time.monotonic())
        if served.over:
            raise _Over

    events = SimpleNamespace(
        forwarded=forwarded, waits=lambda *_: None, lost=lambda *_: None, began_anew=lambda *_: None
    )
    with suppress(_Over):
        Forwarder(source, client, name, progress=None, save=lambda _: None, events=events).run()


class _Over(Exception):
    """The test is over."""


# -- the broker and its outage -------------------------------------------------------------------------------


@contextmanager
def _outage(kind: str, broker: BrokerProcess, network: Network | None) -> Iterator[None]:
    """While it is entered, the broker is away."""
    match kind:
        case "killed":
            broker.kill()
            yield
            broker.restart()
        case "frozen":
            broker.freeze()
            yield
            os.kill(broker.pid, signal.SIGCONT)
        case "cut":
            assert network is not None
            network.cut()
            yield
            network.mend()
        case _:
            assert network is not None
            broker.kill()
            pause(REFUSED_S)
            network.cut()
            broker.restart()
            yield
            network.mend()


class Trial:
    """A broker and its clients, in a directory; they are served from the beginning, or it hangs."""

    def __init__(
        self, directory: Path, stack: ExitStack, network: Network | None, program: str | None = None
    ) -> None:
        """program: the folder of the examples in C; then they are the only clients."""
        self.served = Served()
        self._stack = stack
        self._directory = directory
        self._names: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._running: list[Running] = []
        self._feeds: list[Running] = []
        """Processes whose input is fed, too."""
        self._written: list[str] = []
        """Topics that processes write to; at the end they are fed, too, so that their readers end."""
        self._beside = f"ipc://{directory}/beside"
        """A way to the broker that no outage takes: who feeds is not tried."""
        at: dict[str, Any] = {"host": network.address, "insecure": True} if network is not None else {}
        self.broker = BrokerProcess(
            directory / "data", prefix=network.prefix if network else (), listen=self._beside, **at
        )
        stack.callback(self.broker.close)
        self.broker.start()
        self._log = stack.enter_context(Log.open(directory / "log"))
        with quoth.connect(self.broker.url) as client:
            for topic in FED:
                client.create_topic(topic)
        if program is None:
            self._begin_clients()
            self._begin_commands()
        else:
            self._begin_program(program)
        stack.callback(self._end)

    def go_through(self, outage: Any, seconds: float) -> dict[str, float]:
        """Let the broker be away for so many seconds; returns how long each client has waited for it then."""
        self._feed_until_served()
        with outage:
            pause(seconds)
        self._feed_until_served()
        return self.served.times

    def _begin_clients(self) -> None:
        for kind, connect in TWINS.items():
            client = self._stack.enter_context(connect(self.broker.url))
            for what, use in USES.items():
                name = f"{kind}.{what}"
                self._start(name, use, client, self.served, name, self._directory)
        client = self._stack.enter_context(quoth.connect(self.broker.url))
        for name, source in {
            "forward.log": log_source(self._directory / "log"),
            "forward.topic": StoredSource(client, FED[0]),
        }.items():
            self._start(name, _forward, client, source, self.served, name)

    def _begin_commands(self) -> None:
        command = Command(self.broker.url, self._running)
        self._watch_output("command.tail", command.start("tail", *FED, "--format", "raw"))
        typed = "pub", "command.pub", "--timeout", "1h"
        self._feeds.append(command.start(*typed, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        self._watch_topic("command.pub", self._feeds[-1])
        forward = "forward", str(self._directory / "log"), self.broker.url, "--topic", "command.forward"
        self._watch_topic("command.forward", command.start(*forward, stdout=subprocess.DEVNULL))

    def _begin_program(self, program: str) -> None:
        def start(name: str, *arguments: str, stdin: int, stdout: int) -> Running:
            process = subprocess.Popen(
                [Path(program, name), *arguments], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
            )
            self._running.append(Running(process))
            return self._running[-1]

        url = self.broker.url
        timeout = "-t", "3600"
        tail = start("quoth-tail", *timeout, url, FED[0], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._watch_output("c.tail", tail)
        typed = "quoth-pub", *timeout, url, "c.publish"
        self._feeds.append(start(*typed, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        self._watch_topic("c.publish", self._feeds[-1])

    def _start(self, name: str, use: Callable[..., None], *arguments: Any) -> None:
        def run() -> None:
            try:
                use(*arguments)
            except BaseException as problem:
                self.served.problems.append(problem)

        self._names.add(name)
        self._threads.append(threading.Thread(target=run, name=name, daemon=True))
        self._threads[-1].start()

    def _watch_output(self, name: str, running: Running) -> None:
        """Read the lines of a process that follows the topics that are fed."""

        def watch() -> None:
            while line := running.line():
                self.served.served(name, float(line))
            running.end()

        self._start(name, watch)

    def _watch_topic(self, name: str, running: Running) -> None:
        """Read the topic that a process writes to, on the way that no outage takes."""

        def watch() -> None:
            with quoth.connect(self._beside) as client:
                _follow(self.served, name, client.tail(name))
            if (stdin := running.process.stdin) is not None:
                running.process.stdin = None
                with suppress(BrokenPipeError):
                    stdin.close()
            running.end()

        self._written.append(name)
        self._start(name, watch)

    def _feed_until_served(self) -> None:
        """Feed the topics until each client was served with something of the time since this was called."""
        self.served.expect(self._names)
        self._feed_until(lambda: not self.served.waiting)

    def _feed_until(self, enough: Callable[[], bool]) -> None:
        with quoth.connect(self._beside) as client:

            def fed() -> bool:
                now = b"%f" % time.monotonic()
                for topic in (*FED, *self._written) if self.served.over else FED:
                    client.publish(topic, now)
                self._log.append(now)
                for one in self._feeds:
                    _write_line(one, now)
                pause(EVERY_S)
                return bool(self.served.problems) or enough()

            try:
                eventually(fed, "all are served", SERVED_MAX_S)
            except AssertionError as hangs:
                names = [one.name for one in self._threads if one.is_alive()]
                raise AssertionError(f"not served: {self.served.waiting}; not ended: {names}") from hangs
        if self.served.problems:
            raise self.served.problems[0]

    def _end(self) -> None:
        self.served.over = True
        for one in self._running:
            os.kill(one.process.pid, signal.SIGTERM)
        self._feed_until(lambda: not any(thread.is_alive() for thread in self._threads))


def _write_line(running: Running, line: bytes) -> None:
    """Write a line to the input of a process, unless that is closed."""
    if (stdin := running.process.stdin) is not None:
        with suppress(BrokenPipeError, ValueError):
            stdin.write(line + b"\n")
            stdin.flush()


def figures(kind: str, seconds: float, directory: Path, program: str | None = None) -> dict[str, float]:
    """Seconds from the broker's return until each of its clients was served again, the longest first."""
    with ExitStack() as stack:
        network = stack.enter_context(Network()) if kind in OF_A_NETWORK else None
        trial = Trial(directory, stack, network, program)
        return trial.go_through(_outage(kind, trial.broker, network), seconds)


# -- outages as processes, several kinds at the same time ----------------------------------------------------

Figures = dict[str, dict[str, float]]
"""Seconds from the broker's return until a client was served, by the kind of the outage and the client."""


def served_after(seconds: Mapping[str, float], directory: Path, *program: Path) -> Figures:
    """Run an outage of each kind for so many seconds.

    program: the folder of the examples in C, which then are the only clients.
    """
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    trials: dict[str, subprocess.Popen[bytes]] = {}
    for kind, lasting in seconds.items():
        (directory / kind).mkdir()
        own = OF_ITS_OWN if kind in OF_A_NETWORK else ()
        typed = kind, str(lasting), str(directory / kind), *map(str, program)
        trials[kind] = subprocess.Popen(
            [*own, sys.executable, "-W", "error", "-m", "kit.client.outages", *typed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
    found: Figures = {}
    for kind, trial in trials.items():
        out, _ = trial.communicate(timeout=seconds[kind] + 120)
        assert trial.returncode == 0
        found[kind] = json.loads(out)
        print(kind, {name: round(waited, 3) for name, waited in found[kind].items()})
    return found


def late(measure: Callable[[Path], Figures], most: float, directory: Path, tries: int = 3) -> Figures:
    """Return the figures above so many seconds: of clients that are late in each of several measurements.

    The machine may stand still during one of them. measure: called with a new folder below `directory`.
    """
    slow: Figures | None = None
    for number in range(tries):
        (folder := directory / str(number)).mkdir()
        slow = _above(most, measure(folder), slow)
        if not slow:
            break
    assert slow is not None
    return slow


def _above(most: float, found: Figures, among: Figures | None) -> Figures:
    """Return the figures above so many seconds, those of some clients alone if there are any."""
    slow = {
        kind: {
            name: s
            for name, s in times.items()
            if s > most and (among is None or name in among.get(kind, {}))
        }
        for kind, times in found.items()
    }
    return {kind: times for kind, times in slow.items() if times}


if __name__ == "__main__":
    print(json.dumps(figures(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])))
