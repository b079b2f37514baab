"""`quoth web`: runs the HTTP side in the foreground, as the daemon `quoth-web` does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from quothcli.cli.command import command, group, option
from quothcli.cli.config_options import key_options
from quothcli.cli.exit_status import Refused
from quothweb.config import SCHEMA
from quothwire.config.arguments import CHECK_HELP, FILE_HELP

_Keys = Annotated[dict[str, Any], key_options(SCHEMA)]

app = group()


@command(
    app,
    "web",
    "quoth web",
    "quoth web --port 0 --url tcp://127.0.0.1:5555",
    "quoth web --config /etc/quoth/quoth-web.toml --check",
)
def web(
    keys: _Keys,
    *,
    config: Annotated[Path | None, option("--config FILE", FILE_HELP)] = None,
    check: Annotated[bool, option("--check", CHECK_HELP)] = False,
) -> int:
    """Serve topics over HTTP until SIGTERM or Ctrl-C.

    It is a client of a broker; `quoth help gateway` describes its paths. Options win over the environment
    (QUOTH_WEB_ and the key in capitals), that over the TOML file. SIGHUP reads the file and the tokens again.
    Exit status: 0 stopped as asked, 1 failed while serving, 2 wrong options, 3 could not start.
    """
    from quothweb.main import MISSING_HINT, MISSING_TEXT, missing, print_check, run

    if check:
        return print_check(keys, config)
    if absent := missing():
        text = f"{MISSING_TEXT}: {', '.join(absent)}"
        raise Refused("missing_extra", text, MISSING_HINT)
    return run(keys, config)
