"""Reads the clients file: the clients of a broker with their keys, rights and quotas.

    [quota]                             # of each client that names no other
    topics = 1000

    [clients.alice]
    key = "..."                         # her public key; keys = ["...", "..."] while one replaces the other
    publish = ["orders.*"]              # the name of a topic, or a prefix and *; "*" is every topic
    read = ["orders.*", "prices"]
    group = []
    admin = []
    [clients.alice.quota]
    topics = 100
    store_bytes = "10 GiB"

Every error names the file, the line and the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from quothd.access.quota import SIZES, Quota
from quothd.access.rights import STRANGER, KnownClient, Right
from quothd.access.topic_scope import TopicScope, check_pattern
from quothwire.config.config_key import NUMBER_MAX
from quothwire.errors import error
from quothwire.security.key_file import CLIENT_NAME, CLIENT_NAME_RULE, KEY_CHARACTERS, is_key
from quothwire.text.paths import read_regular
from quothwire.text.toml_table import TomlTable, parse_document

CLIENTS_BYTES_MAX = 2**22
"""Ten thousand clients with several patterns each."""
WRITABLE_BY_OTHERS = 0o022


class ClientTable:
    """The clients of one version of the file. Immutable, any thread."""

    def __init__(self, clients: Iterable[KnownClient] = ()) -> None:
        self.by_name: Mapping[str, KnownClient] = MappingProxyType({one.name: one for one in clients})
        found = {key: client for client in self.by_name.values() for key in client.keys}
        self.by_key: Mapping[str, KnownClient] = MappingProxyType(found)

    def of_key(self, key: str) -> KnownClient:
        """Return the client with a public key, `STRANGER` if none has it."""
        return self.by_key.get(key, STRANGER)

    def changed(self, later: ClientTable) -> frozenset[str]:
        """Return the keys that a later table does not have, or that may know of other topics by it."""
        return frozenset(
            key
            for key, client in self.by_key.items()
            if client.name != later.of_key(key).name
            or set(client.visible.patterns) != set(later.of_key(key).visible.patterns)
        )

    def limits_of(self, name: str) -> Mapping[Quota, int]:
        """Return the quotas of a client; none for one that is not in the file any more."""
        client = self.by_name.get(name)
        return client.limits if client is not None else {}


def read_clients(path: Path) -> ClientTable:
    """Read a clients file. Raises `RequestError` ``bad_setting``."""
    try:
        raw, mode = read_regular(path, CLIENTS_BYTES_MAX)
    except OSError as problem:
        raise error(
            "bad_setting", f"{path}: {problem.strerror}", "is the path of the clients file right?"
        ) from None
    if mode & WRITABLE_BY_OTHERS:
        text = f"other users may write to {path} (mode {mode:04o}), and so add clients"
        raise error("bad_setting", text, f"chmod go-w {path}")
    try:
        return parse_clients(raw.decode(), str(path))
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise error("bad_setting", f"{path}:{line}: a byte that is not UTF-8", "TOML is UTF-8") from None


def parse_clients(text: str, origin: str) -> ClientTable:
    """Parse the text of a clients file. origin: names it in errors. Raises ``bad_setting``."""
    document = parse_document(text, origin, CLIENTS_BYTES_MAX)
    default = _limits(document.table("quota"), {})
    table = document.table("clients")
    document.finish()
    clients = [_client(table, name, default) for name in table.values]
    _check_keys(table, clients)
    return ClientTable(clients)


def _client(clients: TomlTable, name: str, default: Mapping[Quota, int]) -> KnownClient:
    if not CLIENT_NAME.fullmatch(name):
        text = f"{name!r:.120} is no name of a client"
        raise clients.wrong(name, text, CLIENT_NAME_RULE)
    table = clients.labelled(f"client {name!r}").table(name)
    keys = _keys(table)
    scopes = {right: TopicScope(table.each(right, check_pattern, may_be_empty=True)) for right in Right}
    limits = _limits(table.table("quota"), default)
    table.finish()
    return KnownClient(name, keys, MappingProxyType(scopes), MappingProxyType(limits))


def _keys(table: TomlTable) -> tuple[str, ...]:
    if table.has("keys") == table.has("key"):
        problem = "key and keys are there" if table.has("key") else "the key is missing"
        raise table.wrong(None, problem, 'key = "PUBLIC KEY", or keys = [...] while one replaces the other')
    return table.each("keys" if table.has("keys") else "key", _public_key)


def _public_key(text: str) -> str:
    """Return a public key. Raises ``bad_setting``; the error never shows it, since it may be a secret one."""
    if not is_key(text):
        problem = (
            f"a public key is {KEY_CHARACTERS} characters of Z85, and this is none ({len(text)} characters)"
        )
        raise error("bad_setting", problem, "`quoth key show FILE` prints the public key of a key file")
    return text


def _check_keys(table: TomlTable, clients: Iterable[KnownClient]) -> None:
    """Raise ``bad_setting`` for a key that is there twice."""
    whose: dict[str, str] = {}
    for client in clients:
        for key in client.keys:
            if (other := whose.setdefault(key, client.name)) != client.name:
                text = f"clients {other!r} and {client.name!r} have the same key"
                raise table.wrong(client.name, text, "a client is known by its key: make one for each")
        if len(set(client.keys)) < len(client.keys):
            raise table.wrong(client.name, f"client {client.name!r} has the same key twice")


def _limits(table: TomlTable, default: Mapping[Quota, int]) -> dict[Quota, int]:
    limits = dict(default)
    for quota in Quota:
        if table.has(quota):
            is_size = quota in SIZES
            limits[quota] = table.size(quota, 0) if is_size else table.whole(quota, 0, 0, NUMBER_MAX)
    table.finish()
    return limits
