"""The command `quothd`: parses its arguments, runs the daemon in the foreground, returns its exit status.

Exit status: 0 stopped on request with everything synced, 1 failed while serving or could not finish, 2 wrong
arguments or configuration, 3 could not start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quothd.config.check import print_check
from quothd.config.config import SCHEMA
from quothd.config.sources import read
from quothd.daemon import Daemon
from quothd.service.log_events import PROGRAM
from quothwire.config.arguments import parse
from quothwire.service import log_writer, sd_notify

_DESCRIPTION = "Quoth's broker: topics as append-only logs behind a ZeroMQ socket."
_EPILOG = (
    "Each option is also a key of the TOML file and, as QUOTH_KEY, a variable of the environment: "
    "options win over variables, which win over the file. `quoth config example` prints a file with all "
    "keys. A span of time is written like 7d, 1h30m, 500ms or as a number of seconds, a size like 1GiB, "
    "10MB or as a number of bytes; infinity stands for no limit."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the daemon, or check its configuration, and exit."""
    given = parse(SCHEMA, arguments, prog="quothd", description=_DESCRIPTION, epilog=_EPILOG)
    sys.exit((print_check if given.only_check else run)(given.keys, given.file))


def run(arguments: Mapping[str, Any], file: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. For the main thread only."""
    writer, notifier = log_writer.install(PROGRAM), sd_notify.from_environment()
    try:
        return Daemon(lambda: read(arguments, os.environ, file), file, writer, notifier).run()
    finally:
        notifier.close()
        writer.close()
