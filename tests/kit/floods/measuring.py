"""Measures a broker under attack: its memory every 10 ms, and what a good client waits for its replies."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import NamedTuple

from kit.floods.attackers import program
from kit.floods.good_client import INTERVAL_S

PERIOD_S = 0.01
_STUCK_S = 0.1
"""A client whose last answer came so long before the end of an interval waits for one."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Interval(NamedTuple):
    """A time from `began` to `ended`, by the monotonic clock, which all processes share."""

    began: float
    ended: float

    def has(self, moment: float) -> bool:
        """Return whether a time lies in it."""
        return self.began <= moment < self.ended


# -- memory -------------------------------------------------------------------------------------------------


class MemoryWatch:
    """Samples the resident memory of a process. Made by `memory_of`.

    is_killed: the process had more than it may have for the sake of the machine, and was killed.
    """

    def __init__(self, pid: int, kill_above: int) -> None:
        self._pid = pid
        self._kill_above = kill_above
        self._samples: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.is_killed = False

    def peak(self, during: Interval) -> tuple[int, float]:
        """Return the most bytes in an interval, and the seconds from its beginning to then."""
        size, at = max((size, -at) for at, size in [*self._samples] if during.has(at))
        return size, -at - during.began

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        with open(f"/proc/{self._pid}/statm", "rb", buffering=0) as source, suppress(OSError, IndexError):
            while not self._over.wait(PERIOD_S):
                size = int(os.pread(source.fileno(), 256, 0).split()[1]) * _PAGE
                self._samples.append((time.monotonic(), size))
                if size > self._kill_above and not self.is_killed:
                    self.is_killed = True
                    os.kill(self._pid, signal.SIGKILL)


@contextmanager
def memory_of(pid: int, kill_above: int) -> Iterator[MemoryWatch]:
    """Sample the memory of a process; kill it if it has more bytes than the machine should have to give."""
    watch = MemoryWatch(pid, kill_above)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


# -- latencies ----------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """A pair of requests of a good client. published, fetched: seconds that each took."""

    began: float
    published: float
    fetched: float
    pointer: int


class Latency(NamedTuple):
    """Percentiles of a request of a good client, in seconds."""

    p50: float
    p99: float
    samples: int


class GoodClient:
    """A good client in a process of its own, which goes on all the time. Made by `good_client`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._samples: list[Sample] = []
        self._thread = threading.Thread(target=self._collect, daemon=True)

    @property
    def acknowledged(self) -> list[int]:
        """Return the pointers of the records that the broker has acknowledged."""
        return [one.pointer for one in [*self._samples]]

    def latency(self, during: Interval) -> Latency:
        """Return the latency of the requests that began in an interval, also of one without an answer yet.

        One that takes longer than the client's interval stands for those that would have begun behind it.
        """
        samples = [*self._samples]
        took = [each for one in samples if during.has(one.began) for each in (one.published, one.fetched)]
        last = samples[-1].began + samples[-1].published + samples[-1].fetched
        if last < during.ended - _STUCK_S:
            took.append(time.monotonic() - max(last, during.began))
        found = sorted(each for one in took for each in _with_missed(one)) or [inf]
        return Latency(found[len(found) // 2], found[len(found) * 99 // 100], len(found))

    def start(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self._thread.start()

    def end(self) -> None:
        """Let it finish its request, unless that has no answer, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join()

    def kill(self) -> None:
        """End it in the middle of a request."""
        self._process.kill()
        self._thread.join()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            began, published, fetched, pointer = line.split()
            self._samples.append(Sample(float(began), float(published), float(fetched), int(pointer)))


def _with_missed(took: float) -> list[float]:
    """Return a latency and those of the requests that a client would have sent meanwhile."""
    return [took - missed * INTERVAL_S for missed in range(max(1, int(took / INTERVAL_S)))]


@contextmanager
def good_client(url: str, cores: set[int]) -> Iterator[GoodClient]:
    """Let a good client work on these cores. The block may end it before the broker ends."""
    on = ",".join(map(str, sorted(cores)))
    with program("kit.floods.good_client", url, on) as process:
        client = GoodClient(process)
        client.start()
        try:
            yield client
            client.end()
        finally:
            client.kill()
