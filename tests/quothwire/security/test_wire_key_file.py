"""Key files: what is written is read again, here and by zmq.auth; what is wrong is refused by name."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path

import pytest
import zmq
import zmq.auth

from kit.text.wording import code_of, error_of, names_python
from quothwire.security.key_file import KEY_FILE_BYTES_MAX, Key, encode_key, is_key, read_key

PUBLIC, SECRET = (half.decode() for half in zmq.curve_keypair())
SERVER, NEXT = (zmq.curve_keypair()[0].decode() for _ in range(2))

KEYS = {
    "a client": Key("alice", PUBLIC, SECRET, (SERVER,)),
    "a client of a broker whose key is replaced": Key("alice", PUBLIC, SECRET, (SERVER, NEXT)),
    "a broker": Key("broker", PUBLIC, SECRET),
    "a public file": Key("alice", PUBLIC),
    "no name": Key("", PUBLIC, SECRET, (SERVER,)),
    "a name with quotes and a backslash": Key('"al\\ice" ünd [curve] #', PUBLIC, SECRET),
}


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    """Write a file of that mode and return its path."""
    path = folder / "alice.key"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_written_key_is_read_again(tmp_path: Path, key: Key) -> None:
    assert read_key(written(tmp_path, encode_key(key))) == key
    assert read_key(str(tmp_path / "alice.key")) == key


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_zmq_auth_reads_a_written_key(tmp_path: Path, key: Key) -> None:
    public, secret = zmq.auth.load_certificate(written(tmp_path, encode_key(key)))
    assert (public.decode(), (secret or b"").decode()) == (key.public_key, key.secret_key)


def test_every_key_of_libzmq_is_accepted() -> None:
    for _ in range(200):
        assert all(is_key(half.decode()) for half in zmq.curve_keypair())
    assert not is_key("#" * 40), "85^5 - 1 is above 32 bits"
    assert not is_key(PUBLIC[:-1])
    assert not is_key(PUBLIC[:-1] + '"')
    assert not is_key(PUBLIC.encode())


def test_a_file_with_a_secret_is_refused_if_others_may_read_it(tmp_path: Path) -> None:
    for mode in (0o640, 0o604, 0o660, 0o602, 0o610):
        path = written(tmp_path, encode_key(KEYS["a client"]), mode)
        problem = error_of(read_key, path)
        assert f"{mode:04o}" in problem.text
        assert f"chmod 600 {path}" in problem.hint
    for mode in (0o600, 0o400, 0o700):
        assert read_key(written(tmp_path, encode_key(KEYS["a client"]), mode)) == KEYS["a client"]


def test_a_public_file_may_be_read_by_all(tmp_path: Path) -> None:
    assert read_key(written(tmp_path, encode_key(KEYS["a public file"]), 0o644)) == KEYS["a public file"]


def test_a_link_is_followed_and_the_file_behind_it_must_be_secret(tmp_path: Path) -> None:
    path = written(tmp_path, encode_key(KEYS["a client"]))
    link = tmp_path / "link.key"
    link.symlink_to(path.name)
    assert read_key(link) == KEYS["a client"]
    path.chmod(0o644)
    assert "chmod" in error_of(read_key, link).hint


WRONG = {
    "no TOML": ("metadata\n    name = alice\n", "is no TOML"),
    "no bytes": ("", "has no public-key"),
    "no UTF-8": (b"[curve]\n# \xff\n", "is not UTF-8"),
    "too long": (b"#" * (KEY_FILE_BYTES_MAX + 1), "has more than 65536 bytes"),
    "too many digits": (f"[curve]\npublic-key = {'9' * 5000}\n", "too long to be read"),
    "a misspelt table": (f'[curv]\npublic-key = "{PUBLIC}"\n', "is curve meant?"),
    "a misspelt key": (f'[curve]\npublic_key = "{PUBLIC}"\n', "is public-key meant?"),
    "a value for a table": ("curve = 1\n", "where the table [curve] has to be"),
    "a number for a key": ("[curve]\npublic-key = 1\n", "public-key: a key is 40 characters"),
    "a short key": (f'[curve]\npublic-key = "{PUBLIC[1:]}"\n', "(39 characters)"),
    "another alphabet": (f'[curve]\npublic-key = "{"~" * 40}"\n', "(40 characters)"),
    "a number as name": (f'[metadata]\nname = 1\n[curve]\npublic-key = "{PUBLIC}"\n', "name: a name is"),
    "a line break in a name": (
        f'[metadata]\nname = "a\\nb"\n[curve]\npublic-key = "{PUBLIC}"\n',
        "printable",
    ),
    "only the next server key": (
        f'[metadata]\nserver-key-next = "{SERVER}"\n[curve]\npublic-key = "{PUBLIC}"\n',
        "and no server-key",
    ),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_what_is_no_key_file_is_refused_by_name(tmp_path: Path, text: str | bytes, words: str) -> None:
    path = written(tmp_path, text)
    problem = error_of(read_key, path)
    assert problem.code == "bad_setting"
    assert str(path) in problem.text
    assert words in str(problem)
    assert "\n" not in str(problem)
    assert not names_python(problem)


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    missing = tmp_path / "missing.key"
    assert f"{missing}: No such file or directory" in error_of(read_key, missing).text
    assert f"{tmp_path}: Is a directory" in error_of(read_key, tmp_path).text
    assert f"{fifo}: it is no regular file" in error_of(read_key, fifo).text
    assert "empty path" in error_of(read_key, "").text


def test_neither_repr_nor_errors_show_a_secret(tmp_path: Path, rng: random.Random) -> None:
    key = KEYS["a client"]
    assert SECRET not in f"{key} {key!r} {[key]!r}"
    assert pickle.loads(pickle.dumps(key)) == key
    for _ in range(20):
        cut = rng.randrange(1, len(SECRET))
        path = written(tmp_path, f'[curve]\npublic-key = "{PUBLIC}"\nsecret-key = "{SECRET[:cut]}"\n')
        assert SECRET[:8] not in str(error_of(read_key, path))
    broken = key._replace(secret_key=SECRET[:-1])
    assert SECRET[:8] not in str(error_of(encode_key, broken))


def test_no_key_file_is_written_for_what_is_no_key() -> None:
    wrong = [
        Key("a\nb", PUBLIC),
        Key("a" * 101, PUBLIC),
        Key("a", "short"),
        Key("a", PUBLIC, "short"),
        Key("a", PUBLIC, SECRET, ("short",)),
        Key("a", PUBLIC, SECRET, (SERVER, NEXT, PUBLIC)),
    ]
    for key in wrong:
        assert code_of(encode_key, key) == "bad_setting"


def test_what_is_no_key_file_says_what_makes_one(tmp_path: Path) -> None:
    (tmp_path / "empty").touch(mode=0o600)
    assert error_of(read_key, tmp_path / "empty").hint == "`quoth key new` makes key files"
