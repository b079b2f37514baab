"""The life of a device: its processes, what happens to them, and what has arrived in the end."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from threading import Event

from audit import Reading, Verdict, audit
from services import Failure, Service, free_port

import quoth

HERE = Path(__file__).parent
TOPIC = "readings"
OUTAGE_S_MAX, PARTS = 5.0, 20
"""No outage is longer than this, nor than one part of so many of the whole time."""
PAUSES = {"device": 1, "link": 1, "broker": 3}
"""The pauses between two incidents, which are longer at the broker."""
DROP_S = 30.0
"""Within this time there is a connection to drop, and it carries something."""
SHORT_S = 0.1
"""Seconds between two looks at something."""
PROGRESS_LINES = 20

CONFIRMED = re.compile(r"\d+ \d+")

Incident = Callable[[float], None]
"""Takes the length of the outage in seconds."""


class Simulation:
    """A device, a link and a broker, for so many seconds. seed: of what happens when.

    counts: incidents, by name. confirmed: by start of the device, up to which reading all are safe. dark_s:
    seconds in which the link carried nothing. disk_bytes, disk_bytes_max: on the device, now and at most.
    """

    def __init__(self, directory: Path, seed: int, seconds: float) -> None:
        names = [name for incidents in self._incidents().values() for name in incidents]
        self.counts = {**dict.fromkeys(names, 0), "connections cut": 0}
        self.confirmed: dict[int, int] = {}
        self.dark_s = 0.0
        self.disk_bytes = self.disk_bytes_max = 0
        self._seed, self._seconds = seed, seconds
        self._outage_s = min(OUTAGE_S_MAX, seconds / PARTS)
        self._over = Event()
        self._disk = directory / "device"
        self._disk.mkdir()
        port, link_port = free_port(), free_port()
        self._url = f"tcp://127.0.0.1:{port}"
        log = str(self._disk / TOPIC)
        broker = "-m", "quothcli.main", "serve", "--dir", str(directory / "broker"), "--port", str(port)
        link = str(HERE / "link.py"), str(link_port), str(port)
        sensor = str(HERE / "device.py"), log
        forwarder = "-m", "quothcli.main", "forward", log, f"tcp://127.0.0.1:{link_port}", "--trim"
        self._broker = Service(directory / "broker.log", *broker, ready="quothd: ready")
        self._link = Service(directory / "link.log", *link, ready="ready", on_line=self._count_cut)
        self._sensor = Service(directory / "sensor.log", *sensor, on_line=self._confirm)
        self._forwarder = Service(directory / "forwarder.log", *forwarder)
        self._services = self._broker, self._link, self._sensor, self._forwarder

    def run(self) -> Verdict:
        """Let it happen, then let everything arrive, and compare. Raises `Failure`."""
        try:
            for service in (self._broker, self._link, self._sensor):
                service.start()
                service.await_ready()
            self._forwarder.start()  # it needs the directory of the readings
            self._live()
            self._sensor.kill()
            self._forwarder.kill()
            self._forwarder.start("--once")
            self._forwarder.succeed()
            self._look()
            return audit(self.confirmed, self._stored())
        finally:
            for service in self._services:
                service.end()

    # -- as long as it lasts ----------------------------------------------------------------------------

    def _live(self) -> None:
        """Let incidents happen to the device, the link and the broker, all at the same time."""
        began = time.monotonic()
        shown = 0
        with ThreadPoolExecutor() as threads:
            try:
                left = {
                    threads.submit(self._suffer, name, began + self._seconds) for name in self._incidents()
                }
                while left:
                    ended, left = wait(left, SHORT_S, FIRST_EXCEPTION)
                    for one in ended:
                        one.result()
                    self._look()
                    elapsed = time.monotonic() - began
                    if elapsed * PROGRESS_LINES >= self._seconds * (shown + 1):
                        shown += 1
                        print(f"{elapsed:4.0f} s: {self.progress()}", file=sys.stderr, flush=True)
            finally:
                self._over.set()

    def _suffer(self, whose: str, until: float) -> None:
        """Let incidents of one kind happen in random order, each at least once."""
        rng = random.Random(f"{self._seed} {whose}")
        incidents = self._incidents()[whose]
        while not self._over.is_set():
            for name in rng.sample([*incidents], len(incidents)):
                self._over.wait(rng.uniform(0.2, 2.0) * self._outage_s * PAUSES[whose])
                if self._over.is_set() or (self.counts[name] and time.monotonic() > until):
                    return
                incidents[name](rng.uniform(0.2, 1.0) * self._outage_s)
                self.counts[name] += 1

    def _incidents(self) -> Mapping[str, Mapping[str, Incident]]:
        return {
            "device": {
                "reboots": self._reboot,
                "crashes of the sensor": lambda _: self._crash(self._sensor),
                "crashes of the forwarder": lambda _: self._crash(self._forwarder),
            },
            "link": {
                "drops": self._drop,
                "delays": lambda seconds: self._disturb(f"delay {seconds / 10:.3f}", seconds),
                "stalls": lambda seconds: self._disturb("stall", seconds),
                "losses of answers": lambda seconds: self._disturb("deaf", seconds),
                "dark times": self._go_dark,
                "deaths of the link": self._die,
            },
            "broker": {
                "kills of the broker": lambda seconds: self._restart_broker(seconds, self._broker.kill),
                "stops of the broker": lambda seconds: self._restart_broker(seconds, self._broker.terminate),
            },
        }

    # -- incidents --------------------------------------------------------------------------------------

    def _reboot(self, seconds: float) -> None:
        self._await_work()
        self._sensor.kill()
        self._forwarder.kill()
        self._over.wait(seconds / 4)
        self._forwarder.start()
        self._sensor.start()

    def _crash(self, service: Service) -> None:
        self._await_work()
        service.kill()
        service.start()

    def _await_work(self) -> None:
        """Wait until the sensor has confirmed readings since its start, and for a while until one is sent."""
        self._sensor.await_ready()
        before, until = self._forwarded(), time.monotonic() + self._outage_s
        while self._forwarded() == before and time.monotonic() < until:
            self._over.wait(SHORT_S)

    def _forwarded(self) -> int:
        """Return how many readings the broker has, as the forwarder knows: a file beside them says so."""
        marks = [json.loads(path.read_text()) for path in (self._disk / TOPIC).glob("*.forward")]
        return max((mark["ordinal"] for mark in marks if mark["ordinal"] > 0), default=0)

    def _drop(self, _seconds: float) -> None:
        before, until = self.counts["connections cut"], time.monotonic() + DROP_S
        while self.counts["connections cut"] == before and not self._over.is_set():
            if time.monotonic() > until:
                raise Failure("no connection has carried anything over the link")
            self._disturb("drop", SHORT_S)

    def _disturb(self, command: str, seconds: float) -> None:
        self._link.write(command)
        self._over.wait(seconds)
        self._link.write("calm")

    def _go_dark(self, seconds: float) -> None:
        self._disturb("dark", seconds)
        self.dark_s += seconds

    def _die(self, seconds: float) -> None:
        self._link.kill()
        self._over.wait(seconds)
        self._link.start()
        self._link.await_ready()
        self.dark_s += seconds

    def _restart_broker(self, seconds: float, end: Callable[[], None]) -> None:
        end()
        self._over.wait(seconds)
        self._broker.start()
        self._broker.await_ready()

    # -- what there is ----------------------------------------------------------------------------------

    def progress(self) -> str:
        """Return the amounts so far in a line."""
        safe = sum(self.confirmed.values())
        sent = self._forwarded()
        return f"{safe:,} readings confirmed, {sent:,} sent, {self.disk_bytes:,} bytes on the device"

    def totals(self) -> str:
        """Return them in a longer one."""
        incidents = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        amounts = f"{self.progress()}, at most {self.disk_bytes_max:,}"
        return f"{amounts}; {incidents}; {self.dark_s:.1f} s without a link"

    def _confirm(self, line: str) -> None:
        if CONFIRMED.fullmatch(line):
            start, number = map(int, line.split())
            self.confirmed[start] = number

    def _count_cut(self, line: str) -> None:
        self.counts["connections cut"] += line == "cut"

    def _look(self) -> None:
        """Measure the device's disk."""
        sizes = []
        for path in self._disk.rglob("*"):
            with suppress(FileNotFoundError):
                sizes.append(path.stat().st_size if path.is_file() else 0)
        self.disk_bytes = sum(sizes)
        self.disk_bytes_max = max(self.disk_bytes, self.disk_bytes_max)

    def _stored(self) -> Iterator[Reading]:
        """Yield what the topic holds."""
        with quoth.connect(self._url, wait=30) as client:
            for batch in client.batches(TOPIC):
                for reading in map(json.loads, batch.values):
                    yield reading["start"], reading["number"]
