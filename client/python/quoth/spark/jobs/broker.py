"""The broker of a job that has begun: it is waited for, and who waits says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from quoth.client import Client
from quoth.spark.connections import TIMEOUT_S
from quothwire.errors import Disconnected, QuothError

LOOK_S = 5.0
"""How often the broker is asked whether it is there, and how long it may take to say so."""


@contextmanager
def awaited(url: str, timeout: float, tell: Callable[[str], None]) -> Iterator[Client]:
    """A client that waits for its broker as long as tasks do, or longer if timeout says so.

    tell: gets a line when the broker does not answer any more, from another thread, and when it does again.
    """
    patience, over = max(timeout, TIMEOUT_S), Event()
    with Client(url, None, patience) as client, Client(url, None, LOOK_S) as asking:
        watcher = Thread(target=_watch, args=(asking, patience, tell, over), name="broker", daemon=True)
        watcher.start()
        try:
            yield client
        finally:
            over.set()
            asking.close()
            watcher.join()


def _watch(asking: Client, patience: float, tell: Callable[[str], None], over: Event) -> None:
    there = True
    while not over.wait(LOOK_S):
        try:
            asking.ping()
        except Disconnected as problem:
            if problem.code == "closed":  # the job ended while the broker was asked
                return
            if there:
                tell(f"{asking.url} does not answer; it is waited for, {patience:g} s at least")
            there = False
        except QuothError:
            return
        else:
            if not there:
                tell(f"{asking.url} answers again")
            there = True
