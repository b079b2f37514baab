"""`quoth key` makes keys that libzmq takes, and shows all of them but their secrets."""

from __future__ import annotations

import os
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
import zmq
import zmq.auth

from kit.deadlines import DEADLINE_S
from kit.machine.commands import COMMAND, Command, Ended
from kit.machine.tracing import calls_in, needs_strace, traced
from quothd.access.clients_file import parse_clients
from quothwire.security.key_file import Key, encode_key, read_key


@pytest.fixture
def make(alone: Command, tmp_path: Path) -> Made:
    """Makes keys in the directory of the test."""
    return Made(alone, tmp_path)


class Made:
    """Runs `quoth key new` in a folder."""

    def __init__(self, quoth: Command, folder: Path) -> None:
        self._quoth, self.folder = quoth, folder

    def __call__(self, *typed: str) -> Ended:
        return self._quoth("key", "new", *typed, "--dir", str(self.folder))

    def key(self, name: str) -> Key:
        return read_key(self.folder / f"{name}.key")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_broker_gets_a_secret_and_a_public_file_and_the_lines_of_its_configuration(make: Made) -> None:
    made = make("broker")
    assert (made.status, sorted(os.listdir(make.folder))) == (0, ["broker.key", "broker.pub"])
    key, path = make.key("broker"), make.folder / "broker.key"
    assert key.server_keys == ()
    assert zmq.curve_public(key.secret_key.encode()).decode() == key.public_key
    assert read_key(make.folder / "broker.pub") == Key("broker", key.public_key)
    assert [mode(path), mode(make.folder / "broker.pub")] == [0o600, 0o644]
    assert zmq.auth.load_certificate(path) == (key.public_key.encode(), key.secret_key.encode())
    lines = "\n".join(made.lines[2:])
    clients = str(make.folder / "clients.toml")
    assert tomllib.loads(lines) == {"security": {"server_key": str(path), "clients": clients}}
    assert f"--server {make.folder}/broker.pub" in made.err
    assert key.secret_key not in f"{made}"


def test_client_gets_the_broker_s_key_from_a_file_or_as_it_is(make: Made, tmp_path: Path) -> None:
    for name in ("broker", "next"):
        make(name)
    now, later = (make.key(name).public_key for name in ("broker", "next"))
    files = [str(tmp_path / name) for name in ("broker.pub", "broker.key", "next.key")]
    for name, servers, known in (
        ("alice", files[:1], (now,)),
        ("bob", [files[1], files[2]], (now, later)),
        ("carol", [now, later], (now, later)),
    ):
        made = make(name, *(word for one in servers for word in (f"--server={one}",)))
        key = make.key(name)
        assert (made.status, key.name, key.server_keys) == (0, name, known), made
        assert tomllib.loads("\n".join(made.lines[2:])) == {"clients": {name: {"key": key.public_key}}}
        assert read_key(tmp_path / f"{name}.pub") == Key(name, key.public_key, server_keys=known)


def test_name_with_a_dot_is_one_client_of_the_clients_file(make: Made) -> None:
    make("broker")
    made = make("shop.till-1", "--server", str(make.folder / "broker.pub"))
    assert tomllib.loads("\n".join(made.lines[2:]))["clients"].keys() == {"shop.till-1"}


def test_every_name_of_a_client_is_one_of_the_clients_file(make: Made) -> None:
    make("broker")
    for name in ("a@example.org", "@", "0.-_@", "a" * 100):
        made = make(name, "--server", str(make.folder / "broker.pub"))
        assert parse_clients("\n".join(made.lines[2:]), "clients.toml").by_name.keys() == {name}


def test_json_and_raw_tell_the_public_key_and_no_secret(make: Made) -> None:
    (made,) = make("broker", "--format", "json").objects
    key = make.key("broker")
    assert made["public_key"] == key.public_key
    assert made["key_file"] == str(make.folder / "broker.key")
    assert made["lines"][0] == "[security]"
    raw = make("alice", "--server", made["public_file"], "--format", "raw")
    assert raw.lines == [make.key("alice").public_key]
    assert key.secret_key not in str(made)


def test_existing_file_is_kept_until_it_is_forced(make: Made) -> None:
    make("alice")
    before = {name: (make.folder / name).read_bytes() for name in os.listdir(make.folder)}
    for left in ("alice.pub", "alice.key"):
        happened, advice = make("alice").refused(1)
        assert "key_exists: " in happened
        assert "was kept" in happened
        assert "--force" in advice
        (make.folder / left).unlink()
        happened, _ = make("alice").refused(1)
        (make.folder / left).write_bytes(before[left])
    (make.folder / "alice.key").chmod(0o644)
    assert make("alice", "--force").status == 0
    assert sorted(os.listdir(make.folder)) == sorted(before)
    assert (make.folder / "alice.key").read_bytes() != before["alice.key"]
    assert mode(make.folder / "alice.key") == 0o600
    assert read_key(make.folder / "alice.pub").public_key == make.key("alice").public_key


