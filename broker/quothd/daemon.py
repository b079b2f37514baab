"""The daemon: a broker as a process of its own, its signals, and what it tells whom about itself.

SIGTERM and SIGINT end it in order; once more, at once. SIGHUP reads the configuration again: all of it is
checked before any of it counts. The main thread only waits for them; it serves nobody.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from quothd.broker import Broker
from quothd.config.check import check
from quothd.config.config import Config
from quothd.config.sources import Sourced
from quothd.ended import Ended
from quothd.frontend.loop import LINGER_S
from quothd.service.log_events import note
from quothd.service.log_handler import STDERR, LogWriter, configure
from quothd.service.sd_notify import Notifier
from quothwire.errors import QuothError
from quothwire.text.quantity import format_span

_ASKED = frozenset((signal.SIGTERM, signal.SIGINT))
_ENDED = signal.SIGUSR1
"""Says to the main thread that the broker ended by itself. It stays blocked, so it never ends the process."""
_HEARD = frozenset((*_ASKED, _ENDED, signal.SIGHUP))
GRACE_S = 5.0
"""Stopping takes at most `stop_timeout`, and this for the threads, the last replies and the interpreter."""


class Daemon:
    """One run of the daemon, in the main thread.

    configuration: reads it, now and on each SIGHUP. Raises ``bad_setting``. file: what is read again.
    """

    def __init__(
        self, configuration: Callable[[], Sourced], file: Path | None, writer: LogWriter, notifier: Notifier
    ) -> None:
        self._configuration = configuration
        self._file = file
        self._writer = writer
        self._notifier = notifier
        self._has_terminal = os.isatty(STDERR)
        self._broker: Broker

    def run(self) -> int:
        """Serve until it is told to stop; returns the exit status."""
        try:
            found = self._configuration()
        except QuothError as problem:
            note("refused", problem=problem)
            return Ended.WRONG
        configure(self._writer, found.config.log_level, found.config.log_format)
        # Blocked before any thread starts, so that every thread inherits it and only sigwait sees them.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        try:
            self._start(found.config)
        except (QuothError, OSError, RuntimeError) as problem:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED)
            note("refused", problem=problem)
            wrong = isinstance(problem, QuothError) and problem.code == "bad_setting"
            return Ended.WRONG if wrong else Ended.UNSTARTED
        self._wait()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED)  # asked once more, it ends at once
        return self._stop()

    def _start(self, config: Config) -> None:
        self._notifier.status(f"locking {config.dir}, listing its topics")
        self._broker = broker = Broker(config.dir, config=config, notifier=self._notifier)
        broker.start()
        threading.Thread(target=_watch, args=(broker, threading.get_ident()), daemon=True).start()
        urls = [url for url in broker.urls if not url.startswith("inproc:")]
        note("serving", directory=config.dir.resolve())
        note("listening", urls=" ".join(urls) or "nothing but this process")
        note("promise", durability=config.durability, worth=_worth(config))
        note("ready", url=urls[0] if urls else "")
        self._notifier.ready()

    def _wait(self) -> None:
        """Until it is to end."""
        while signal.sigwait(_HEARD) == signal.SIGHUP:
            if self._has_terminal and not os.isatty(STDERR):
                return  # whoever closes the terminal ends what runs in it
            self._reload()

    def _reload(self) -> None:
        """Read the configuration again. Whatever is wrong with it, the one that counts goes on to count."""
        if self._file is None:
            note("reload_needless")
            return
        self._notifier.reloading()
        try:
            found = self._configuration()
            check(found.config)
            before = self._broker.config
            fixed = self._broker.reload(found.config)
        except QuothError as problem:
            note("reload_refused", problem=problem)
        else:
            self._told(before, fixed)
        self._notifier.ready()

    def _told(self, before: Config, fixed: tuple[str, ...]) -> None:
        """Write down what a reload has changed, already in the new form."""
        config = self._broker.config
        configure(self._writer, config.log_level, config.log_format)
        note("reloaded", file=self._file, changed=config.differing(before))
        if fixed:
            note("restart_needed", keys=fixed)

    def _stop(self) -> int:
        """Stop, and say what became of it."""
        broker = self._broker
        note("stopping")
        self._notifier.stopping(broker.config.stop_timeout + LINGER_S + GRACE_S)
        with contextlib.suppress(QuothError):  # it is what `unsynced` says
            broker.stop()
        if broker.unsynced is not None:
            note("unsynced", problem=broker.unsynced.text, hint=broker.unsynced.hint)
            return Ended.FAILED
        note("stopped")
        return Ended.WELL if broker.failure is None else Ended.FAILED


def _worth(config: Config) -> str:
    """Say what an acknowledged record survives."""
    if config.durability == "synced":
        return "survives a power cut"
    lost = format_span(config.sync_interval)
    return f"survives the death of the process; a power cut may take the last {lost}"


def _watch(broker: Broker, main_thread: int) -> None:
    """Tell the main thread when the broker has ended; one that is stopping does not listen any more."""
    broker.join()
    signal.pthread_kill(main_thread, _ENDED)
