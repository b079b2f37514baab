"""Key files in C: what is taken, and what is refused by name, with what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.client.keyed import KeyedBroker
from kit.keys import KeyFiles, new_key
from kit.machine.commands import Ended, Running
from kit.machine.cprograms import MakeCalls, fail_each_allocation
from quothwire.security.key_file import Key, encode_key, read_key

Start = Callable[..., Running]
TIMEOUT_MS = "20000"

NOWHERE = "tcp://127.0.0.1:1"
SERVER = new_key("broker")
ALICE = new_key("alice", SERVER)

Make = Callable[[KeyFiles, Path], Path]
"""Writes a key file, or something else, into a folder."""


def changed(files: KeyFiles, old: str, new: str) -> Path:
    """Write the key file of alice with another text in it."""
    text = encode_key(ALICE)
    assert old in text
    return files.write(text.replace(old, new, 1))


def cut(files: KeyFiles, characters: int) -> Path:
    """Write the key file of alice without its last characters."""
    return files.write(encode_key(ALICE)[:-characters])


def with_mode(files: KeyFiles, mode: int) -> Path:
    return files.write(encode_key(ALICE), mode=mode)


def fifo(folder: Path) -> Path:
    os.mkfifo(path := folder / "fifo", 0o600)
    return path


REFUSED: dict[str, tuple[Make, str]] = {
    "missing": (lambda _, folder: folder / "none", "FILE: No such file or directory"),
    "a folder": (lambda _, folder: folder, "FILE: it is no regular file"),
    "a pipe": (lambda _, folder: fifo(folder), "FILE: it is no regular file"),
    "readable for the group": (
        lambda files, _: with_mode(files, 0o640),
        "FILE has the mode 0640, and its secret is for the owner alone: chmod 600 FILE",
    ),
    "writable for others": (
        lambda files, _: with_mode(files, 0o602),
        "FILE has the mode 0602, and its secret is for the owner alone: chmod 600 FILE",
    ),
    "no secret": (
        lambda files, _: changed(files, "secret-key", "secret"),
        "FILE has no secret-key in a table [curve]",
    ),
    "no server key": (
        lambda files, _: changed(files, "server-key", "server"),
        "FILE has no server-key, the broker's public key, in a table [metadata]",
    ),
    "only the next server key": (
        lambda files, _: changed(files, "server-key", "server-key-next"),
        "FILE has a server-key-next and no server-key",
    ),
    "keys outside of their table": (
        lambda files, _: changed(files, "[curve]", "[other]"),
        "FILE has no public-key in a table [curve]",
    ),
    "cut within a key": (
        lambda files, _: cut(files, 10),
        "FILE, line 8: secret-key is no text in quotes",
    ),
    "a short key": (
        lambda files, _: changed(files, ALICE.secret_key, ALICE.secret_key[:31]),
        "FILE, line 8: secret-key is no key, which is 40 characters of Z85 (31 characters)",
    ),
    "a key of other characters": (
        lambda files, _: changed(files, ALICE.public_key, "~" * 40),
        "FILE, line 7: public-key is no key, which is 40 characters of Z85 (40 characters)",
    ),
    "a key above 32 bytes": (
        lambda files, _: changed(files, SERVER.public_key, "#" * 40),
        "FILE, line 4: server-key is no key, which is 40 characters of Z85 (40 characters)",
    ),
    "a key twice": (
        lambda files, _: changed(files, "[curve]", f'server-key = "{SERVER.public_key}"'),
        "FILE, line 6: another server-key",
    ),
    "keys of two pairs": (
        lambda files, _: changed(files, ALICE.public_key, new_key("other").public_key),
        "FILE: its public-key is not that of its secret-key",
    ),
    "a name with control characters": (
        lambda files, _: changed(files, '"alice"', '"al\x1b[31mice"'),
        "FILE, line 3: a name that is no printable UTF-8",
    ),
    "empty": (lambda files, _: files.write(""), "FILE has no public-key in a table [curve]"),
    "garbage": (
        lambda files, _: files.write(bytes(range(256)) * 9),
        "FILE has no public-key in a table [curve]",
    ),
    "large": (lambda files, _: files.write("#\n" * 40_000), "FILE: it has more than 64 KiB"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_unusable_key_file_is_refused_by_name_in_one_line(
    start: Start, files: KeyFiles, tmp_path: Path, case: str
) -> None:
    make, text = REFUSED[case]
    path = make(files, tmp_path)
    expected = f"quoth-tail: bad_setting: the key file {text.replace('FILE', str(path))}\n"
    assert start("quoth-tail", "-k", str(path), NOWHERE, "t").end() == Ended(2, b"", expected)


@pytest.mark.parametrize("characters", range(1, 200, 13))
def test_a_truncated_key_file_never_makes_a_connection(
    make_calls: MakeCalls, files: KeyFiles, characters: int
) -> None:
    path = cut(files, characters + 1)  # the end of the last line is none of the key
    calls = make_calls(NOWHERE, TIMEOUT_MS, "0", str(path))
    (line,) = calls.greeting
    assert line.startswith(f"error bad_setting 0 the key file {path}")
    assert ALICE.secret_key not in line


FORMS: dict[str, Callable[[Key], str]] = {
    "comments and spaces": lambda key: (
        f"# a comment = \"none\"\n  [ curve ] # of alice\n\tsecret-key='{key.secret_key}'# secret\n"
        f'public-key   =   "{key.public_key}"   # public\n\n'
        f'[metadata]\nserver-key = "{key.server_keys[0]}"'
    ),
    "lines of Windows": lambda key: encode_key(key).replace("\n", "\r\n"),
    "unknown lines and tables": lambda key: (
        f'title = "keys"\n[other]\nserver-key = "none"\npublic-key = 7\n{encode_key(key)}'
        'created = 2026-01-01\nlist = [1,\n2]\n[[more]]\nsecret-key = "none"\n'
    ),
    "an escape in the name": lambda key: encode_key(key).replace('"alice"', '"al \\"b\\" \\\\"'),
    "a long name": lambda key: encode_key(key).replace("alice", "\N{SNOWMAN}" * 100),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_key_file_in_another_form_of_toml_is_taken(
    make_calls: MakeCalls, keyed: KeyedBroker, form: str
) -> None:
    path = keyed.files.write(FORMS[form](read_key(keyed.alice)))
    assert make_calls(keyed.url, TIMEOUT_MS, "0", str(path))("ping")[0].startswith("ok ")


def test_a_link_to_a_key_file_is_followed_and_the_mode_is_that_of_the_file(
    start: Start, make_calls: MakeCalls, keyed: KeyedBroker, tmp_path: Path
) -> None:
    (link := tmp_path / "link").symlink_to(keyed.alice)
    assert make_calls(keyed.url, TIMEOUT_MS, "0", str(link))("ping")[0].startswith("ok ")
    keyed.alice.chmod(0o644)
    assert start("quoth-tail", "-k", str(link), keyed.url, "t").end().status == 2


def test_an_allocation_that_fails_is_an_error_with_a_key_file_too(
    built: Path, keyed: KeyedBroker, tmp_path: Path, topic: str
) -> None:
    (folder := tmp_path / "built").mkdir()
    (folder / "libquoth.a").symlink_to(built / "libquoth.a")
    assert fail_each_allocation(folder, keyed.url, topic, str(keyed.alice)) > 10


def test_an_explicit_pair_of_keys_is_taken_without_a_file(make_calls: MakeCalls, keyed: KeyedBroker) -> None:
    alice = read_key(keyed.alice)
    keys = keyed.server.public_key, alice.public_key, alice.secret_key
    assert make_calls(keyed.url, TIMEOUT_MS, "0", *keys)("ping")[0].startswith("ok ")