def test_link_in_the_place_of_a_key_is_not_followed(make: Made, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "alice.key").symlink_to(elsewhere)
    make("alice").refused(1)
    assert not elsewhere.exists()
    assert make("alice", "--force").status == 0
    assert not (tmp_path / "alice.key").is_symlink()
    assert not elsewhere.exists()


def test_file_that_cannot_be_written_leaves_none_behind(make: Made, alone: Command) -> None:
    missing = make.folder / "missing"
    alone("key", "new", "alice", "--dir", str(missing)).refused(3)
    assert os.listdir(make.folder) == []
    full = alone.prepared("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))")
    happened, advice = full("key", "new", "alice", "--dir", str(make.folder)).refused(1)
    assert happened == f"quoth: os_error: {make.folder}/alice.key: File too large"
    assert advice == "hint: is there room for the file?"
    assert os.listdir(make.folder) == []


WRONG = {
    "a path as a name": ("a/b",),
    "no name": ("",),
    "a hidden name": (".alice",),
    "a name that is too long": ("a" * 101,),
    "three brokers": ("alice", *["--server", "x"] * 3),
    "a broker's key with a misprint": ("alice", "--server", "x" * 39),
    "no broker's key": ("alice", "--server", ""),
}


def test_what_is_typed_wrongly_makes_nothing(make: Made) -> None:
    for case, typed in WRONG.items():
        make(*typed).refused(2)
        assert os.listdir(make.folder) == [], case


def test_file_of_a_client_is_not_taken_for_that_of_a_broker(make: Made) -> None:
    make("broker")
    make("alice", "--server", str(make.folder / "broker.pub"))
    for file in ("alice.key", "alice.pub"):
        happened, advice = make("bob", "--server", str(make.folder / file)).refused(2)
        assert f"{file} is that of a client" in happened
        assert "NAME.pub" in advice
    assert not (make.folder / "bob.key").exists()


def test_show_prints_all_but_the_secret(make: Made, alone: Command) -> None:
    make("broker")
    make("alice", "--server", str(make.folder / "broker.pub"))
    alice, broker = make.key("alice"), make.key("broker")
    file = str(make.folder / "alice.key")
    shown = alone("key", "show", file)
    assert [line.split()[-1] for line in shown.lines[:3]] == ["alice", alice.public_key, broker.public_key]
    (content,) = alone("key", "show", file, "--format", "json").objects
    assert content == {
        "name": "alice",
        "public_key": alice.public_key,
        "server_keys": [broker.public_key],
        "has_secret": True,
        "key_file": file,
    }
    public = alone("key", "show", str(make.folder / "alice.pub"), "--format", "raw")
    assert public.lines == [alice.public_key]
    assert alice.secret_key not in f"{shown}{content}"


def test_show_refuses_a_file_that_others_may_read_and_keys_that_do_not_belong_together(
    make: Made, alone: Command
) -> None:
    make("alice")
    path = make.folder / "alice.key"
    path.chmod(0o640)
    happened, advice = alone("key", "show", str(path)).refused(2)
    assert "0640" in happened
    assert f"chmod 600 {path}" in advice
    path.chmod(0o600)
    other = zmq.curve_keypair()[0].decode()
    path.write_text(encode_key(make.key("alice")._replace(public_key=other)))
    happened, _ = alone("key", "show", str(path)).refused(2)
    assert "does not belong to its secret-key" in happened
    alone("key", "show", str(make.folder / "missing.key")).refused(2)


def test_words_of_other_programs_are_answered_with_the_line_to_type(alone: Command) -> None:
    for typed, meant in (
        (("keygen", "alice"), "quoth key new alice"),
        (("key", "create", "alice"), "quoth key new alice"),
        (("key", "check", "alice.key"), "quoth key show alice.key"),
    ):
        _, advice = alone(*typed).refused(2)
        assert f"type `{meant}`" in advice


@needs_strace
def test_secret_is_never_in_a_file_that_others_may_read_and_both_files_are_synced(tmp_path: Path) -> None:
    output, folder = tmp_path / "calls", tmp_path / "keys"
    folder.mkdir()
    command = [*traced(output), *COMMAND, "key", "new", "alice", "--dir", str(folder)]
    subprocess.run(command, check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL, umask=0)
    made = [line for line in output.read_text().splitlines() if "O_CREAT" in line and "/keys/" in line]
    assert [line.partition("/keys/")[2].partition('"')[0] for line in made] == ["alice.key", "alice.pub"]
    assert all("O_EXCL" in line and "O_NOFOLLOW" in line for line in made)
    assert ", 0600" in made[0]
    synced = [call.path for call in calls_in(output) if call.name == "fsync"]
    assert synced == [str(folder / "alice.key"), str(folder / "alice.pub"), str(folder)]
