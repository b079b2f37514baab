"""`quoth key`: makes keys and tokens, and shows what a key file holds."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter

from quothcli.cli.command import argument, command, group, option
from quothcli.cli.exit_status import Refused, say
from quothcli.cli.keys import PUBLIC_SUFFIX, server_key_of, write_key
from quothcli.cli.options import WithoutBroker
from quothwire.errors import error
from quothwire.security.key_file import CLIENT_NAME, CLIENT_NAME_RULE, SERVER_KEY_NAMES, Key, read_key

_BARE = r"[A-Za-z0-9_-]+"
"""A name that TOML takes without quotes."""
TOKEN_PREFIX = "quoth_"
"""By which a token is recognised where one was published by mistake."""
TOKEN_BYTES = 32

app = group("Make the keys of clients and of a broker, and show them.")


@command(
    app,
    "new",
    "quoth key new broker --dir /etc/quoth",
    "quoth key new alice --server broker.pub",
    "quoth key new alice --server broker.pub --server next-broker.pub",
)
def new(
    session: WithoutBroker,
    name: Annotated[str, argument("NAME", "The client, or the broker; the files are called so, too.")],
    server: Annotated[
        list[str] | None,
        option(
            "--server FILE|KEY",
            "For the key of a client: the public key of its broker, or a file with it. Given twice, the "
            "second one is the key that the broker will have.",
        ),
    ] = None,
    folder: Annotated[
        Path, option("--dir DIR", "Where the files are made (default: the current directory).")
    ] = Path(),
    force: Annotated[bool, option("--force", "Replace files of that name, whose key is gone then.")] = False,
) -> None:
    """Make a key for a client or, without --server, for a broker.

    NAME.key is the secret one, all that its owner needs; no other user may read it. NAME.pub is the public
    one, which others may have. Then it prints the lines that the broker needs, and where they go. A KEY may
    have signs that a shell takes for its own: put it in single quotes.
    """
    if not CLIENT_NAME.fullmatch(name):
        raise BadParameter(f"{name!r:.120} is no name: {CLIENT_NAME_RULE}", param_hint="NAME")
    if len(server or ()) > len(SERVER_KEY_NAMES):
        raise BadParameter("at most twice: the key of now and the next one", param_hint="--server")
    servers = tuple(map(server_key_of, server or ()))
    public, secret = _pair()
    key = Key(name, public, secret, servers)
    secret_file, public_file = (str(one) for one in write_key(folder, key, replace=force))
    where, lines = _for_broker(key, folder.resolve() / Path(secret_file).name)
    text = f"made {secret_file}, which is secret, and {public_file} with the public key {public}\n{where}:"
    files = {"key_file": secret_file, "public_file": public_file}
    content = {**_content(key), **files, "where": where, "lines": lines}
    what = f"made {secret_file} and {public_file}"
    session.printer.done(what, "\n".join([text, *(f"    {line}" for line in lines)]), content, public)
    if not servers:
        say(f"quoth: a client gets its key by `quoth key new CLIENT --server {public_file}`")


@command(app, "show", "quoth key show alice.key", "quoth key show /etc/quoth/broker.pub --format raw")
def show(
    session: WithoutBroker,
    file: Annotated[Path, argument("FILE", "A key file, secret or public.")],
) -> None:
    """Check a key file, and print it without its secret.

    That is the name, the public key, and the public keys of the broker. Exit status 2 says that it is no key
    file, that its two keys do not belong together, or that other users may read its secret.
    """
    key = read_key(file)
    _check_pair(file, key)
    rows = [("name", key.name or "-"), ("public key", key.public_key)]
    rows += [
        (name.replace("-", " "), one) for name, one in zip(SERVER_KEY_NAMES, key.server_keys, strict=False)
    ]
    rows.append(("secret key", "in the file, which no other user may read" if key.secret_key else "-"))
    text = "\n".join(f"{label:<15}  {value}" for label, value in rows)
    session.printer.answer(text, {**_content(key), "key_file": str(file)}, key.public_key)


@command(app, "token", "quoth key token alice --key-file /etc/quoth/alice.key", "quoth key token metrics")
def token(
    session: WithoutBroker,
    name: Annotated[str, argument("NAME", "The name of the token, which logs and the broker show.")],
    key_file: Annotated[
        Path | None,
        option("--key-file FILE", "The key whose rights it has; without one it only admits."),
    ] = None,
) -> None:
    """Make a token for `quoth web`, and print it once.

    Nothing is written: the token goes to its owner, and the lines to the tokens file of `quoth web`. They
    hold its SHA-256, from which the token cannot be found.
    """
    if not CLIENT_NAME.fullmatch(name):
        raise BadParameter(f"{name!r:.120} is no name: {CLIENT_NAME_RULE}", param_hint="NAME")
    if key_file is not None and not read_key(key_file).secret_key:
        raise error("bad_setting", f"the key file {key_file} has no secret-key", "name the secret file")
    made = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    lines = [f"[tokens.{_toml_name(name)}]", f'sha256 = "{hashlib.sha256(made.encode()).hexdigest()}"']
    if key_file is not None:
        lines.append(f"key_file = {json.dumps(str(key_file.absolute()), ensure_ascii=False)}")
    where = "for the tokens file of quoth web"
    text = "\n".join([f"token {made}", f"{where}:", *(f"    {line}" for line in lines)])
    content = {"name": name, "token": made, "where": where, "lines": lines}
    session.printer.answer(text, content, made)


def _content(key: Key) -> dict[str, Any]:
    """Make the object of a key, without its secret."""
    return {
        "name": key.name,
        "public_key": key.public_key,
        "server_keys": list(key.server_keys),
        "has_secret": bool(key.secret_key),
    }


def _for_broker(key: Key, path: Path) -> tuple[str, list[str]]:
    """Return where the broker has to know of a new key, and the lines for that place."""
    if key.server_keys:
        lines = [f"[clients.{_toml_name(key.name)}]", f'key = "{key.public_key}"']
        return "for the broker's clients file, to which the client's rights are added", lines
    files = {"server_key": path, "clients": path.with_name("clients.toml")}
    lines = [f"{name} = {json.dumps(str(file), ensure_ascii=False)}" for name, file in files.items()]
    return "for the broker's configuration, with the file of its clients' keys", ["[security]", *lines]


def _toml_name(name: str) -> str:
    """Return a name as TOML has it in a header."""
    return name if re.fullmatch(_BARE, name) else f'"{name}"'


def _pair() -> tuple[str, str]:
    """Make a public and a secret key. Raises `Refused` ``no_curve`` if this libzmq has none."""
    import zmq

    try:
        public, secret = zmq.curve_keypair()
    except zmq.ZMQError as problem:
        hint = "install pyzmq from its wheels, which have it; nothing was made"
        raise Refused("no_curve", f"this libzmq makes no keys: {problem.strerror}", hint) from None
    return public.decode(), secret.decode()


def _check_pair(file: Path, key: Key) -> None:
    """Raise ``bad_setting`` if a secret key has another public key than the file says."""
    import zmq

    if key.secret_key and zmq.curve_public(key.secret_key.encode()).decode() != key.public_key:
        text = f"the key file {file} has a public-key that does not belong to its secret-key"
        raise error("bad_setting", text, f"copy the whole file again, or the {PUBLIC_SUFFIX} file")
