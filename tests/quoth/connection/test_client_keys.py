"""Keys: every connection of a client uses its key, and a key that is refused ends every wait at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.client.keyed import FOREVER_S, UNCHECKED_S, KeyedBroker, auth_error_of, without_authenticator
from kit.client.records import Connect, staged
from kit.keys import KeyFiles, new_key
from kit.machine.commands import run_script
from quoth import RequestError
from quoth.connection.endpoint import Endpoint
from quothwire.security.key_file import Key, read_key

# -- a key that is known ------------------------------------------------------------------------------------


def test_every_kind_of_connection_uses_the_key(keyed: KeyedBroker, connect: Connect, topic: str) -> None:
    client = connect(keyed.url, key=keyed.alice)
    client.publish(topic, [b"one"])
    with client.producer(topic) as producer:
        producer.send(b"two")
    transaction = client.transaction(topic, "app", 0)
    transaction.publish([staged(transaction, 0, [b"three"])])
    expected = [b"one", b"two", b"three"]
    assert [message.value for message in client.read(topic)] == expected
    assert [message.value for batch in client.batches(topic) for message in batch] == expected
    with client.tail_many([topic], after=0) as tail:
        assert [next(tail).value for _ in expected] == expected
    assert [message.value for message in client.read_many([topic])] == expected
    with client.group(topic, "group") as group:
        assert [message.value for message in group.fetch(3)] == expected


def test_a_key_may_be_given_as_a_path_or_as_its_content(keyed: KeyedBroker, connect: Connect) -> None:
    for given in (keyed.alice, str(keyed.alice), read_key(keyed.alice)):
        connect(keyed.url, key=given).ping()


def test_a_client_reconnects_with_its_key(keyed: KeyedBroker, connect: Connect, topic: str) -> None:
    client = connect(keyed.url, key=keyed.alice)
    client.publish(topic, [b"before"])
    for number in range(3):
        keyed.restart()
        client.publish(topic, [b"%d" % number])
    assert [message.value for message in client.read(topic)] == [b"before", b"0", b"1", b"2"]


FORKED = """
import os, sys, quoth
client = quoth.connect(sys.argv[1], key=sys.argv[2])
client.publish(sys.argv[3], b"parent")
pid = os.fork()
if not pid:
    client.publish(sys.argv[3], b"child")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert [message.value for message in client.read(sys.argv[3])] == [b"parent", b"child"]
client.close()
print("both")
"""


def test_a_forked_child_keeps_the_key(keyed: KeyedBroker, topic: str, tmp_path: Path) -> None:
    done = run_script(FORKED, keyed.url, str(keyed.alice), topic)
    assert (done.stdout, done.stderr) == ("both\n", "")


# -- a key that is refused ----------------------------------------------------------------------------------


def _alice_of(keyed: KeyedBroker) -> Path:
    return keyed.alice


def _mallory_of(keyed: KeyedBroker) -> Path:
    return keyed.mallory


def _no_key(_keyed: KeyedBroker) -> None:
    return None


def _without_keys(keyed: KeyedBroker) -> Path:
    keyed.restart_without_keys()
    return keyed.alice


def _replaced(keyed: KeyedBroker) -> Path:
    keyed.restart(new_key("another"))
    return keyed.alice


REFUSED: dict[str, tuple[Callable[[KeyedBroker], Path | None], str]] = {
    "unknown key": (_mallory_of, "does not know the key of mallory"),
    "no key": (_no_key, "wants a key, and none was given"),
    "no keys there": (_without_keys, "has no keys, and the key of alice was given"),
    "another server key": (_replaced, "does not have the server-key of alice's key file"),
}


@pytest.mark.parametrize("wait", [None, FOREVER_S], ids=["connecting", "waiting"])
@pytest.mark.parametrize(("key_of", "words"), REFUSED.values(), ids=REFUSED)
def test_a_refused_client_fails_at_once_with_the_reason(
    keyed: KeyedBroker,
    twin: Connect,
    key_of: Callable[[KeyedBroker], Path | None],
    words: str,
    wait: float | None,
) -> None:
    given = key_of(keyed)
    connecting = lambda: twin(keyed.url, key=given, timeout=FOREVER_S, wait=wait)  # noqa: E731
    problem = auth_error_of(connecting)
    for path in (keyed.alice, keyed.mallory):
        assert read_key(path).secret_key not in f"{problem} {problem!r}"
    assert problem.text == f"the broker at {keyed.url} {words}"


def test_a_client_fails_soon_if_the_authenticator_of_the_broker_has_ended(
    twin: Connect, tmp_path: Path
) -> None:
    files = KeyFiles(tmp_path)
    alice = files.write_key(files.add("alice"))
    with without_authenticator(files, tmp_path / "data") as url:
        problem = auth_error_of(lambda: twin(url, key=alice, timeout=FOREVER_S), within_s=UNCHECKED_S)
        assert "does not have the server-key of alice's key file" in problem.text


UNUSABLE = {
    "a public file": (lambda key: key._replace(secret_key=""), "has no secret-key"),
    "no server key": (lambda key: key._replace(server_keys=()), "has no server-key"),
    "keys of two pairs": (lambda key: key._replace(public_key=new_key("x").public_key), "does not belong to"),
}


@pytest.mark.parametrize(("change", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_key_that_no_client_can_use_is_refused_before_a_connection(
    keyed: KeyedBroker, twin: Connect, change: Callable[[Key], Key], words: str
) -> None:
    changed = change(read_key(keyed.alice))
    for given in (changed, keyed.files.write_key(changed)):
        with pytest.raises(RequestError, match=words) as found:
            twin("tcp://127.0.0.1:1", key=given)
        assert found.value.code == "bad_setting"
        assert read_key(keyed.alice).secret_key not in f"{found.value} {found.value!r}"


def test_a_missing_key_file_and_a_half_key_are_refused_by_name(tmp_path: Path, twin: Connect) -> None:
    with pytest.raises(RequestError, match="missing"):
        twin("tcp://127.0.0.1:1", key=tmp_path / "missing.key")
    with pytest.raises(RequestError, match="Z85") as found:
        twin("tcp://127.0.0.1:1", key=new_key("alice")._replace(secret_key="s3cret", server_keys=("short",)))
    assert "s3cret" not in str(found.value)


def test_neither_a_client_nor_its_parts_show_the_secret(keyed: KeyedBroker, connect: Connect) -> None:
    client = connect(keyed.url, key=keyed.alice)
    secret = read_key(keyed.alice).secret_key
    assert secret not in repr(client)
    assert secret not in repr(Endpoint(keyed.url, keyed.alice))
