"""A broker with keys: those that `quoth key` has made let in, all others are refused in two lines."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import eventually
from kit.machine.commands import PATIENT_DOCTOR, Command
from quothlog import Log

RIGHTS = "".join(f'{right} = ["*"]\n' for right in ("publish", "read", "group", "admin"))

MakeKey = Callable[[str], str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of all keys."""
    folder = tmp_path / "keys"
    folder.mkdir()
    return folder


@pytest.fixture
def make_key(alone: Command, folder: Path) -> MakeKey:
    """Makes the key of a client with `quoth key new`; returns its path."""

    def make(name: str) -> str:
        if not (folder / "broker.pub").exists():
            assert alone("key", "new", "broker", "--dir", str(folder)).status == 0
        made = alone("key", "new", name, "--dir", str(folder), "--server", str(folder / "broker.pub"))
        with (folder / "clients.toml").open("a") as clients:
            clients.writelines(f"{line.strip()}\n" for line in made.lines[2:])
            clients.write(RIGHTS)
        return str(folder / f"{name}.key")

    return make


@pytest.fixture
def alice(make_key: MakeKey) -> str:
    """The key file of a client that the broker knows."""
    return make_key("alice")


@pytest.fixture
def bob(alone: Command, alice: str, folder: Path) -> str:
    """The key file of a client that the broker does not know."""
    alone("key", "new", "bob", "--dir", str(folder), "--server", str(folder / "broker.pub"))
    return str(folder / "bob.key")


@pytest.fixture
def keyed(start_broker: StartBroker, alice: str, folder: Path) -> BrokerProcess:
    """A broker with the key that `quoth key new` has made, and the lines that it has printed."""
    return start_broker(server_key=folder / "broker.key", clients=folder / "clients.toml")


@pytest.fixture
def quoth(alone: Command, keyed: BrokerProcess) -> Command:
    """`quoth` with the address of that broker, and no key."""
    alone.url = keyed.url
    return alone


def test_key_of_an_option_a_variable_or_a_context_lets_in(
    quoth: Command, keyed: BrokerProcess, alice: str
) -> None:
    assert quoth("pub", "t", "a", "--key-file", alice).status == 0
    assert quoth("--key", alice, "pub", "t", "b", "--key", "customer-7").status == 0
    environment = {"QUOTH_KEY_FILE": alice}
    assert quoth("read", "t", "--format", "raw", environment=environment).lines == ["a", "b"]
    quoth.url = ""
    assert quoth("ctx", "add", "shop", keyed.url, "--key", alice).status == 0
    assert quoth("read", "t", "--ctx", "shop", "--format", "raw").lines == ["a", "b"]
    quoth("ping", "--url", keyed.url, "--ctx", "shop").refused(1)


def test_unknown_key_and_no_key_are_refused_with_their_source(quoth: Command, alice: str, bob: str) -> None:
    for typed, environment, said in (
        (("--key", bob), {}, f"(key {bob}, from --key-file)"),
        ((), {"QUOTH_KEY_FILE": bob}, f"(key {bob}, from QUOTH_KEY_FILE)"),
        ((), {}, "wants a key, and none was given"),
    ):
        for line in (("ping",), ("consume", "t", "--group", "g"), ("topic", "ls")):
            happened, _ = quoth(*line, *typed, "--timeout", "60", environment=environment).refused(1)
            assert "auth_failed: " in happened
            assert happened.endswith(said), happened


def test_status_shows_what_each_client_has_of_its_quotas(
    quoth: Command, keyed: BrokerProcess, alice: str, folder: Path
) -> None:
    with (folder / "clients.toml").open("a") as clients:
        clients.write("[clients.alice.quota]\ntopics = 5\nconnections = 1_000\n")
    os.kill(keyed.pid, signal.SIGHUP)
    assert quoth("pub", "t", "a", "--key-file", alice).status == 0

    def shown() -> bool:
        return "client alice: connections 1 of 1,000, topics 1 of 5" in quoth("status", "--key", alice).err

    eventually(shown, "the reload is done")
    (found,) = quoth("status", "--format", "json", "--key-file", alice).objects
    assert found["clients"]["alice"]["topics"] == [1, 5]


def test_commands_for_records_of_a_group_have_the_same_key(quoth: Command, alice: str) -> None:
    assert quoth("pub", "t", "a", "--key-file", alice, "--key", "customer-7").status == 0
    line = 'echo "$QUOTH_KEY_FILE $QUOTH_KEY"'
    done = quoth("consume", "t", "-g", "g", "--until-empty", "--exec", line, "--key", alice, seconds=60)
    assert (done.status, done.lines) == (0, [f"{alice} customer-7"])


def test_log_is_forwarded_with_a_key(quoth: Command, alice: str, bob: str, tmp_path: Path) -> None:
    log = tmp_path / "readings"
    with Log.open(log) as opened:
        opened.append([b"a", b"b"])
    forward = ("forward", str(log), quoth.url, "--once", "--format", "raw")
    happened = quoth(*forward, "--key", bob)
    assert (happened.status, "auth_failed" in happened.err) == (1, True)
    assert f"(key {bob}, from --key-file)" in happened.err
    assert quoth(*forward, "--key", alice).lines == ["2"]
    copy = (
        "forward",
        quoth.url,
        quoth.url,
        "--from",
        "readings",
        "--topic",
        "copy",
        "--once",
        "--key",
        alice,
    )
    happened = quoth(*copy)
    assert f"(source: no --source-key was given; target: key {alice}, from --key-file)" in happened.err
    assert quoth(*copy, "--source-key", alice, "--format", "raw").lines == ["2"]
    assert quoth("read", "copy", "--key-file", alice, "--format", "raw").lines == ["a", "b"]


