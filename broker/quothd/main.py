"""The command `quothd`: parse, build, serve, tell how it ended. The daemon stays in the foreground.

Exit status: 0 stopped as asked, 1 failed while serving, 2 wrong arguments or configuration, 3 could not
start.
"""

from __future__ import annotations

import argparse
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
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    broker = Broker(config.dir, config=config)
    try:
        broker.start()
    except (QuothError, OSError) as problem:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return _say(2 if isinstance(problem, QuothError) and problem.code == "bad_setting" else 3, problem)
    threading.Thread(target=_watch, args=(broker,), daemon=True).start()
    _announce(broker, config)
    signal.sigwait(signals)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    failed = broker.failure is not None
    print("quothd: stopping", file=sys.stderr, flush=True)
    broker.stop()
    print("quothd: everything is synced, the directory is unlocked", file=sys.stderr, flush=True)
    return 1 if failed else 0


def _announce(broker: Broker, config: Config) -> None:
    """Say what is served, where, and what an acknowledgement is worth."""
    worth = {
        "written": f"written: survives the death of the process; a power cut may take the last "
        f"{config.sync_interval * 1_000:g} ms",
        "synced": "synced: survives a power cut",
    }
    urls = [url for url in broker.urls if not url.startswith("inproc:")]
    print(f"quothd: serving {config.dir.resolve()}", file=sys.stderr)
    print(f"quothd: on {' '.join(urls) or 'nothing but this process'}", file=sys.stderr)
    print(f"quothd: acknowledged means {worth[config.durability]}", file=sys.stderr)
    for name in broker.strays:
        log.warning("stray entry ignored directory=%s entry=%r", config.dir / "topics", name)
    print(f"quothd: ready {urls[0] if urls else ''}", file=sys.stderr, flush=True)


def _watch(broker: Broker) -> None:
    """End the process when the broker ends by itself."""
    broker.join()
    if broker.failure is not None:
        os.kill(os.getpid(), signal.SIGTERM)


def _say(status: int, problem: Exception) -> int:
    print(f"quothd: {problem}", file=sys.stderr)
    return status


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
