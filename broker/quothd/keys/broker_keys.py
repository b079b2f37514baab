"""Reads the keys of a broker: its own key file and its clients file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from quothd.access import clients_file
from quothd.access.clients_file import ClientTable
from quothd.config.config import Config
from quothwire.errors import error
from quothwire.security.key_file import Key, read_key

RULES_CLIENT, POE_CLIENT = "quoth.rules", "quoth.poe"
"""The names of the clients with which processes of the broker connect."""
_OWN = {RULES_CLIENT: "the process of the routing rules", POE_CLIENT: "the process of Poe's protocol"}


class BrokerKeys(NamedTuple):
    """The keys that a broker works with. server: its own."""

    server: Key
    clients: ClientTable


def read_keys(config: Config) -> BrokerKeys | None:
    """Read the files of a configuration; returns None if clients need no key.

    Raises `RequestError` ``bad_setting``.
    """
    if not config.server_key and not config.clients:
        return None
    if not config.server_key:
        text = f"clients: {config.clients} has no effect without a server_key"
        raise error("bad_setting", text, "`quoth key new` makes a key for the broker")
    if not config.clients:
        text = "server_key without clients: no client could connect"
        raise error("bad_setting", text, "name the file with the clients' public keys in the key `clients`")
    server = read_key(config.server_key)
    if not server.secret_key:
        text = f"server_key: {config.server_key} has no secret key, so it is no key of a broker"
        raise error("bad_setting", text, "name the file with the secret that `quoth key new` made")
    if server.server_keys:
        text = f"server_key: {config.server_key} is the key file of a client: it has a server-key"
        raise error("bad_setting", text, "name the broker's own key file, which `quoth key new broker` makes")
    return BrokerKeys(server, _read_clients(Path(config.clients)))


def read_clients(config: Config) -> ClientTable | None:
    """Read the clients file of a configuration, if it has one. Raises `RequestError` ``bad_setting``."""
    return _read_clients(Path(config.clients)) if config.clients else None


def _read_clients(path: Path) -> ClientTable:
    found = clients_file.read_clients(path)
    for own, process in _OWN.items():
        if own in found.by_name:
            text = f"{path}: the client {own} is {process}, which needs no entry"
            raise error("bad_setting", text, "give the client another name")
    return found
