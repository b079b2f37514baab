"""The process of the routing rules at a broker with keys: it has a key of its own, which no file holds."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import quoth
from kit.broker.brokers import StartBroker
from kit.deadlines import eventually
from kit.keys import KeyFiles
from kit.machine.processes import children, needs_proc
from kit.rules import add_rules

COPY = 'topics = ["a"]\n[[rule]]\nto = "b"'
pytestmark = needs_proc


def content(process: int, name: str) -> bytes:
    return Path(f"/proc/{process}/{name}").read_bytes()


def values(client: quoth.Client) -> list[bytes | None]:
    """Return all that the rule has published."""
    return [one.value for one in client.read("b")] if "b" in client.topics() else []


def test_rules_have_effect_at_a_broker_with_keys(start_broker: StartBroker, keys: KeyFiles) -> None:
    """After its death, after a reload and after a restart of the broker, too."""
    alice = keys.add("alice")
    broker = start_broker(**keys.settings, scrub_interval=0)
    with quoth.connect(broker.url, key=alice) as client:
        add_rules(client, "copy", COPY, begin=0)
        client.publish("a", b"1")
        eventually(lambda: values(client) == [b"1"], "the rule has effect")
        (process,) = children(broker.pid)
        os.kill(process, signal.SIGKILL)
        broker.wait_for("event=rules_ended status=-9")
        keys.add("bob")
        os.kill(broker.pid, signal.SIGHUP)
        broker.wait_for("event=clients_changed added=bob")
        client.publish("a", b"2")
        eventually(lambda: values(client) == [b"1", b"2"], "it runs again")
        broker.terminate()
        broker.restart()
        client.publish("a", b"3")
        eventually(lambda: values(client) == [b"1", b"2", b"3"], "it has the key of this run")


def test_no_other_program_can_read_the_key_of_the_rules(start_broker: StartBroker, keys: KeyFiles) -> None:
    """Neither from the arguments and variables of the processes, nor from the files of the broker."""
    alice = keys.add("alice")
    broker = start_broker(**keys.settings, scrub_interval=0)
    with quoth.connect(broker.url, key=alice) as client:
        add_rules(client, "copy", COPY)
        broker.wait_for("event=rules_changed rules=copy")
    (process,) = children(broker.pid)
    for one in (broker.pid, process, *children(process)):
        shown = content(one, "cmdline") + content(one, "environ")
        assert b"secret" not in shown
        assert keys.server.public_key.encode() not in shown
    assert b"--key-on-stdin" in content(process, "cmdline")
    broker.freeze()  # else files may go while they are read
    found = [path for path in broker.directory.rglob("*") if path.is_file()]
    assert not [path for path in found if keys.server.public_key.encode() in path.read_bytes()]
