"""The command `quothd`: parses its arguments, runs the daemon in the foreground, returns its exit status.

Exit status: 0 stopped on request with everything synced, 1 failed while serving or could not finish, 2 wrong
arguments or configuration, 3 could not start.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quothd.config.check import print_check
from quothd.config.config import KEYS
from quothd.config.sources import CHECK_HELP, FILE_HELP, read
from quothd.daemon import Daemon
from quothd.service import log_handler, sd_notify
from quothwire.errors import QuothError
from quothwire.text.paths import given_path
from quothwire.text.suggestion import nearest


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the daemon, or check its configuration, and exit."""
    given = vars(_parse(arguments))
    file, only_check = given.pop("config"), given.pop("check")
    sys.exit((print_check if only_check else run)(given, file))


def run(arguments: Mapping[str, Any], file: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. For the main thread only."""
    writer, notifier = log_handler.install(), sd_notify.from_environment()
    try:
        return Daemon(lambda: read(arguments, os.environ, file), file, writer, notifier).run()
    finally:
        notifier.close()
        writer.close()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments. The error for an unknown one suggests the right one."""
    parser = _parser()
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        options = [key.option for key in KEYS.values()]
        near = nearest(unknown[0], [*options, "--config", "--check"])
        parser.error(f"there is no {unknown[0]}" + (f", did you mean {near}?" if near else ""))
    return given


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
        epilog="Each option is also a key of the TOML file and, as QUOTH_KEY, a variable of the environment: "
        "options win over variables, which win over the file. `quoth config example` prints a file with all "
        "keys. A span of time is written like 7d, 1h30m, 500ms or as a number of seconds, a size like 1GiB, "
        "10MB or as a number of bytes; infinity stands for no limit.",
    )
    parser.add_argument("--config", type=_file, metavar="FILE", help=FILE_HELP)
    parser.add_argument("--check", action="store_true", help=CHECK_HELP)
    for key in KEYS.values():
        about: dict[str, Any] = {"default": None, "dest": key.name, "help": key.summary.replace("%", "%%")}
        if key.kind is bool:
            parser.add_argument(key.option, action=argparse.BooleanOptionalAction, **about)
        else:
            parser.add_argument(key.option, metavar=key.metavar, **about)
    return parser
