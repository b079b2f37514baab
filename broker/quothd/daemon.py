"""The daemon: runs a broker as a process of its own, handles signals, reports its state.

SIGTERM and SIGINT stop it in order, a second one at once. SIGHUP reads the configuration again and applies it
only if all of it is right. The main thread only waits for signals; other threads serve.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from quothd.broker import Broker
from quothd.config.check import check
from quothd.config.config import Config
from quothd.connections.limits import fitted
from quothd.frontend.loop import LINGER_S
from quothd.service.allocator import keep_memory
from quothd.service.descriptors import raise_descriptors
from quothd.service.garbage import shorten_collections
from quothd.service.log_events import note
from quothlog.storage.clock import SystemClock
from quothwire.config.sources import Sourced
from quothwire.errors import QuothError
from quothwire.service.exit_status import ExitStatus
from quothwire.service.log_writer import STDERR, EventWriter, configure
from quothwire.service.sd_notify import Notifier
from quothwire.text.quantity import format_span

_STOP = frozenset((signal.SIGTERM, signal.SIGINT))
_ENDED = signal.SIGUSR1
"""Wakes the main thread when the broker has ended by itself. It stays blocked and never ends the process."""
_AWAITED = frozenset((*_STOP, _ENDED, signal.SIGHUP))
SWITCH_INTERVAL_S = 0.0005
"""A computing thread gives way to others ten times as often as by default, which shortens every latency."""
GRACE_S = 5.0
"""Time to stop beyond `stop_timeout`: for the threads, the last replies and the interpreter."""


class Daemon:
    """One run of the daemon, in the main thread.

    configuration: reads it at the start and on each SIGHUP; raises ``bad_setting``. file: its file, if any.
    """

    def __init__(
        self,
        configuration: Callable[[], Sourced[Config]],
        file: Path | None,
        writer: EventWriter,
        notifier: Notifier,
    ) -> None:
        self._configuration = configuration
        self._file = file
        self._writer = writer
        self._notifier = notifier
        self._has_terminal = os.isatty(STDERR)
        self._broker: Broker

    def run(self) -> int:
        """Serve until a signal or a failure; returns the exit status."""
        try:
            found = self._configuration()
        except QuothError as problem:
            note("refused", problem=problem)
            return ExitStatus.WRONG
        configure(self._writer, found.config.log_level, found.config.log_format)
        _set_up_process(found.config)
        try:
            self._start(found.config)
        except (QuothError, OSError, RuntimeError) as problem:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
            note("refused", problem=problem)
            wrong = isinstance(problem, QuothError) and problem.code == "bad_setting"
            return ExitStatus.WRONG if wrong else ExitStatus.NOT_STARTED
        self._wait()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)  # a second one ends the process at once
        return self._stop()

    def _start(self, config: Config) -> None:
        self._notifier.status(f"locking {config.dir}, listing its topics")
        self._broker = broker = Broker(config.dir, config=config, notifier=self._notifier, owns_process=True)
        broker.start()
        threading.Thread(target=_watch, args=(broker, threading.get_ident()), daemon=True).start()
        urls = [url for url in broker.urls if not url.startswith("inproc:")]
        note("serving", directory=config.dir.resolve())
        note("listening", urls=" ".join(urls) or "nothing but this process")
        if broker.poe_url:
            note("poe_listening", url=broker.poe_url)
        if broker.known_clients is not None:
            note("keys_required", clients=broker.known_clients, file=config.clients)
        note("promise", durability=config.durability, worth=_worth(config))
        note("ready", url=urls[0] if urls else "")
        self._notifier.ready()

    def _wait(self) -> None:
        """Wait for a signal to stop, or for the end of the broker."""
        while signal.sigwait(_AWAITED) == signal.SIGHUP:
            if self._has_terminal and not os.isatty(STDERR):
                return  # the terminal was closed, which ends the programs in it
            self._reload()

    def _reload(self) -> None:
        """Read the configuration again. A wrong one changes nothing."""
        if self._file is None and not self._broker.config.clients:
            note("reload_needless")
            return
        self._notifier.reloading()
        try:
            found = self._configuration()
            keys = check(found.config)
            before = self._broker.config
            fixed = self._broker.reload(found.config, keys.clients if keys is not None else None)
        except QuothError as problem:
            note("reload_refused", problem=problem)
            self._broker.note_refused_reload(problem)
        else:
            config = self._broker.config
            configure(self._writer, config.log_level, config.log_format)
            note("reloaded", file=self._file or "none", changed=config.differing(before))
            if fixed:
                note("restart_needed", keys=fixed)
        self._notifier.ready()

    def _stop(self) -> int:
        """Stop the broker and log the result; returns the exit status."""
        broker = self._broker
        note("stopping")
        self._notifier.stopping(broker.config.stop_timeout + LINGER_S + GRACE_S)
        with contextlib.suppress(QuothError):  # `unsynced` has it
            broker.stop()
        if broker.unsynced is not None:
            note("unsynced", problem=broker.unsynced.text, hint=broker.unsynced.hint)
            return ExitStatus.FAILED
        note("stopped")
        return ExitStatus.STOPPED if broker.failure is None else ExitStatus.FAILED


def _set_up_process(config: Config) -> None:
    """Set what holds for the whole process. Not before its configuration is known to be right."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_memory(fitted(config).memory_max)
    shorten_collections(SystemClock().monotonic)
    raise_descriptors()
    os.umask(config.umask)
    # Blocked before any thread starts: every thread inherits the mask, so only sigwait gets them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)


def _worth(config: Config) -> str:
    """Describe what an acknowledged record survives."""
    if config.durability == "synced":
        return "survives a power cut"
    lost = format_span(config.sync_interval)
    return f"survives the death of the process; a power cut may take the last {lost}"


def _watch(broker: Broker, main_thread: int) -> None:
    """Wake the main thread when the broker has ended. A daemon that stops ignores it."""
    broker.join()
    signal.pthread_kill(main_thread, _ENDED)
