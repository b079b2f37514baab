"""Key files in C: what is taken, and what is refused by name, with what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.client.doors import Doors, new_pair
from kit.machine.commands import Ended, Running
from kit.machine.cprograms import MakeCalls, fail_each_allocation

Start = Callable[..., Running]
TIMEOUT_MS = "20000"

Make = Callable[[Doors, Path], Path]
"""Writes a key file, or something else, into a folder."""


def changed(doors: Doors, old: str, new: str) -> Path:
    """Write the key file of alice with another text in it."""
    text = doors.key_file().read_text()
    assert old in text
    return doors.write(text.replace(old, new, 1))


def cut(doors: Doors, characters: int) -> Path:
    """Write the key file of alice without its last characters."""
    return doors.write(doors.key_file().read_text()[:-characters])


def with_mode(doors: Doors, mode: int) -> Path:
    path = doors.key_file()
    path.chmod(mode)
    return path


def fifo(folder: Path) -> Path:
    os.mkfifo(path := folder / "fifo", 0o600)
    return path


REFUSED: dict[str, tuple[Make, str]] = {
    "missing": (lambda _, folder: folder / "none", "FILE: No such file or directory"),
    "a folder": (lambda _, folder: folder, "FILE: it is no regular file"),
    "a pipe": (lambda _, folder: fifo(folder), "FILE: it is no regular file"),
    "readable for the group": (
        lambda doors, _: with_mode(doors, 0o640),
        "FILE has the mode 0640, and its secret is for the owner alone: chmod 600 FILE",
    ),
    "writable for others": (
        lambda doors, _: with_mode(doors, 0o602),
        "FILE has the mode 0602, and its secret is for the owner alone: chmod 600 FILE",
    ),
    "no secret": (
        lambda doors, _: changed(doors, "secret-key", "secret"),
        "FILE has no secret-key in a table [curve]",
    ),
    "no server key": (
        lambda doors, _: changed(doors, "server-key", "server"),
        "FILE has no server-key, the broker's public key, in a table [metadata]",
    ),
    "only the next server key": (
        lambda doors, _: changed(doors, "server-key", "server-key-next"),
        "FILE has a server-key-next and no server-key",
    ),
    "keys outside of their table": (
        lambda doors, _: changed(doors, "[curve]", "[other]"),
        "FILE has no public-key in a table [curve]",
    ),
    "cut within a key": (
        lambda doors, _: cut(doors, 10),
        "FILE, line 6: secret-key is no text in quotes",
    ),
    "a short key": (
        lambda doors, _: changed(doors, doors.alice.secret, doors.alice.secret[:31]),
        "FILE, line 6: secret-key is no key, which is 40 characters of Z85 (31 characters)",
    ),
    "a key of other characters": (
        lambda doors, _: changed(doors, doors.alice.public, "~" * 40),
        "FILE, line 5: public-key is no key, which is 40 characters of Z85 (40 characters)",
    ),
    "a key above 32 bytes": (
        lambda doors, _: changed(doors, doors.pair.public, "#" * 40),
        "FILE, line 3: server-key is no key, which is 40 characters of Z85 (40 characters)",
    ),
    "a key twice": (
        lambda doors, _: changed(doors, "[curve]", f'server-key = "{doors.pair.public}"'),
        "FILE, line 4: another server-key",
    ),
    "keys of two pairs": (
        lambda doors, _: changed(doors, doors.alice.public, new_pair().public),
        "FILE: its public-key is not that of its secret-key",
    ),
    "a name with control characters": (
        lambda doors, _: changed(doors, "alice", "al\x1b[31mice"),
        "FILE, line 2: a name that is no printable UTF-8",
    ),
    "empty": (lambda doors, _: doors.write(""), "FILE has no public-key in a table [curve]"),
    "garbage": (
        lambda doors, _: doors.write(bytes(range(256)) * 9),
        "FILE has no public-key in a table [curve]",
    ),
    "large": (lambda doors, _: doors.write("#\n" * 40_000), "FILE: it has more than 64 KiB"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_unusable_key_file_is_refused_by_name_in_one_line(
    start: Start, doors: Doors, tmp_path: Path, case: str
) -> None:
    make, text = REFUSED[case]
    path = make(doors, tmp_path)
    expected = f"quoth-tail: bad_setting: the key file {text.replace('FILE', str(path))}\n"
    assert start("quoth-tail", "-k", str(path), doors.url, "t").end() == Ended(2, b"", expected)


@pytest.mark.parametrize("characters", range(1, 200, 13))
def test_a_truncated_key_file_never_makes_a_connection(
    make_calls: MakeCalls, doors: Doors, characters: int
) -> None:
    path = cut(doors, characters + 1)  # the end of the last line is none of the key
    calls = make_calls(doors.url, TIMEOUT_MS, "0", str(path))
    (line,) = calls.greeting
    assert line.startswith(f"error bad_setting 0 the key file {path}")
    assert doors.alice.secret not in line


FORMS: dict[str, Callable[[Doors], str]] = {
    "comments and spaces": lambda doors: (
        f"# a comment = \"none\"\n  [ curve ] # of alice\n\tsecret-key='{doors.alice.secret}'# secret\n"
        f'public-key   =   "{doors.alice.public}"   # public\n\n'
        f'[metadata]\nserver-key = "{doors.pair.public}"'
    ),
    "lines of Windows": lambda doors: doors.key_file().read_text().replace("\n", "\r\n"),
    "unknown lines and tables": lambda doors: (
        f'title = "keys"\n[other]\nserver-key = "none"\npublic-key = 7\n{doors.key_file().read_text()}'
        'created = 2026-01-01\nlist = [1,\n2]\n[[more]]\nsecret-key = "none"\n'
    ),
    "an escape in the name": lambda doors: doors.key_file().read_text().replace("alice", 'a \\"b\\" \\\\'),
    "a long name": lambda doors: doors.key_file().read_text().replace("alice", "\N{SNOWMAN}" * 100),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_key_file_in_another_form_of_toml_is_taken(make_calls: MakeCalls, doors: Doors, form: str) -> None:
    path = doors.write(FORMS[form](doors))
    assert make_calls(doors.url, TIMEOUT_MS, "0", str(path))("ping")[0].startswith("ok ")


def test_a_link_to_a_key_file_is_followed_and_the_mode_is_that_of_the_file(
    start: Start, make_calls: MakeCalls, doors: Doors, tmp_path: Path
) -> None:
    (link := tmp_path / "link").symlink_to(path := doors.key_file())
    assert make_calls(doors.url, TIMEOUT_MS, "0", str(link))("ping")[0].startswith("ok ")
    path.chmod(0o644)
    assert start("quoth-tail", "-k", str(link), doors.url, "t").end().status == 2


def test_an_allocation_that_fails_is_an_error_with_a_key_file_too(
    built: Path, doors: Doors, tmp_path: Path, topic: str
) -> None:
    (folder := tmp_path / "built").mkdir()
    (folder / "libquoth.a").symlink_to(built / "libquoth.a")
    assert fail_each_allocation(folder, doors.url, topic, str(doors.key_file())) > 10


def test_an_explicit_pair_of_keys_is_taken_without_a_file(make_calls: MakeCalls, doors: Doors) -> None:
    keys = doors.pair.public, doors.alice.public, doors.alice.secret
    assert make_calls(doors.url, TIMEOUT_MS, "0", *keys)("ping")[0].startswith("ok ")
