"""The command `quoth-web`: parses its arguments, runs the server in the foreground, returns its status.

Exit status: 0 stopped on request, 1 failed while serving, 2 wrong arguments or configuration, 3 could not
start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from quothweb.config import SCHEMA, WebConfig, read
from quothweb.service.log_events import PROGRAM, note
from quothwire.config.arguments import parse
from quothwire.config.sources import Sourced
from quothwire.config.template import differences
from quothwire.errors import QuothError
from quothwire.service import log_writer, sd_notify
from quothwire.service.exit_status import ExitStatus

NEEDED = ("fastapi", "uvicorn", "websockets", "nicegui", "prometheus_client")
"""Packages that only this command needs: the extra ``web``."""
MISSING_TEXT = "the HTTP side needs packages that are not installed"
MISSING_HINT = "pip install 'quoth[web]'"

_DESCRIPTION = "Quoth over HTTP: topics, records and groups of a broker for programs without ZeroMQ."
_EPILOG = (
    "Each option is also a key of the TOML file and, as QUOTH_WEB_KEY, a variable of the environment: "
    "options win over variables, which win over the file. A span of time is written like 7d, 1h30m, 500ms "
    "or as a number of seconds, a size like 1GiB, 10MB or as a number of bytes."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the server, or check its configuration, and exit."""
    given = parse(SCHEMA, arguments, prog="quoth-web", description=_DESCRIPTION, epilog=_EPILOG)
    sys.exit((print_check if given.only_check else run)(given.keys, given.file))


def missing() -> list[str]:
    """Return the packages that are needed and not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def run(arguments: Mapping[str, Any], file: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. For the main thread only."""
    if absent := missing():
        print(f"quoth-web: {MISSING_TEXT}: {', '.join(absent)} ({MISSING_HINT})", file=sys.stderr)
        return ExitStatus.NOT_STARTED
    writer, notifier = log_writer.install(PROGRAM), sd_notify.from_environment()
    try:
        from quothweb.server import WebProcess

        return WebProcess(lambda: read(arguments, os.environ, file), file, writer, notifier).run()
    finally:
        notifier.close()
        writer.close()


def print_check(arguments: Mapping[str, Any], file: Path | None = None) -> int:
    """Print the keys that differ from the defaults, or log what is wrong; returns the exit status."""
    writer = log_writer.install(PROGRAM)
    try:
        found = read(arguments, os.environ, file)
        check_files(found)
    except QuothError as problem:
        note("refused", problem=problem)
        return ExitStatus.WRONG
    finally:
        writer.close()
    print(differences(found))
    return ExitStatus.STOPPED


def check_files(found: Sourced[WebConfig]) -> None:
    """Check the files that a configuration names. Raises ``bad_setting``."""
    from quothweb.access.token_file import check_key_file, read_tokens

    if found.config.key_file:
        check_key_file(found.config.key_file)
    if found.config.tokens and not read_tokens(Path(found.config.tokens)):
        note("no_tokens", file=found.config.tokens)
