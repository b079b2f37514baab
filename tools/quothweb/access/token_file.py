"""Reads the tokens file: who may send requests, and the key with which each asks the broker.

    [tokens.alice]
    sha256 = "..."              # of her token, in hex; sha256 = ["...", "..."] while one replaces the other
    key_file = "alice.key"      # her rights are those of this key; without it the token only admits

`quoth key token` prints such lines. Every error names the file, the line and the token.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from quothwire.errors import error
from quothwire.security.key_file import CLIENT_NAME, CLIENT_NAME_RULE, read_key
from quothwire.text.paths import given_path, read_regular
from quothwire.text.toml_table import TomlTable, parse_document

TOKENS_BYTES_MAX = 2**22
TOKEN_CHARACTERS_MAX = 512
WRITABLE_BY_OTHERS = 0o022
_DIGEST = re.compile(r"[0-9a-f]{64}")


class KnownToken(NamedTuple):
    """A token of the file. digests: those that admit it. key_file: its key, "" for none."""

    name: str
    digests: tuple[bytes, ...]
    key_file: str


class TokenTable:
    """The tokens of one version of the file. Immutable."""

    def __init__(self, tokens: Iterable[KnownToken] = ()) -> None:
        self.by_name: Mapping[str, KnownToken] = MappingProxyType({one.name: one for one in tokens})
        self._by_digest = {digest: one for one in self.by_name.values() for digest in one.digests}

    def __len__(self) -> int:
        return len(self.by_name)

    def of_digest(self, digest: bytes) -> KnownToken | None:
        """Return the token with a digest, None for an unknown one.

        The digest of a guess tells nothing about the token, so the time of the search may depend on it; the
        comparison with what was found does not.
        """
        found = self._by_digest.get(digest)
        if found is None or not any(secrets.compare_digest(digest, one) for one in found.digests):
            return None
        return found

    def changed(self, later: TokenTable) -> frozenset[str]:
        """Return the names of tokens that a later table does not admit as this one does."""
        return frozenset(
            name
            for name, token in self.by_name.items()
            if (other := later.by_name.get(name)) is None
            or other.key_file != token.key_file
            or not set(token.digests) <= set(other.digests)
        )


def digest_of(token: str) -> bytes:
    """Return the digest by which a token is known."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()  # also of a guess that is no text


def read_tokens(path: Path) -> TokenTable:
    """Read a tokens file and check the key files that it names. Raises `RequestError` ``bad_setting``."""
    try:
        raw, mode = read_regular(path, TOKENS_BYTES_MAX)
    except OSError as problem:
        hint = "is the path of the tokens file right?"
        raise error("bad_setting", f"{path}: {problem.strerror}", hint) from None
    if mode & WRITABLE_BY_OTHERS:
        text = f"other users may write to {path} (mode {mode:04o}), and so add tokens"
        raise error("bad_setting", text, f"chmod go-w {path}")
    try:
        return parse_tokens(raw.decode(), path)
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise error("bad_setting", f"{path}:{line}: a byte that is not UTF-8", "TOML is UTF-8") from None


def parse_tokens(text: str, path: Path) -> TokenTable:
    """Parse the text of a tokens file. path: names it in errors; relative paths begin beside it."""
    document = parse_document(text, str(path), TOKENS_BYTES_MAX)
    table = document.table("tokens")
    document.finish()
    tokens = [_token(table, name, path.parent) for name in table.values]
    _check_digests(table, tokens)
    return TokenTable(tokens)


def _token(tokens: TomlTable, name: str, folder: Path) -> KnownToken:
    if not CLIENT_NAME.fullmatch(name):
        raise tokens.wrong(name, f"{name!r:.120} is no name of a token", CLIENT_NAME_RULE)
    table = tokens.labelled(f"token {name!r}").table(name)
    digests = table.each("sha256", _digest)
    if not digests:
        raise table.wrong(
            None, "the key 'sha256' is missing", "`quoth key token` prints the lines of a token"
        )
    key_file = table.convert("key_file", lambda given: _key_file(given, folder), "")
    table.finish()
    return KnownToken(name, digests, key_file)


def _digest(text: str) -> bytes:
    """Return a digest. Raises ``bad_setting``; the error does not show it, since it may be a token."""
    if not _DIGEST.fullmatch(text):
        problem = f"sha256 is 64 hexadecimal digits, and this is none ({len(text)} characters)"
        raise error("bad_setting", problem, "the file holds digests, never tokens: see `quoth key token`")
    return bytes.fromhex(text)


def _key_file(given: object, folder: Path) -> str:
    if not isinstance(given, str):
        raise error("bad_setting", "it is the path of a key file", "as text")
    path = folder / given_path(given, "key_file")
    check_key_file(path)
    return str(path)


def check_key_file(path: str | Path) -> None:
    """Check that a key file can be used to ask the broker. Raises ``bad_setting``."""
    if not read_key(path).secret_key:
        raise error(
            "bad_setting", f"the key file {path} has no secret-key", "not the public file of a client"
        )


def _check_digests(table: TomlTable, tokens: Iterable[KnownToken]) -> None:
    """Raise ``bad_setting`` for a digest that is there twice."""
    whose: dict[bytes, str] = {}
    for token in tokens:
        for digest in token.digests:
            if (other := whose.setdefault(digest, token.name)) != token.name:
                text = f"tokens {other!r} and {token.name!r} are the same"
                raise table.wrong(token.name, text, "make one for each: `quoth key token`")
