"""The keys of a benchmark: one for its servers, one for its clients, made anew each time."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import zmq

from quothcli.cli.keys import write_key
from quothwire.security.key_file import Key

_CLIENTS = """\
[clients.bench]
key = "{key}"
publish = ["*"]
read = ["*"]
group = ["*"]
admin = ["*"]
"""
"""The clients file: the only client may do everything."""


class BenchKeys(NamedTuple):
    """Paths of files. server, client: key files. clients: the clients file of a broker."""

    server: str
    client: str
    clients: str

    @property
    def settings(self) -> dict[str, object]:
        """The configuration of a broker with these keys."""
        return {"server_key": self.server, "clients": self.clients}


def make_keys(folder: Path) -> BenchKeys:
    """Make the keys in a folder that is there. Raises OSError."""
    public, secret = (one.decode() for one in zmq.curve_keypair())
    server, _ = write_key(folder, Key("server", public, secret), replace=False)
    own, own_secret = (one.decode() for one in zmq.curve_keypair())
    client, _ = write_key(folder, Key("bench", own, own_secret, (public,)), replace=False)
    clients = folder / "clients.toml"
    clients.write_text(_CLIENTS.format(key=own))
    return BenchKeys(str(server), str(client), str(clients))
