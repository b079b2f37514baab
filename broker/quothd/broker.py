"""A broker that runs in any program.

    with Broker("/var/lib/quoth") as broker:
        with quoth.connect(broker) as client:
            client.publish("greetings", b"hello")

A client needs its `url` and its `context`.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import zmq

from quothd.access.audit import HANDSHAKE, OK, RELOAD, AuditTrail
from quothd.access.clients_file import ClientTable
from quothd.announcing.sockets import IO_THREADS
from quothd.config.check import require_private
from quothd.config.config import KEYS, Config
from quothd.config.sources import load
from quothd.connections.limits import fitted
from quothd.connections.memory import MemoryWatch
from quothd.datadir import catalog
from quothd.frontend.endpoints import open_sockets
from quothd.frontend.loop import LINGER_S, FrontEnd
from quothd.keys.authentication import Authentication
from quothd.keys.broker_keys import POE_CLIENT, RULES_CLIENT, read_clients, read_keys
from quothd.service.audit_log import AuditLog
from quothd.service.log_events import note
from quothd.threads.executor import Executor
from quothd.threads.outbox import Outbox
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.filesystem import FileSystem, PosixFileSystem
from quothlog.storage.write_failure import WITHHELD, storage_failed
from quothwire.errors import QuothError, error
from quothwire.service.sd_notify import Notifier


class Broker:
    """A broker on a data directory, with its threads in this process.

    Use it as a context manager, or call `start` and `stop`, from any thread but not in a forked child.
    Without `host` or `listen` only this process can reach it, by `url` and `context`. It logs to the logger
    "quothd".

    directory: created if it does not exist. settings: the other keys of `Config`. config: replaces directory
    and settings. notifier: reports to the service manager of a daemon. filesystem, clock: for tests.
    owns_process: the program does nothing else, so that `memory_max` bounds the memory of the process.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        config: Config | None = None,
        notifier: Notifier | None = None,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        owns_process: bool = False,
        **settings: Any,
    ) -> None:
        given = config or load({"host": "", "port": 0, **settings, "dir": directory}, environment={})
        self.config = fitted(given)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(IO_THREADS)
        self._notifier = notifier or Notifier()
        self._filesystem = filesystem or PosixFileSystem()
        self._clock = clock or SystemClock()
        self._owns_process = owns_process
        self._inproc = f"inproc://quoth-{os.urandom(8).hex()}"
        self._front_end: FrontEnd | None = None
        self._ended: FrontEnd | None = None
        self._lock: DirectoryLock | None = None
        self._authentication: Authentication | None = None
        self._audit: AuditTrail | None = None
        self._audit_log: AuditLog | None = None
        self._urls: tuple[str, ...] = ()
        self._context_ended = False

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs for clients, those for other processes first; empty if the broker does not run."""
        return self._urls

    @property
    def url(self) -> str:
        """The first of `urls`; if clients need keys, the last one, by which this process needs none.

        A URL with inproc requires `context`. Raises `Disconnected` ``closed``.
        """
        if not self._urls:
            raise error("closed", "the broker is not running", "start it, or use it as a context manager")
        return self._urls[-1 if self.config.server_key else 0]

    @property
    def poe_url(self) -> str:
        """The address for clients of Poe, with the port that was chosen; empty if there is none."""
        front_end = self._front_end
        return "" if front_end is None else front_end.bound.poe

    @property
    def known_clients(self) -> int | None:
        """The number of clients that the broker knows; None if clients need no keys."""
        authentication = self._authentication
        if authentication is None or authentication.clients is None:
            return None
        return len(authentication.clients.by_name) - len(authentication.own_keys)

    @property
    def failure(self) -> BaseException | None:
        """The reason why the broker ended by itself or could not finish its work, else None."""
        front_end = self._front_end or self._ended
        return front_end.failure if front_end is not None else None

    @property
    def unsynced(self) -> QuothError | None:
        """Names the topics that a stop left unsynced: ``timed_out`` or ``storage_failed``, else None."""
        return self._ended.unsynced if self._ended is not None else None

    def start(self) -> Self:
        """Lock the directory, list its topics, bind, and serve.

        First it tries what a publish needs: it reads the boot id, and writes, syncs, renames and removes a
        file below `topics`. Raises `Conflict` ``locked``, `RequestError` ``bad_setting``, `BrokerFailure`
        ``unusable_system`` or ``storage_failed``, or OSError, and leaves no thread, lock or socket then.
        """
        if self._front_end is not None:
            raise error("locked", f"{self.config.dir} is served by this very broker")
        if self._context_ended:
            self.context, self._context_ended = zmq.Context(IO_THREADS), False
        try:
            self._clock.boot_id()
            found = self._take_directory()
            keys = read_keys(self.config)
            self._audit = self._begin_audit() if keys is not None else None
            own = (RULES_CLIENT, POE_CLIENT) if self.config.poe_listen else (RULES_CLIENT,)
            self._authentication = Authentication(self.context, keys, self._clock.monotonic, self._deny, own)
            self._authentication.start()
            self._front_end = self._make_front_end(found, self._authentication)
            self._front_end.start()
            self._urls = self._front_end.bound.urls
        except BaseException:
            self._release()
            raise
        return self

    def _make_front_end(self, found: catalog.Catalog, authentication: Authentication) -> FrontEnd:
        """Bind the sockets, and make a front end of them, which is to close them."""
        ports = self._notifier, self._filesystem, self._clock, os.getpid()
        memory = MemoryWatch(self.config.memory_max * self._owns_process, self._clock.monotonic)
        ways = authentication, self._audit, memory
        with ExitStack() as undo:
            sockets = open_sockets(self.context, self.config, self._inproc, authentication)
            undo.callback(sockets.close)
            outbox: Outbox[Executor] = Outbox()
            undo.callback(outbox.close)
            front_end = FrontEnd(sockets, outbox, self.config, found, *ports, *ways)
            undo.pop_all()
        return front_end

    def _take_directory(self) -> catalog.Catalog:
        """Lock the directory, list its topics, try a write."""
        directory = self.config.dir
        try:
            self._filesystem.make_directory(directory)
            require_private(directory)
            self._lock = DirectoryLock(directory)
            found = catalog.scan(directory, self._filesystem)
            catalog.try_writing(directory, self._filesystem)
        except OSError as problem:
            if problem.errno in WITHHELD:
                raise storage_failed(problem, directory) from problem
            raise
        for name in found.unknown:
            note("stray_ignored", directory=directory / "topics", file=name)
        return found

    def _begin_audit(self) -> AuditTrail | None:
        """Return the audit of a broker with keys, None if it is switched off."""
        if not self.config.audit:
            return None
        self._audit_log = AuditLog(self.config.dir, self._clock)
        self._audit_log.start()
        return AuditTrail(self._audit_log.write, self._clock.now)

    def _deny(self, key: str, address: str) -> None:
        """Record a handshake that was denied. Called by the authenticator's thread."""
        if self._audit is not None:
            self._audit.note(HANDSHAKE, "auth_failed", key=key, address=address)

    def reload(self, config: Config, clients: ClientTable | None = None) -> tuple[str, ...]:
        """Apply another configuration, except for the keys that need a restart; returns those.

        Existing topics keep their settings. The clients file is read again, too: clients that are in it no
        more lose their connections. clients: those that `check` has read there; None to read it. Raises
        `Disconnected` ``closed`` if the broker does not run, or `RequestError` ``bad_setting`` for a wrong
        clients file, which changes nothing.
        """
        if self._front_end is None:
            raise error("closed", "the broker is not running")
        config = fitted(config)
        differing = config.differing(self.config)
        fixed = tuple(name for name in differing if not KEYS[name].live)
        if bool(config.server_key) != bool(self.config.server_key) and "clients" in differing:
            fixed = (*fixed, "clients")
        config = replace(config, **{name: getattr(self.config, name) for name in fixed})
        if clients is None or "clients" in fixed:
            clients = read_clients(config)
        self._front_end.configure(config, clients)
        if self._audit is not None:
            self._audit.note(RELOAD, OK, detail=",".join(config.differing(self.config)))
        self.config = config
        return fixed

    def note_refused_reload(self, problem: QuothError) -> None:
        """Record in the audit log that a configuration was refused, for a daemon that has read it."""
        if self._audit is not None:
            self._audit.note(RELOAD, problem.code, detail=problem.text)

    def stop(self) -> None:
        """Answer the requests in progress, sync, write checkpoints, unlock. A second call does nothing.

        Raises `Disconnected` ``timed_out`` if topics are still busy after `stop_timeout`. Their threads go
        on, so the directory stays locked until the process ends.
        """
        front_end = self._front_end
        if front_end is not None:
            front_end.stop()
        self._release()
        if front_end is not None and front_end.overrun is not None:
            raise front_end.overrun

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the broker ends by itself."""
        if self._front_end is not None:
            self._front_end.join(timeout)

    def _release(self) -> None:
        """Release all resources, except for those that a remaining thread may still use."""
        front_end = self._front_end
        lock, self._lock = self._lock, None
        audit_log, self._audit_log = self._audit_log, None
        self._urls = ()
        if front_end is not None:
            self._ended, self._front_end = front_end, None
            front_end.join()
            front_end.close()
        if self._authentication is not None:
            self._authentication.stop()
        if audit_log is not None:
            audit_log.stop()
        try:
            self._end_context()
        finally:
            if lock is not None and front_end is not None and front_end.overrun is not None:
                _held_until_exit.append(lock)
            elif lock is not None:
                lock.release()

    def _end_context(self) -> None:
        """End the context, which waits for the last replies and for the sockets of clients in this process.

        A thread ends it, since those sockets may stay open; only the replies get their time here.
        """
        if not self._context_ended:
            self._context_ended = True
            terminator = threading.Thread(target=self.context.term, name="quoth-context", daemon=True)
            terminator.start()
            terminator.join(2 * LINGER_S)


_held_until_exit: list[DirectoryLock] = []
"""The locks of directories to which threads of this process may still write."""
