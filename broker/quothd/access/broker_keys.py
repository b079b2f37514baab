"""Reads the keys of a broker: its own key file and its clients file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from quothd.config.config import Config
from quothwire.errors import error
from quothwire.security.key_file import Key, read_key

ClientNames = Mapping[str, str]
"""The names of clients by public key."""


class BrokerKeys(NamedTuple):
    """The keys that a broker works with. server: its own."""

    server: Key
    clients: ClientNames


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
    return BrokerKeys(server, read_clients(config))


def read_clients(config: Config) -> ClientNames:
    """Read the clients file of a configuration, if it has one. Raises `RequestError` ``bad_setting``."""
    if not config.clients:
        return {}
    path = Path(config.clients)
    try:
        tables = tomllib.loads(path.read_text("utf-8")).get("clients", {})
        return {key: name for name, one in tables.items() for key in one.get("keys", [one.get("key")])}
    except (OSError, ValueError, KeyError) as problem:
        raise error("bad_setting", f"the clients file {path}: {problem}") from None
