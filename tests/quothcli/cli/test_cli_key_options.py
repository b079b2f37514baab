"""The key of a command: which one is taken, and what is said about one that cannot be used or is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import zmq

from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Command
from quothcli.cli import contexts
from quothcli.cli.contexts import Context
from quothcli.cli.keys import write_key
from quothcli.cli.session import ChosenKey, Session
from quothwire.security.key_file import Key

PUBLIC, SECRET = (one.decode() for one in zmq.curve_keypair())
SERVER = zmq.curve_keypair()[0].decode()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The key file of a client."""
    return write_key(tmp_path, Key("alice", PUBLIC, SECRET, (SERVER,)), replace=False)[0]


PLACES: dict[str, tuple[dict[str, Any], dict[str, str], tuple[str, str] | None]] = {
    # options, variables: the key file and its source
    "--key-file": ({"key_file": Path("/k"), "ctx": "a"}, {"QUOTH_KEY_FILE": "/e"}, ("/k", "--key-file")),
    "that of --ctx": ({"ctx": "a"}, {"QUOTH_KEY_FILE": "/e"}, ("/a", "context a")),
    "--ctx has none": ({"ctx": "b"}, {"QUOTH_KEY_FILE": "/e"}, ("/e", "QUOTH_KEY_FILE")),
    "the variable": ({}, {"QUOTH_KEY_FILE": "/e"}, ("/e", "QUOTH_KEY_FILE")),
    "the context of a variable": ({}, {"QUOTH_CONTEXT": "b"}, None),
    "the context in use": ({}, {}, ("/a", "context a")),
    "empty is not said": ({}, {"QUOTH_KEY_FILE": ""}, ("/a", "context a")),
    "another address by option": ({"url": "tcp://u:1"}, {}, None),
    "another address by variable": ({}, {"QUOTH_URL": "tcp://e:1"}, None),
    "another address, its key": (
        {"url": "tcp://u:1"},
        {"QUOTH_KEY_FILE": "/e"},
        ("/e", "QUOTH_KEY_FILE"),
    ),
    "an address wins over --ctx": ({"url": "tcp://u:1", "ctx": "a"}, {}, None),
    "the key of a record": ({"ctx": "b"}, {"QUOTH_KEY": "customer-7"}, None),
}


def test_first_key_that_is_given_wins_and_that_of_a_context_is_for_its_own_address() -> None:
    contexts.change(lambda held: held.add("a", Context("tcp://a:1", key="/a")).add("b", Context("tcp://b:1")))
    contexts.change(lambda held: held.use("a"))
    for case, (typed, environment, expected) in PLACES.items():
        with mock.patch.dict(os.environ, environment):
            found = Session(**typed).broker.key
            assert found == (expected and ChosenKey(Path(expected[0]), expected[1])), case


def test_context_keeps_the_absolute_path_of_a_key_that_can_be_used(
    alone: Command, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(key.parent)
    for option in ("--key", "--key-file"):
        assert alone("ctx", "add", "shop", "tcp://10.0.0.7:5555", option, key.name).status == 0
    assert alone("--key", key.name, "ctx", "add", "other", "tcp://10.0.0.8:5555").status == 0
    alone("ctx", "add", "third", "tcp://10.0.0.9:5555")
    held = json.loads(contexts.path().read_text())["contexts"]
    assert held["shop"] == {"url": "tcp://10.0.0.7:5555", "timeout": None, "key": str(key)}
    assert held["other"]["key"] == str(key)
    assert held["third"].keys() == {"url", "timeout"}, "older versions read it, too"
    listed = alone("ctx", "ls")
    assert listed.lines[1] == f"  shop   tcp://10.0.0.7:5555  key {key}"
    assert [row["key"] for row in alone("ctx", "ls", "--format", "json").objects] == [
        str(key),
        str(key),
        None,
    ]
    environment = {"QUOTH_KEY_FILE": "/elsewhere.key"}
    assert "QUOTH_KEY_FILE is set to /elsewhere.key" in alone("ctx", "ls", environment=environment).err
    alone("ctx", "add", "shop", "tcp://10.0.0.7:5555")
    assert contexts.load().contexts["shop"].key is None, "it is given anew with each change"


def test_context_is_not_added_with_a_key_that_cannot_be_used(alone: Command, key: Path) -> None:
    add = ("ctx", "add", "shop", "tcp://10.0.0.7:5555", "--key")
    for wrong, said in (
        (key.with_name("missing.key"), "No such file"),
        (key.with_suffix(".pub"), "has no secret-key"),
    ):
        happened, _ = alone(*add, str(wrong)).refused(2)
        assert said in happened
    key.chmod(0o640)
    _, advice = alone(*add, str(key)).refused(2)
    assert f"chmod 600 {key}" in advice
    assert not contexts.path().exists()


def test_damaged_key_of_a_context_is_named(alone: Command) -> None:
    contexts.path().parent.mkdir(parents=True)
    for wrong in (7, "relative.key"):
        content = json.dumps({"contexts": {"shop": {"url": "tcp://a:5555", "key": wrong}}})
        contexts.path().write_text(content)
        happened, _ = alone("ctx", "ls").refused(1)
        assert "the key of context 'shop' is no absolute path" in happened
        assert contexts.path().read_text() == content


def test_key_that_cannot_be_used_is_refused_with_its_source(alone: Command, key: Path) -> None:
    alone("ctx", "add", "shop", "tcp://127.0.0.1:9", "--key", str(key))
    key.chmod(0o644)
    missing = str(key.with_name("missing.key"))
    for typed, environment, source in (
        (("ping", "--key", missing), {}, "--key-file"),
        (("--key", missing, "ping"), {}, "--key-file"),
        (("ping", "--ctx", "shop"), {}, "context shop"),
        (("pub", "t", "x"), {"QUOTH_KEY_FILE": missing}, "QUOTH_KEY_FILE"),
        (("pub", "t", "x", "--key-file", missing), {}, "--key-file"),
        (("forward", "tcp://127.0.0.1:9", "--topic", "t", "--source-key", missing), {}, "--source-key"),
    ):
        happened, advice = alone(*typed, environment=environment).refused(2)
        assert "bad_setting: the key file " in happened
        assert f"(from {source})" in happened, typed
        assert ("chmod 600" in advice) is (source == "context shop")


def test_key_of_records_stays_what_key_means_where_records_have_one(quoth: Command, topic: str) -> None:
    assert quoth("pub", topic, "a", "--key", "customer-7").status == 0
    assert quoth("pub", topic, "b").status == 0
    environment = {"QUOTH_KEY": "customer-7"}
    found = quoth("read", topic, "--key", "customer-7", "--format", "raw", environment=environment)
    assert found.lines == ["a"]


def test_refused_key_is_named_with_its_source_at_once(
    quoth: Command, broker: BrokerProcess, key: Path
) -> None:
    quoth.url = ""
    assert quoth("ctx", "add", "shop", broker.url, "--key", str(key)).status == 0
    patient = ("--timeout", "60")
    for typed, environment, source in (
        (("ping", "--url", broker.url, "--key", str(key)), {}, "--key-file"),
        (("ping", "--url", broker.url), {"QUOTH_KEY_FILE": str(key)}, "QUOTH_KEY_FILE"),
        (("tail", "t", "--ctx", "shop"), {}, "context shop"),
    ):
        happened, advice = quoth(*typed, *patient, environment=environment).refused(1)
        assert "auth_failed: " in happened
        assert f"(key {key}, from {source})" in happened
        assert "is it the right broker?" in advice
