"""`quoth serve`: run a broker in the foreground, as the daemon `quothd` does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quothcli.command import command, spread
from quothd.config import KEYS, Config

HELP = {
    "dir": "The data directory; it is made if it does not exist.",
    "host": "The address to listen on; empty: none.",
    "port": "The port; announcements are on the next one; 0: any free ones.",
    "listen": "Further endpoints, separated by commas: ipc:///run/quoth/quoth.",
    "insecure": "Allow addresses that other machines can reach; whoever reaches them may do anything.",
    "auto_create": "Let the first publish make a topic.",
    "durability": "What an acknowledgement means: written or synced.",
    "max_age": "Seconds after which records are removed; 0: never.",
    "max_bytes": "Bytes of a topic above which its oldest records are removed; 0: never.",
    "size_limit": "Bytes at which a segment is sealed.",
    "count_limit": "Records at which a segment is sealed; 0: no limit.",
    "age_limit": "Seconds after which a segment is sealed; 0: no limit.",
    "sync_interval": "Seconds between two fsyncs of a topic that is written to.",
    "unsynced_bytes_max": "Bytes not yet synced above which writers wait.",
    "buffer_count_max": "Records not yet synced above which writers wait.",
    "check_interval": "Seconds between two looks at what a topic may remove.",
    "worker_timeout": "Seconds without a request after which a topic hibernates.",
    "workers_max": "Topics that are active at once.",
    "topics_max": "Topics that the broker takes.",
    "topic_requests_max": "Requests of one topic in work; above it the answer is busy.",
    "request_bytes_max": "Bytes of all requests in work.",
    "waits_max": "Requests that wait for records at once.",
    "frame_bytes_max": "Bytes of the largest frame that is taken.",
    "disk_free_min": "Bytes of the disk below which writing stops.",
    "recovering_after": "Seconds after which a read of a topic that is being opened is answered.",
    "stop_timeout": "Seconds that stopping may take.",
    "scrub_interval": "Seconds between two checks of all sealed segments; 0: never.",
    "scrub_rate": "Bytes a second that are read for that.",
}
"""What each key of the configuration is for, in one line."""


_File = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with these keys.")]


def add(app: typer.Typer) -> None:
    """Put `serve` into the command."""
    options = {key: _option(key) for key in KEYS}
    command(app, "serve", "quoth serve --dir /var/lib/quoth", "quoth serve --port 0 --durability synced")(
        spread("keys", options)(serve)
    )


def serve(*, config: _File = None, keys: dict[str, Any]) -> int:
    """Run a broker in the foreground until SIGTERM or Ctrl-C.

    Options win over the environment (QUOTH_ and the key in capitals), that over the TOML file. Exit status:
    0 stopped as asked with everything on the disk, 1 failed while serving or could not finish, 2 wrong
    options, 3 could not start.
    """
    from quothd.main import run

    return run(keys, config)


def _option(key: str) -> Any:
    default = getattr(Config(), key)
    name = f"--{key.replace('_', '-')}"
    if isinstance(default, bool):
        text = f"{HELP[key]} (default: {'yes' if default else 'no'})"
        return Annotated[bool | None, typer.Option(f"{name}/--no-{name[2:]}", help=text, show_default=False)]
    shown = ",".join(default) if isinstance(default, tuple) else default
    text = f"{HELP[key]} (default: {'none' if shown == '' else shown})"
    return Annotated[str | None, typer.Option(name, metavar="VALUE", help=text)]
