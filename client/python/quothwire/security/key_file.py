"""Reads and writes key files: the CURVE keys of a client or a broker, and the public key of its broker.

    # The key of alice. A program that can read this file is alice to the broker: keep it secret.
    [metadata]
    name = "alice"
    server-key = "<public key of the broker>"
    server-key-next = "<public key that the broker will have>"
    [curve]
    public-key = "<public key of alice>"
    secret-key = "<secret key of alice>"

A key is 32 bytes, written as 40 characters of Z85. `server-key` is in the files of clients alone,
`server-key-next` there while the broker's key is replaced, and `secret-key` is not in public files. The file
is TOML, and the functions of ``zmq.auth`` read it, too. Errors and `repr` quote no key that could be secret.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable
from typing import Any, NamedTuple

from quothwire.errors import QuothError, error
from quothwire.text.paths import given_path, read_regular
from quothwire.text.suggestion import nearest

KEY_CHARACTERS = 40
"""Characters of Z85 for the 32 bytes of a key."""
KEY_FILE_BYTES_MAX = 64 * 1024
"""A larger file is refused before it is read as a whole; one with all keys has less than 1 KiB."""
NAME_CHARACTERS_MAX = 100
CLIENT_NAME = re.compile(rf"[A-Za-z0-9_@][A-Za-z0-9_.@-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
"""The name of a client in a clients file and of its key files."""
CLIENT_NAME_RULE = f"1 to {NAME_CHARACTERS_MAX} letters of ASCII, digits and _ . @ -, no . or - first"

SERVER_KEY_NAMES = ("server-key", "server-key-next")
_TABLES = {"metadata": ("name", *SERVER_KEY_NAMES), "curve": ("public-key", "secret-key")}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(_Z85)}


class Key(NamedTuple):
    """The content of a key file.

    name: of the client or the broker, for people; "" if the file has none. public_key: 40 characters of Z85.
    secret_key: likewise, "" in a public file. server_keys: public keys of the broker, the first one is tried
    first; at most two, none in the file of a broker.
    """

    name: str
    public_key: str
    secret_key: str = ""
    server_keys: tuple[str, ...] = ()

    def __repr__(self) -> str:
        secret = "'...'" if self.secret_key else "''"
        return (
            f"Key(name={self.name!r}, public_key={self.public_key!r}, secret_key={secret}, "
            f"server_keys={self.server_keys!r})"
        )


def is_key(text: object) -> bool:
    """True for 40 characters of Z85 that are 32 bytes, which every public and every secret key is."""
    if not isinstance(text, str) or len(text) != KEY_CHARACTERS or not all(one in _VALUES for one in text):
        return False
    return all(_number(text[at : at + 5]) < 2**32 for at in range(0, KEY_CHARACTERS, 5))


def read_key(path: str | os.PathLike[str]) -> Key:
    """Read a key file. Raises `RequestError` ``bad_setting`` if it is none, or if others may read its secret.

    A symbolic link is followed, so that a mounted secret can be used; the mode is that of the file itself.
    """
    text, mode = _content(path)
    tables = _tables(path, text)
    key = _key(path, tables.get("metadata", {}), tables.get("curve", {}))
    if key.secret_key and mode & 0o077:
        raise _wrong(
            path,
            f"holds a secret key and has the mode {mode:04o}: group or others have access",
            f"type `chmod 600 {path}`; replace the key if another user may have read it",
        )
    return key


def encode_key(key: Key) -> str:
    """Format the text of a key file. Raises `RequestError` ``bad_setting`` for a key that is none.

    Create the file with the mode 0600 if the key has a secret: `read_key` refuses any wider one.
    """
    _check_name("the name", key.name)
    check_keys("the key", (key.public_key, *((key.secret_key,) if key.secret_key else ()), *key.server_keys))
    if len(key.server_keys) > len(SERVER_KEY_NAMES):
        text = f"a key file holds at most {len(SERVER_KEY_NAMES)} keys of its broker"
        raise error("bad_setting", text, "the present one, and the next one")
    lines = [_comment(key), "[metadata]"]
    if key.name:
        lines.append(f"name = {json.dumps(key.name, ensure_ascii=False)}")
    lines += [f'{name} = "{one}"' for name, one in zip(SERVER_KEY_NAMES, key.server_keys, strict=False)]
    lines += ["", "[curve]", f'public-key = "{key.public_key}"']
    if key.secret_key:
        lines.append(f'secret-key = "{key.secret_key}"')
    return "\n".join(lines) + "\n"


def _comment(key: Key) -> str:
    whose = f"key of {key.name}" if key.name else "key"
    if not key.secret_key:
        return f"# The public {whose}."
    return f"# The secret {whose}. A program that can read this file is taken for its owner: keep it secret."


# -- reading ------------------------------------------------------------------------------------------------


def _content(path: str | os.PathLike[str]) -> tuple[str, int]:
    """Return the text and the permission bits of the file that was opened."""
    try:
        content, mode = read_regular(given_path(path, "the key file"), KEY_FILE_BYTES_MAX)
    except OSError as problem:
        text = f"the key file {path}: {problem.strerror}"
        raise error("bad_setting", text, "is it the right path?") from None
    try:
        return content.decode(), mode
    except UnicodeDecodeError:
        raise _wrong(path, "is not UTF-8") from None


def _tables(path: str | os.PathLike[str], text: str) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise _wrong(path, f"is no TOML: {problem}", 'it has lines KEY = "VALUE" below [curve]') from None
    except (ValueError, RecursionError):  # valid TOML with thousands of digits or brackets
        raise _wrong(path, "holds a number or a nested list that is too long to be read") from None
    _check_known(path, "table", tables, _TABLES)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise _wrong(path, f"has the value {name} where the table [{name}] has to be")
        _check_known(path, "key", table, _TABLES[name])
    return tables


def _key(path: str | os.PathLike[str], metadata: dict[str, Any], curve: dict[str, Any]) -> Key:
    if "public-key" not in curve:
        raise _wrong(path, "has no public-key in a table [curve]")
    if SERVER_KEY_NAMES[1] in metadata and SERVER_KEY_NAMES[0] not in metadata:
        raise _wrong(path, "has a server-key-next and no server-key", "the broker's present key comes first")
    name = metadata.get("name", "")
    _check_name(f"{path}: name", name)
    servers = {one: metadata[one] for one in SERVER_KEY_NAMES if one in metadata}
    for label, value in {**curve, **servers}.items():
        check_keys(f"{path}: {label}", [value])
    return Key(name, curve["public-key"], curve.get("secret-key", ""), tuple(servers.values()))


# -- what is wrong ------------------------------------------------------------------------------------------


def _number(five: str) -> int:
    number = 0
    for character in five:
        number = number * 85 + _VALUES[character]
    return number


def check_keys(what: str, keys: Iterable[object]) -> None:
    """Raise ``bad_setting`` for a text that is no key. Does not quote it: it may be a misprinted secret."""
    for key in keys:
        if not is_key(key):
            found = f"{len(key)} characters" if isinstance(key, str) else "no text"
            text = f"{what}: a key is {KEY_CHARACTERS} characters of Z85, and this is not one ({found})"
            raise error("bad_setting", text, "copy the whole key, in quotes")


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
        text = f"{what}: a name is at most {NAME_CHARACTERS_MAX} printable characters"
        raise error("bad_setting", text, "give it another name")


def _check_known(path: object, what: str, found: Iterable[str], known: Iterable[str]) -> None:
    for name in found:
        if name not in known:
            near = nearest(name, known)
            hint = f"is {near} meant?" if near else f"it may have {', '.join(known)}"
            raise _wrong(path, f"has an unknown {what} {name[:NAME_CHARACTERS_MAX]!r}", hint)


def _wrong(path: object, what: str, hint: str = "`quoth key new` makes key files") -> QuothError:
    return error("bad_setting", f"the key file {path} {what}", hint)
