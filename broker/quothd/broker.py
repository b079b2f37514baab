"""A broker, inside any program.

    with Broker("/var/lib/quoth") as broker:
        with quoth.connect(broker) as client:
            client.publish("greetings", b"hello")

It offers `url` and `context`, which is all that a client needs.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq

from quothd import catalog
from quothd.config import Config, load
from quothd.frontend import LINGER_S, FrontEnd
from quothlog.dirlock import DirectoryLock
from quothlog.filesystem import PosixFileSystem
from quothwire.errors import error


class Broker:
    """A broker on a data directory, with its threads in this process.

    directory: created if it does not exist. Every other key of `Config` may be given by name. Without
    `host` or `listen` it is reached from this process only, by `url` and `context`. Use it as a context
    manager, or call `start` and `stop`. Any thread may; a forked child may not.
    """

    def __init__(self, directory: str | Path, *, config: Config | None = None, **settings: Any) -> None:
        self.config = config or load({"host": "", "port": 0, **settings, "dir": directory}, environment={})
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.strays: list[str] = []
        self._inproc = f"inproc://quoth-{secrets.token_hex(8)}"
        self._front_end: FrontEnd | None = None
        self._lock: DirectoryLock | None = None
        self._urls: tuple[str, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """Every URL that a client may use, the one for other processes first."""
        return self._urls

    @property
    def url(self) -> str:
        """The first of `urls`; one with inproc needs `context`."""
        if not self._urls:
            raise error("closed", "the broker is not running", "start it, or use it as a context manager")
        return self._urls[0]

    @property
    def failure(self) -> BaseException | None:
        """Why the broker ended by itself, None while all is well."""
        return self._front_end.failure if self._front_end is not None else None

    def start(self) -> Self:
        """Lock the directory, list its topics, bind, and serve.

        Raises `Conflict` ``locked``, `RequestError` ``bad_setting``, or OSError; nothing stays behind then.
        """
        if self._front_end is not None:
            raise error("locked", f"{self.config.dir} is served by this very broker")
        if self.context.closed:
            self.context = zmq.Context()
        try:
            PosixFileSystem().make_directory(self.config.dir)
            self._lock = DirectoryLock(self.config.dir)
            found = catalog.scan(self.config.dir)
            self.strays = found.strays
            self._front_end = FrontEnd(self.context, self.config, found, self._inproc)
            self._urls = self._front_end.start().urls
        except BaseException:
            self._release()
            raise
        return self

    def stop(self) -> None:
        """Answer what is in work, sync, write checkpoints, unlock. Does nothing the second time."""
        if self._front_end is not None:
            self._front_end.stop()
        self._release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the broker ends by itself."""
        if self._front_end is not None:
            self._front_end.join(timeout)

    def _release(self) -> None:
        front_end, self._front_end = self._front_end, None
        if front_end is not None:
            front_end.join()
            front_end.close()
        # It ends once the last replies are out and clients of this process have closed their sockets;
        # the latter is their affair, so nobody waits for it much longer than the replies take.
        terminator = threading.Thread(target=self.context.term, name="quoth-context", daemon=True)
        terminator.start()
        terminator.join(2 * LINGER_S)
        self._urls = ()
        if self._lock is not None:
            self._lock.release()
