"""A broker, inside any program.

    with Broker("/var/lib/quoth") as broker:
        with quoth.connect(broker) as client:
            client.publish("greetings", b"hello")

It offers `url` and `context`, which is all that a client needs.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq

from quothd.config.config import KEYS, Config
from quothd.config.sources import load
from quothd.datadir import catalog
from quothd.frontend.loop import LINGER_S, FrontEnd
from quothd.service.log_events import note
from quothd.service.sd_notify import Notifier
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.filesystem import FileSystem, PosixFileSystem
from quothlog.storage.write_failure import WITHHELD, storage_failed
from quothwire.errors import QuothError, error


class Broker:
    """A broker on a data directory, with its threads in this process.

    directory: created if it does not exist. Every other key of `Config` may be given by name. Without
    `host` or `listen` it is reached from this process only, by `url` and `context`. Use it as a context
    manager, or call `start` and `stop`. Any thread may; a forked child may not. notifier: whom to tell that
    the front end is alive, for a daemon; what the broker logs is for whoever configures logging.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        config: Config | None = None,
        notifier: Notifier | None = None,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.config = config or load({"host": "", "port": 0, **settings, "dir": directory}, environment={})
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._notifier = notifier or Notifier()
        self._filesystem = filesystem or PosixFileSystem()
        self._clock = clock or SystemClock()
        self._inproc = f"inproc://quoth-{os.urandom(8).hex()}"
        self._front_end: FrontEnd | None = None
        self._ended: FrontEnd | None = None
        self._lock: DirectoryLock | None = None
        self._urls: tuple[str, ...] = ()
        self._context_ended = False

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
        """Why the broker ended by itself, or could not finish what it had to; None while all is well."""
        front_end = self._front_end or self._ended
        return front_end.failure if front_end is not None else None

    @property
    def unsynced(self) -> QuothError | None:
        """Of which topics the disk may not hold all after a stop: ``timed_out``, ``storage_failed``, None."""
        return self._ended.unsynced if self._ended is not None else None

    def start(self) -> Self:
        """Lock the directory, list its topics, bind, and serve.

        What a publish will need is tried out before: the boot id is read, and a file is written, synced,
        renamed and removed below `topics`. Raises `Conflict` ``locked``, `RequestError` ``bad_setting``,
        `BrokerFailure` ``unusable_system`` or ``storage_failed``, or OSError; nothing stays behind then.
        """
        if self._front_end is not None:
            raise error("locked", f"{self.config.dir} is served by this very broker")
        if self._context_ended:
            self.context, self._context_ended = zmq.Context(), False
        try:
            self._clock.boot_id()
            found = self._take_directory()
            ports = self._notifier, self._filesystem, self._clock, os.getpid()
            self._front_end = FrontEnd(self.context, self.config, found, self._inproc, *ports)
            self._urls = self._front_end.start().urls
        except BaseException:
            self._release()
            raise
        return self

    def _take_directory(self) -> catalog.Catalog:
        """Lock the directory, look whether it can be written to, list its topics."""
        directory = self.config.dir
        try:
            self._filesystem.make_directory(directory)
            self._lock = DirectoryLock(directory)
            found = catalog.scan(directory, self._filesystem)
            catalog.try_writing(directory, self._filesystem)
        except OSError as problem:
            if problem.errno in WITHHELD:
                raise storage_failed(problem, directory) from problem
            raise
        for name in found.strays:
            note("stray_ignored", directory=directory / "topics", file=name)
        return found

    def reload(self, config: Config) -> tuple[str, ...]:
        """Go by another configuration from now on, but for the keys that need a restart; returns those.

        Topics that exist keep their settings. Raises `Disconnected` ``closed`` if the broker does not run.
        """
        if self._front_end is None:
            raise error("closed", "the broker is not running")
        fixed = tuple(name for name in config.differing(self.config) if not KEYS[name].live)
        config = replace(config, **{name: getattr(self.config, name) for name in fixed})
        self._front_end.configure(config)
        self.config = config
        return fixed

    def stop(self) -> None:
        """Answer what is in work, sync, write checkpoints, unlock. Does nothing the second time.

        Raises `Disconnected` ``timed_out`` if topics are still at work after `stop_timeout`: their threads go
        on, and so the directory stays locked until the process ends.
        """
        front_end = self._front_end
        if front_end is not None:
            front_end.stop()
        self._release()
        if front_end is not None and front_end.overrun is not None:
            raise front_end.overrun

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
        """Give back what was taken, but nothing that a thread which goes on may still use."""
        front_end = self._front_end
        lock, self._lock = self._lock, None
        self._urls = ()
        if front_end is not None:
            self._ended, self._front_end = front_end, None
            front_end.join()
            front_end.close()
        try:
            self._end_context()
        finally:
            if lock is not None and front_end is not None and front_end.overrun is not None:
                _held_to_the_end.append(lock)
            elif lock is not None:
                lock.release()

    def _end_context(self) -> None:
        """It ends once the last replies are out and clients of this process have closed their sockets; the
        latter is their affair, so nobody waits for it much longer than the replies take."""
        if not self._context_ended:
            self._context_ended = True
            terminator = threading.Thread(target=self.context.term, name="quoth-context", daemon=True)
            terminator.start()
            terminator.join(2 * LINGER_S)


_held_to_the_end: list[DirectoryLock] = []
"""The locks of directories that threads of this process may write to until it ends."""
