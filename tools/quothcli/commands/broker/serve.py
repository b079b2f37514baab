"""`quoth serve`: runs a broker in the foreground, as the daemon `quothd` does."""

from __future__ import annotations

from typing import Annotated

from quothcli.cli.command import command, group, option
from quothcli.commands.about.config import File, Keys
from quothwire.config.arguments import CHECK_HELP

_Check = Annotated[bool, option("--check", CHECK_HELP)]

app = group()


@command(app, "serve", "quoth serve --dir /var/lib/quoth", "quoth serve --port 0 --durability synced")
def serve(keys: Keys, *, config: File = None, check: _Check = False) -> int:
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
