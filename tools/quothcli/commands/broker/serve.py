"""`quoth serve`: run a broker in the foreground, as the daemon `quothd` does."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from quothcli.cli.command import command, spread
from quothcli.cli.config_options import File, key_options
from quothd.config.sources import CHECK_HELP

_Check = Annotated[bool, typer.Option("--check", help=CHECK_HELP)]


def add(app: typer.Typer) -> None:
    """Put `serve` into the command."""
    command(app, "serve", "quoth serve --dir /var/lib/quoth", "quoth serve --port 0 --durability synced")(
        spread("keys", key_options())(serve)
    )


def serve(*, config: File = None, check: _Check = False, keys: dict[str, Any]) -> int:
    """Run a broker in the foreground until SIGTERM or Ctrl-C.

    Options win over the environment (QUOTH_ and the key in capitals), that over the TOML file; `quoth config
    show` tells where each value comes from. SIGHUP reads the file again. Exit status: 0 stopped as asked with
    everything on the disk, 1 failed while serving or could not finish, 2 wrong options, 3 could not start.
    """
    if check:
        from quothd.config.check import print_check

        return print_check(keys, config)
    from quothd.main import run

    return run(keys, config)
