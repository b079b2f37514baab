"""The broker of a running job: waits for it during outages, and reports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from quoth.client import Client
from quoth.spark.connections import TIMEOUT_S
from quothwire.errors import Disconnected, QuothError

LOOK_S = 5.0
"""Seconds between two pings of the broker, and the time limit of each."""


@contextmanager
def awaited(url: str, timeout: float, tell: Callable[[str], None], look: float = LOOK_S) -> Iterator[Client]:
    """Connect a client that waits for its broker as long as tasks do, or longer if timeout says so.

    tell: called from another thread when the broker stops answering, and when it answers again.
    """
    limit, over = max(timeout, TIMEOUT_S), Event()
    with Client(url, None, limit) as client, Client(url, None, look) as asking:
        watcher = Thread(target=_watch, args=(asking, limit, tell, over), name="broker", daemon=True)
        watcher.start()
        try:
            yield client
        finally:
            over.set()
            asking.close()
            watcher.join()


def _watch(asking: Client, limit: float, tell: Callable[[str], None], over: Event) -> None:
    there = True
    while not over.wait(asking.timeout):
        try:
            asking.ping()
        except Disconnected as problem:
            if problem.code == "closed":  # the job ended while the broker was asked
                return
            if there:
                tell(f"{asking.url} does not answer; it is waited for, {limit:g} s at least")
            there = False
        except QuothError:
            return
        else:
            if not there:
                tell(f"{asking.url} answers again")
            there = True
