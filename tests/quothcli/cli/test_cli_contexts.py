"""`quoth ctx` names brokers, and the first address that is given wins."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Command
from kit.machine.ports import free_port
from quoth.client import DEFAULT_TIMEOUT_S
from quothcli.cli import contexts
from quothcli.cli.contexts import Context
from quothcli.cli.exit_status import Refused
from quothcli.cli.session import Session


@pytest.fixture
def file() -> Path:
    """The file of the contexts of this test."""
    return contexts.path()


def test_context_names_the_broker_of_a_command(alone: Command, broker: BrokerProcess) -> None:
    assert alone("ctx", "add", "shop", broker.url).status == 0
    for typed in (("--ctx", "shop", "ping"), ("ping", "--ctx", "shop")):
        assert broker.url in alone(*typed).out.decode(), typed
    assert alone("ping", environment={"QUOTH_CONTEXT": "shop"}).status == 0
    assert alone("ctx", "use", "shop").status == 0
    assert broker.url in alone("ping").out.decode()


def test_file_is_private_and_alone_and_a_link_to_it_stays_one(
    alone: Command, file: Path, tmp_path: Path
) -> None:
    alone("ctx", "add", "shop", "tcp://10.0.0.7:5555", "--timeout", "5")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    assert os.listdir(file.parent) == [file.name]
    held = {"shop": {"url": "tcp://10.0.0.7:5555", "timeout": 5.0}}
    assert json.loads(file.read_text())["contexts"] == held
    assert alone("ctx", "ls").lines == ["  shop  tcp://10.0.0.7:5555  timeout 5s"]
    elsewhere = file.rename(tmp_path / "elsewhere.json")
    file.symlink_to(elsewhere)
    assert alone("ctx", "add", "other", "tcp://10.0.0.8:5555").status == 0
    assert (file.is_symlink(), "other" in elsewhere.read_text()) == (True, True)


def test_list_marks_the_one_in_use_and_names_a_variable_that_wins(alone: Command) -> None:
    for name in ("b", "a"):
        alone("ctx", "add", name, f"tcp://{name}:5555")
    assert alone("ctx", "ls").lines == ["  a  tcp://a:5555", "  b  tcp://b:5555"]
    alone("ctx", "use", "b")
    result = alone("ctx", "ls")
    assert result.lines == ["  a  tcp://a:5555", "* b  tcp://b:5555"]
    assert "contexts.json" in result.err
    assert alone("ctx", "ls", "--format", "raw").lines == ["a", "b"]
    rows = alone("ctx", "ls", "--format", "json", environment={"QUOTH_CONTEXT": "a"}).objects
    assert [row["in_use"] for row in rows] == [True, False]
    environment = {"QUOTH_URL": "tcp://c:5555"}
    result = alone("ctx", "ls", environment=environment)
    assert result.lines[1] == "* b  tcp://b:5555  (QUOTH_URL wins)"
    assert "QUOTH_URL is set to tcp://c:5555" in result.err
    rows = alone("ctx", "ls", "--format", "json", environment=environment).objects
    assert [row["overridden"] for row in rows] == [False, True]


def test_dash_takes_the_one_before_and_a_removed_one_is_not_in_use(alone: Command) -> None:
    assert alone("ctx", "use", "-").status == 3
    for name in ("a", "b"):
        alone("ctx", "add", name, f"tcp://{name}:5555")
        alone("ctx", "use", name)
    assert alone("ctx", "use", "-", "--format", "raw").lines == ["a"]
    assert alone("ctx", "use", "-", "--format", "raw").lines == ["b"]
    alone("ctx", "use", "b")
    assert alone("ctx", "use", "-", "--format", "raw").lines == ["a"], "using the same again forgot it"
    assert "tcp://a:5555" in alone("ctx", "add", "a", "tcp://new:5555").err, "a change is reported"
    assert "it was in use" in alone("ctx", "rm", "a").err
    assert alone("ctx", "rm", "b").status == 0
    assert contexts.load() == contexts.Contexts()


def test_unknown_context_suggests_a_similar_one(alone: Command) -> None:
    alone("ctx", "add", "prod", "tcp://a:5555")
    for typed in ("ctx use prdo", "ctx rm prdo", "ping --ctx prdo", "--ctx prdo status"):
        happened, advice = alone(*typed.split()).refused(3)
        assert "unknown_context: there is no context 'prdo'" in happened
        assert "did you mean prod?" in advice


def test_wrong_name_or_address_is_refused(alone: Command, file: Path) -> None:
    for name in ("-", "a/b", ""):
        alone("ctx", "add", "--", name, "tcp://a:5555").refused(2)
    for url in ("tcp://a", "a:5555", "http://a:80"):
        alone("ctx", "add", "a", url).refused(2)
    assert not file.exists()


DAMAGED = {
    "empty": "",
    "cut": '{"in_use": "a", "contexts": {"a": {"ur',
    "no object": "[]",
    "another member": '{"in_us": "a"}',
    "a context without an address": '{"contexts": {"a": {"timeout": 1}}}',
    "an address that is none": '{"contexts": {"a": {"url": 7}}}',
    "a name that is none": '{"contexts": {"a b": {"url": "tcp://a:5555"}}}',
    "a timeout that is none": '{"contexts": {"a": {"url": "tcp://a:5555", "timeout": "soon"}}}',
    "one in use that is not there": '{"in_use": "a"}',
    "contexts that are none": '{"contexts": 7}',
    "names of another kind": '{"in_use": []}',
}


def test_damaged_file_is_named_and_kept(file: Path) -> None:
    file.parent.mkdir(parents=True)
    for case, content in DAMAGED.items():
        file.write_text(content)
        for what in (
            contexts.load,
            lambda: contexts.change(lambda held: held.add("b", Context("tcp://b:1"))),
        ):
            with pytest.raises(Refused, match=re.escape(str(file))) as refused:
                what()
            assert refused.value.code == "bad_contexts", case
        assert file.read_text() == content


def test_damaged_file_does_not_prevent_a_given_address(
    alone: Command, broker: BrokerProcess, file: Path
) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xff\xfe")
    happened, advice = alone("ping").refused(1)
    assert str(file) in happened
    assert "--url" in advice
    assert alone("ping", "--url", broker.url).status == 0
    assert alone("ping", environment={"QUOTH_URL": broker.url}).status == 0


PLACES: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "--url": ({"url": "tcp://u:1", "ctx": "b"}, {"QUOTH_URL": "tcp://e:1"}, "tcp://u:1"),
    "--ctx": ({"ctx": "b"}, {"QUOTH_URL": "tcp://e:1", "QUOTH_CONTEXT": "c"}, "tcp://b:1"),
    "QUOTH_URL": ({}, {"QUOTH_URL": "tcp://e:1", "QUOTH_CONTEXT": "c"}, "tcp://e:1"),
    "QUOTH_CONTEXT": ({}, {"QUOTH_CONTEXT": "c"}, "tcp://c:1"),
    "the one in use": ({}, {}, "tcp://a:1"),
    "empty is not said": ({}, {"QUOTH_URL": "", "QUOTH_CONTEXT": ""}, "tcp://a:1"),
}


def test_first_address_that_is_given_wins() -> None:
    """The timeout of a context counts for its own broker only."""
    for name in "abc":
        contexts.change(lambda held, name=name: held.add(name, Context(f"tcp://{name}:1", 3.0)))  # type: ignore[misc]
    contexts.change(lambda held: held.use("a"))
    for case, (typed, environment, url) in PLACES.items():
        with mock.patch.dict(os.environ, environment):
            session = Session(**typed)
            timeout = DEFAULT_TIMEOUT_S if url in ("tcp://u:1", "tcp://e:1") else 3.0
            assert (session.broker.url, session.timeout_s) == (url, timeout), case
            assert Session(**typed, timeout=9.0).timeout_s == 9.0


def test_error_names_the_source_of_the_address(alone: Command) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    alone("ctx", "add", "gone", url, "--timeout", "0.05")
    result = alone("status", "--ctx", "gone")
    assert result.status == 4
    assert f"no broker answers at {url}: nothing accepts connections there, tried " in result.err
    assert "(from context gone)" in result.err
    result = alone("status", "--timeout", "0.05", environment={"QUOTH_URL": url})
    assert f"at {url}: " in result.err
    assert "(from QUOTH_URL)" in result.err


def test_commands_at_once_lose_no_context(alone: Command) -> None:
    names = [f"broker-{number}" for number in range(6)]
    started = [alone.start("ctx", "add", name, "tcp://a:5555") for name in names]
    assert [one.end().status for one in started] == [0] * len(names)
    assert alone("ctx", "ls", "--format", "raw").lines == names


WITHOUT_HOME = """
from pathlib import Path

def home():
    raise RuntimeError("Could not determine home directory.")

Path.home = home
"""


def test_user_without_a_home_has_no_contexts(alone: Command) -> None:
    environment = {"XDG_CONFIG_HOME": "", "HOME": "/dev/null"}
    for command in (alone, alone.prepared(WITHOUT_HOME)):
        assert command("errors", "disk_low", environment=environment).status == 0
        command("ping", "--ctx", "shop", environment=environment).refused(3)
    happened, _ = command("ctx", "add", "shop", "tcp://10.0.0.7:5555", environment=environment).refused(3)
    assert "this user has no home" in happened