def test_topics_are_completed_with_a_key(quoth: Command, alice: str) -> None:
    from quothcli.cli.options import COMPLETION_VARIABLE

    assert quoth("pub", "orders", "a", "--key-file", alice).status == 0
    patient = quoth.prepared("from quothcli.cli import options; options.COMPLETION_S = 20.0")

    def completed(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        result = patient(environment={COMPLETION_VARIABLE: "complete_bash", **words})
        return [one for one in result.lines if one]

    assert completed(f"quoth read --key-file {alice} ord") == ["orders"]
    assert completed(f"quoth --key {alice} count ord") == ["orders"]
    assert completed("quoth read ord") == []
    assert completed("quoth read --key-f") == ["--key-file"]


def test_doctor_reports_a_key_that_is_refused_or_cannot_be_used(
    quoth: Command, keyed: BrokerProcess, alice: str, bob: str
) -> None:
    doctor = quoth.prepared(PATIENT_DOCTOR)

    def found(key: str) -> tuple[int, str, str]:
        result = doctor("doctor", "--key", key, "--format", "json")
        (one,) = [row for row in result.objects if row["check"] == "key"]
        return result.status, one["verdict"], one["text"]

    status, verdict, text = found(alice)
    assert (status, verdict) == (0, "ok"), text
    assert f"key {alice}, from --key-file" in text
    status, verdict, text = found(bob)
    assert (status, verdict) == (1, "fail")
    assert "auth_failed: " in text
    Path(alice).chmod(0o640)
    status, verdict, text = found(alice)
    assert (status, verdict) == (1, "fail")
    assert "0640" in text


def reload(keyed: BrokerProcess, clients: Path, text: str) -> None:
    """Replace the clients file of a broker."""
    before = keyed.stderr.count("event=reloaded")
    clients.write_text(text)
    os.kill(keyed.pid, signal.SIGHUP)
    eventually(lambda: keyed.stderr.count("event=reloaded") > before, "it has reloaded")


def test_stream_without_the_right_to_publish_ends_at_once(
    quoth: Command, keyed: BrokerProcess, alice: str, folder: Path
) -> None:
    """Lines go on coming, or the pipe stays open and none comes."""
    clients = folder / "clients.toml"
    reload(keyed, clients, clients.read_text().replace(RIGHTS, 'read = ["*"]\n'))
    for feed in ("exec yes", "echo one; exec sleep 600"):
        with subprocess.Popen(["sh", "-c", feed], stdout=subprocess.PIPE) as feeder:
            ended = quoth.start("pub", "t", "--key-file", alice, stdin=feeder.stdout).end()
            feeder.kill()
        assert ended.status == 1
        published, happened, _ = ended.err.splitlines()
        assert published == "quoth: published 0 records of stdin"
        assert "denied: " in happened


def test_stream_whose_key_is_revoked_ends_with_what_was_acknowledged(
    quoth: Command, keyed: BrokerProcess, alice: str, make_key: MakeKey, folder: Path
) -> None:
    clients = folder / "clients.toml"
    owner = make_key("owner")
    reload(keyed, clients, clients.read_text())
    publishing = quoth.start("pub", "t", "--key-file", alice, stdin=subprocess.PIPE)
    publishing.write(b"one\ntwo\n")
    eventually(lambda: quoth("read", "t", "--key-file", owner).lines[1:], "both are stored")
    _, name, of_owner = clients.read_text().partition("[clients.owner]")
    reload(keyed, clients, name + of_owner)
    publishing.write(b"three\n")
    ended = publishing.end()
    assert ended.status == 1
    assert ended.err.splitlines()[0] == "quoth: published 2 records of stdin"
    assert "auth_failed: " in ended.err


def test_groups_of_all_topics_are_listed_without_those_that_are_denied(
    quoth: Command, keyed: BrokerProcess, alice: str, make_key: MakeKey, folder: Path
) -> None:
    clients = folder / "clients.toml"
    bob = make_key("bob")
    reload(keyed, clients, clients.read_text())
    for topic in ("orders", "secret"):
        assert quoth("group", "create", topic, "g", "--key-file", alice).status == 0
    known, entry, of_bob = clients.read_text().partition("[clients.bob]")
    of_bob = of_bob.replace('admin = ["*"]\n', "")
    reload(keyed, clients, known + entry + of_bob.replace('group = ["*"]', 'group = ["orders"]'))
    listed = quoth("group", "ls", "--format", "json", "--key-file", bob)
    assert (listed.status, [one["topic"] for one in listed.objects]) == (0, ["orders"])
    assert listed.err == "quoth: without 1 topic whose groups this client may not see: secret\n"
    assert "denied: " in quoth("group", "ls", "secret", "--key-file", bob).refused(1)[0]
    reload(keyed, clients, known + entry + of_bob.replace('group = ["*"]\n', ""))
    assert "denied: " in quoth("group", "ls", "--key-file", bob).refused(1)[0]


def test_process_that_a_client_may_not_see_is_left_out(
    quoth: Command, keyed: BrokerProcess, alice: str, folder: Path
) -> None:
    doctor = quoth.prepared(PATIENT_DOCTOR)
    clients = folder / "clients.toml"
    for text, is_seen in (
        (clients.read_text(), True),
        (clients.read_text().replace('admin = ["*"]', 'admin = ["a"]'), False),
    ):
        reload(keyed, clients, text)
        for command in (doctor, quoth):
            typed = ("doctor",) if command is doctor else ("top", "--timeout", "20", "--count", "1")
            (line,) = [one for one in command(*typed, "--key", alice).lines if " quothd " in one]
            assert (f", process {keyed.pid}" in line) == is_seen
            assert is_seen or "process" not in line
