"""The command `quothd`: parse, build, serve, tell how it ended. The daemon stays in the foreground.

Exit status: 0 stopped as asked with everything on the disk, 1 failed while serving or could not finish, 2
wrong arguments or configuration, 3 could not start.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quothd.config.check import checked
from quothd.config.config import KEYS
from quothd.config.sources import CHECK_HELP, FILE_HELP, read
from quothd.daemon import Daemon
from quothd.service import log_handler, sd_notify
from quothwire.errors import QuothError
from quothwire.text.paths import given_path
from quothwire.text.suggestion import nearest

SWITCH_INTERVAL_S = 0.0005
"""A thread that computes lets others in ten times as often as by default: everyone's p50 depends on it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the daemon, or check what it would run with, and exit."""
    chosen = vars(_parse(arguments))
    file, only_check = chosen.pop("config"), chosen.pop("check")
    sys.exit((checked if only_check else run)(chosen, file))


def run(arguments: Mapping[str, Any], file: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. To be called from the main thread."""
    writer, notifier = log_handler.begin(), sd_notify.from_environment()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        return Daemon(lambda: read(arguments, os.environ, file), file, writer, notifier).run()
    finally:
        notifier.close()
        writer.close()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments; one that does not exist gets a suggestion, as a key of the file does."""
    parser = _parser()
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        options = [key.option for key in KEYS.values()]
        near = nearest(unknown[0], [*options, "--config", "--check"])
        parser.error(f"there is no {unknown[0]}" + (f", did you mean {near}?" if near else ""))
    return chosen


def _file(text: str) -> Path:
    try:
        return given_path(text, "--config")
    except QuothError as problem:
        raise argparse.ArgumentTypeError(f"{problem.text} ({problem.hint})") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="quothd",
        allow_abbrev=False,
        description="Quoth's broker: topics as append-only logs behind a ZeroMQ socket.",
        epilog="Each option is also a key of the TOML file and, as QUOTH_KEY, of the environment: options "
        "win over that, that over the file. `quoth config example` prints a file with all of them. A span of "
        "time is written like 7d, 1h30m, 500ms or as a number of seconds, a size like 1GiB, 10MB or as a "
        "number of bytes; infinity stands for no limit.",
    )
    parser.add_argument("--config", type=_file, metavar="FILE", help=FILE_HELP)
    parser.add_argument("--check", action="store_true", help=CHECK_HELP)
    for key in KEYS.values():
        told: dict[str, Any] = {"default": None, "dest": key.name, "help": key.summary.replace("%", "%%")}
        if key.kind is bool:
            parser.add_argument(key.option, action=argparse.BooleanOptionalAction, **told)
        else:
            parser.add_argument(key.option, metavar=key.metavar, **told)
    return parser
