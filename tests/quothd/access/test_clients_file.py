"""The clients file: what it may say, and the errors for what it may not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from kit.broker.brokers import StartBroker
from kit.broker.peers import Peers
from kit.keys import KeyFiles
from kit.text.wording import error_of
from quothd.access.clients_file import CLIENTS_BYTES_MAX, ClientTable, parse_clients, read_clients
from quothd.access.quota import Quota
from quothd.access.rights import STRANGER, Right

ALICE, BOB, NEXT = (z85.encode(bytes([number] * 32)).decode() for number in (1, 2, 3))
FILE = f"""\
[quota]
topics = 1_000
store_bytes = "10 GiB"

[clients.alice]
key = "{ALICE}"
publish = ["orders.*"]
read = ["orders.*", "prices"]
group = []
[clients.alice.quota]
topics = 5
requests = 0

[clients."bob@example.org"]
keys = ["{BOB}", "{NEXT}"]
admin = "*"
"""


def parsed(text: str) -> ClientTable:
    return parse_clients(text, "clients.toml")


def test_a_file_gives_clients_their_keys_rights_and_quotas() -> None:
    found = parsed(FILE)
    alice, bob = found.of_key(ALICE), found.of_key(NEXT)
    assert [alice.name, bob.name] == ["alice", "bob@example.org"] == [*found.by_name]
    assert found.of_key(BOB) is bob
    assert alice.has(Right.READ, "prices")
    assert not alice.has(Right.PUBLISH, "prices")
    assert not alice.has(Right.GROUP, "orders.new")
    assert bob.has(Right.ADMIN, "prices")
    assert alice.limits == {Quota.TOPICS: 5, Quota.STORE_BYTES: 10 * 2**30, Quota.REQUESTS: 0}
    assert found.limits_of("bob@example.org") == {Quota.TOPICS: 1_000, Quota.STORE_BYTES: 10 * 2**30}


def test_a_key_or_a_name_that_is_not_in_the_file_gives_nothing() -> None:
    found = parsed(FILE)
    for key in ("", zmq.curve_keypair()[0].decode(), ALICE.swapcase(), ALICE[:-1]):
        assert found.of_key(key) is STRANGER
    assert found.limits_of("carol") == {}
    assert parsed("").by_name == {}
    assert STRANGER.keys == ()


KEY = f'key = "{ALICE}"\n'
OF_ALICE = {
    f"{KEY}pubish = []": "3: there is no key 'pubish' here",
    f"{KEY}quota.topic = 1": "3: there is no key 'topic' here",
    f"{KEY}quota.topics = -1": "3: topics is a whole number",
    f'{KEY}quota.store_bytes = "5 kilos"': "3: store_bytes: ",
    f'{KEY}\nread = ["a", "b*c"]': "4: read: 'b*c' has a *",
    f'{KEY}read = ["a/b"]': "3: read: 'a/b' is not",
    f"{KEY}read = [1]": "3: read is a text or a list",
    'read = ["a"]': "1: the key is missing",
    f'{KEY}keys = ["{BOB}"]': "1: key and keys are there",
    "keys = []": "2: keys is an empty list",
    'key = "abc"': "2: key: a public key is 40 characters of Z85, and this is none (3 characters)",
    f'key = "{"~" + ALICE[1:]}"': "2: key: a public key is 40 characters",
    f'key = "{"#" * 40}"': "2: key: a public key is 40 characters",
}
"""What stands below [clients.alice], and the error without the file and the client."""
OF_FILE = {
    f'[clients.alice]\nkeys = ["{ALICE}", "{ALICE}"]': "1: client 'alice' has the same key twice",
    f"[clients.alice]\n{KEY}[clients.bob]\n{KEY}": "3: clients 'alice' and 'bob' have the same key",
    "[clinets.alice]": "1: there is no key 'clinets' here",
    '[clients."a b"]\nkey = "x"': "1: 'a b' is no name of a client",
    '[clients."-a"]\nkey = "x"': "1: '-a' is no name of a client",
    f'[clients.{"a" * 101}]\nkey = "x"': f"1: '{'a' * 101}' is no name of a client",
    "clients = 5": "1: clients is a table",
    "[clients]\nalice = 5": "2: client 'alice': alice is a table",
    "[clients.alice": "1: this is no TOML",
}
WRONG = OF_FILE | {
    f"[clients.alice]\n{text}": said.replace(": ", ": client 'alice': ", 1) for text, said in OF_ALICE.items()
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_named_with_the_file_its_line_and_the_client(text: str) -> None:
    problem = error_of(parsed, text)
    assert problem.code == "bad_setting"
    assert problem.text.startswith(f"clients.toml:{WRONG[text]}")
    assert not any(key in str(problem) for key in (ALICE, BOB)), "it may be a secret key by mistake"
    assert "nothing was" not in problem.hint


def test_a_wrong_name_suggests_the_right_one() -> None:
    for wrong, right in (("pubish", "publish"), ("rights", None), ("kyes", "keys")):
        hint = error_of(parsed, f'[clients.alice]\nkey = "{ALICE}"\n{wrong} = []').hint
        assert f"did you mean {right}?" in hint if right else "one of" in hint


def test_a_file_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "clients.toml"
    path.write_text(FILE)
    assert read_clients(path).of_key(ALICE).name == "alice"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing, latin, fifo, large = (tmp_path / name for name in ("missing", "latin", "fifo", "large"))
    latin.write_bytes(b"\n# gr\xf6sse")
    os.mkfifo(fifo)
    with large.open("wb") as file:
        file.truncate(2**40)
    assert error_of(read_clients, missing).text == f"{missing}: No such file or directory"
    assert error_of(read_clients, latin).text.startswith(f"{latin}:2: a byte that is not UTF-8")
    assert error_of(read_clients, fifo).text == f"{fifo}: it is no regular file"
    assert error_of(read_clients, tmp_path).text == f"{tmp_path}: Is a directory"
    assert error_of(read_clients, large).text == f"{large}: it has more than {CLIENTS_BYTES_MAX} bytes"


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602, 0o620])
def test_a_file_to_which_other_users_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """A link is followed: the mode is that of the file that is read."""
    path, link = tmp_path / "clients", tmp_path / "link"
    path.write_text(FILE)
    path.chmod(0o644)
    link.symlink_to(path)
    assert read_clients(link).of_key(ALICE).name == "alice"
    path.chmod(mode)
    problem = error_of(read_clients, link)
    assert f"{link} (mode {mode:04o})" in problem.text
    assert problem.hint == f"chmod go-w {link}"


def test_a_reload_whose_clients_file_has_become_a_pipe_is_refused_and_waits_for_nothing(
    start_broker: StartBroker, tmp_path: Path, peers: Peers
) -> None:
    files = KeyFiles(tmp_path)
    alice = files.add("alice")
    broker = start_broker(**files.settings)
    files.clients_file.unlink()
    os.mkfifo(files.clients_file)
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_for("it is no regular file")
    peers.fast(broker.url, key=alice).publish("t", [b"x"])
