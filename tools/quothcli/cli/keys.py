"""Key files of commands: reads that of a client, writes new ones, finds the key of a broker."""

from __future__ import annotations

import os
from pathlib import Path

from quothcli.cli.exit_status import Refused
from quothwire.errors import error
from quothwire.security.key_file import Key, encode_key, is_key, read_key
from quothwire.text.paths import given_path, naming, open_regular

SECRET_SUFFIX, PUBLIC_SUFFIX = ".key", ".pub"
_MODES = {SECRET_SUFFIX: 0o600, PUBLIC_SUFFIX: 0o644}


def server_key_of(given: str) -> str:
    """Return the public key of a broker, of which the key itself or a key file was typed.

    Raises `RequestError` ``bad_setting`` if it is neither, or the file of a client.
    """
    path = given_path(given, "--server")
    if is_key(given) and not path.exists():
        return given
    key = read_key(path)
    if key.server_keys:
        hint = f"--server takes the broker's own file, or its NAME{PUBLIC_SUFFIX}"
        raise error("bad_setting", f"the key file {path} is that of a client: it has a server-key", hint)
    return key.public_key


def write_key(folder: Path, key: Key, *, replace: bool) -> tuple[Path, Path]:
    """Write the files NAME.key, which only its owner may read, and NAME.pub; returns their paths.

    Both files of a client have the public keys of its broker, which tell that it is a client's. replace: it
    takes the place of files of that name, the old one of each being there until the new one is whole. Raises
    `Refused` ``key_exists`` before anything is written, or OSError; then what was made is removed.
    """
    from quothlog.storage.filesystem import PosixFileSystem, durable_names

    texts = {SECRET_SUFFIX: encode_key(key), PUBLIC_SUFFIX: encode_key(key._replace(secret_key=""))}
    paths = {suffix: folder / (key.name + suffix) for suffix in texts}
    if not replace:
        _refuse_existing(*paths.values())
    made: list[Path] = []
    try:
        with durable_names(PosixFileSystem(), folder):
            for suffix, path in paths.items():
                _write(path, texts[suffix].encode(), _MODES[suffix], made, replace=replace)
    except OSError as problem:
        for path in made:
            path.unlink(missing_ok=True)
        if isinstance(problem, FileExistsError):  # made by another command meanwhile
            _refuse_existing(*paths.values())
        raise
    return paths[SECRET_SUFFIX], paths[PUBLIC_SUFFIX]


def _write(path: Path, content: bytes, mode: int, made: list[Path], *, replace: bool) -> None:
    """Write a file that is not there yet. made: gets the path that has to be removed if this fails."""
    begun = path
    if replace:
        begun = path.with_name(f".{path.name}.{os.getpid()}")
        begun.unlink(missing_ok=True)
    fd = open_regular(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    made.append(begun)
    with naming(path), open(fd, "wb") as file:
        os.fchmod(fd, mode)  # whatever the umask is
        file.write(content)
        file.flush()
        os.fsync(fd)
    if replace:
        os.replace(begun, path)


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if os.path.lexists(path):
            hint = "take another name or --dir; --force replaces both files, and their key is gone then"
            raise Refused("key_exists", f"{path} is there already and was kept", hint)
