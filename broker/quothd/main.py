"""The command `quothd`: parse, build, serve, tell how it ended. The daemon stays in the foreground.

Exit status: 0 stopped as asked with everything on the disk, 1 failed while serving or could not finish, 2
wrong arguments or configuration, 3 could not start.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quothd.broker import Broker
from quothd.config import KEYS, Config, load
from quothwire.errors import QuothError

SWITCH_INTERVAL_S = 0.0005
"""A thread that computes lets others in ten times as often as by default: everyone's p50 depends on it."""

_ASKED = frozenset((signal.SIGTERM, signal.SIGINT))
_ENDED = signal.SIGUSR1
"""Says to the main thread that the broker ended by itself. It stays blocked, so it never ends the process."""

log = logging.getLogger("quothd")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the daemon and exit."""
    chosen = vars(_parse(arguments))
    file = chosen.pop("config")
    sys.exit(run(chosen, file))


def run(arguments: Mapping[str, Any], file: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. To be called from the main thread."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        config = load(arguments, os.environ, file)
    except QuothError as problem:
        return _say(2, problem)
    # Blocked before any thread starts, so that every thread inherits it and only sigwait sees them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_ASKED, _ENDED})
    broker = Broker(config.dir, config=config)
    try:
        broker.start()
    except (QuothError, OSError, RuntimeError) as problem:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED)
        return _say(2 if isinstance(problem, QuothError) and problem.code == "bad_setting" else 3, problem)
    threading.Thread(target=_watch, args=(broker, threading.get_ident()), daemon=True).start()
    _announce(broker, config)
    signal.sigwait({*_ASKED, _ENDED})
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED)  # asked once more, it ends at once
    return _stop(broker)


def _stop(broker: Broker) -> int:
    """Stop, and say what became of it."""
    _tell("stopping")
    with contextlib.suppress(QuothError):  # it is what `unsynced` says
        broker.stop()
    if broker.unsynced is not None:
        return _say(1, f"not everything is synced: {broker.unsynced.text}\nquothd: {broker.unsynced.hint}")
    return _say(0 if broker.failure is None else 1, "everything is synced, the directory is unlocked")


def _announce(broker: Broker, config: Config) -> None:
    """Say what is served, where, and what an acknowledgement is worth."""
    worth = {
        "written": f"written: survives the death of the process; a power cut may take the last "
        f"{config.sync_interval * 1_000:g} ms",
        "synced": "synced: survives a power cut",
    }
    urls = [url for url in broker.urls if not url.startswith("inproc:")]
    _tell(f"serving {config.dir.resolve()}")
    _tell(f"on {' '.join(urls) or 'nothing but this process'}")
    _tell(f"acknowledged means {worth[config.durability]}")
    for name in broker.strays:
        log.warning("stray entry ignored directory=%s entry=%r", config.dir / "topics", name)
    _tell(f"ready {urls[0] if urls else ''}")


def _watch(broker: Broker, main_thread: int) -> None:
    """Tell the main thread when the broker has ended; one that is stopping does not listen any more."""
    broker.join()
    signal.pthread_kill(main_thread, _ENDED)


def _say(status: int, words: object) -> int:
    _tell(words)
    return status


def _tell(words: object) -> None:
    """Say a line, its end included, in one piece: other threads write to the log at the same time."""
    sys.stderr.write(f"quothd: {words}\n")
    sys.stderr.flush()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments; one that does not exist gets a suggestion, as a key of the file does."""
    parser = _parser()
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        near = difflib.get_close_matches(unknown[0], [_option(key) for key in KEYS], n=1)
        parser.error(f"there is no {unknown[0]}" + (f", did you mean {near[0]}?" if near else ""))
    return chosen


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="quothd",
        allow_abbrev=False,
        description="Quoth's broker: topics as append-only logs behind a ZeroMQ socket.",
        epilog="Each option is also a key of the TOML file and, as QUOTH_KEY, of the environment.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file")
    for key in KEYS:
        option = _option(key)
        default = getattr(Config(), key)
        if isinstance(default, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=None, dest=key)
        else:
            parser.add_argument(option, metavar="VALUE", default=None, dest=key, help=f"default: {default}")
    return parser
