"""A reload of the clients file: added clients get in, removed ones are out, a mistake changes nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import Context
from kit.keys import DENIED, SUCCEEDED, KeyFiles, handshake, new_key
from kit.machine.commands import Command
from quothd import Broker
from quothd.config.check import check
from quothd.config.config import SCHEMA, Config
from quothd.daemon import Daemon
from quothd.keys.broker_keys import RULES_CLIENT, BrokerKeys
from quothd.service.log_events import PROGRAM
from quothwire.config.sources import Sourced
from quothwire.security.key_file import encode_key
from quothwire.service.log_writer import EventWriter
from quothwire.service.sd_notify import Notifier


def test_a_reload_adds_and_removes_clients(
    start_broker: StartBroker, keys: KeyFiles, context: Context, tmp_path: Path
) -> None:
    """Without a configuration file, too. The log has the names, and no key."""
    file = tmp_path / "quothd.toml"
    file.write_text(
        "".join(["[security]\n", *(f'{name} = "{path}"\n' for name, path in keys.settings.items())])
    )
    for arguments, settings in (((), keys.settings), (("--config", str(file)), {})):
        alice = keys.add("alice")
        broker = start_broker(*arguments, **settings)
        bob = keys.add("bob")
        assert handshake(context, broker.url, bob) == DENIED
        os.kill(broker.pid, signal.SIGHUP)
        broker.wait_for("event=clients_changed added=bob removed=")
        broker.wait_for("event=reloaded")
        assert handshake(context, broker.url, bob) == SUCCEEDED
        keys.remove("alice")
        os.kill(broker.pid, signal.SIGHUP)
        broker.wait_for("removed=alice")
        assert handshake(context, broker.url, alice) == DENIED
        assert handshake(context, broker.url, bob) == SUCCEEDED
        assert broker.terminate() == 0
        keys.remove("bob")


@pytest.mark.parametrize("damage", ["half", "gone", "no TOML"])
def test_a_wrong_clients_file_changes_nothing(
    start_broker: StartBroker, keys: KeyFiles, context: Context, damage: str
) -> None:
    alice, bob = keys.add("alice"), keys.add("bob")
    broker = start_broker(**keys.settings)
    text = keys.text()
    match damage:
        case "half":
            keys.clients_file.write_text(text[: text.index("bob") + 20])
        case "gone":
            keys.clients_file.unlink()
        case _:
            keys.clients_file.write_text("alice may come in\n")
    os.kill(broker.pid, signal.SIGHUP)
    assert str(keys.clients_file) in broker.wait_for("event=reload_refused")
    for key in (alice, bob):
        assert handshake(context, broker.url, key) == SUCCEEDED
    assert broker.terminate() == 0
    noted = [json.loads(line) for line in (broker.directory / "audit.log").read_text().splitlines()]
    (refused,) = [one for one in noted if one["event"] == "reload"]
    assert refused["outcome"] == "bad_setting"
    assert str(keys.clients_file) in refused["detail"]


def test_a_reload_applies_the_clients_that_were_checked(
    embed_with_keys: Callable[..., Broker], keys: KeyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no others, if the file is replaced meanwhile."""
    keys.add("alice")
    broker = embed_with_keys()
    daemon = Daemon(
        lambda: Sourced(SCHEMA, broker.config, {}), None, EventWriter(PROGRAM, StringIO()), Notifier()
    )
    daemon._broker = broker
    keys.add("bob")

    def check_late(config: Config) -> BrokerKeys | None:
        found = check(config)
        keys.add("carol")
        return found

    monkeypatch.setattr("quothd.daemon.check", check_late)
    monkeypatch.setattr("quothd.daemon.configure", lambda *_: None)
    daemon._reload()
    assert broker._authentication is not None
    clients = broker._authentication.clients
    assert clients is not None
    assert {*clients.by_name} == {"alice", "bob", RULES_CLIENT}


def test_the_keys_that_a_reload_removes_are_reported_once(
    embed_with_keys: Callable[..., Broker], keys: KeyFiles
) -> None:
    """As one set. A new key of the same client does not keep its former one."""
    alice, bob, carol = (keys.add(name) for name in ("alice", "bob", "carol"))
    broker = embed_with_keys()
    revoked: list[frozenset[str]] = []
    assert broker._authentication is not None
    broker._authentication.revoked = revoked.append
    broker.reload(broker.config)
    assert revoked == []
    keys.remove("alice")
    assert keys.add("bob") != bob
    broker.reload(broker.config)
    assert revoked == [{alice.public_key, bob.public_key}]
    clients = broker._authentication.clients
    assert clients is not None
    assert clients.of_key(carol.public_key).name == "carol"
    assert not clients.of_key(alice.public_key).name


def test_keys_are_switched_on_and_off_by_a_restart_alone(
    embed: Callable[..., Broker], keys: KeyFiles, context: Context
) -> None:
    alice = keys.add("alice")
    broker = embed()
    with_keys = replace(broker.config, **keys.settings)
    assert broker.reload(with_keys) == ("server_key", "clients")
    assert handshake(context, broker.urls[0], None) == SUCCEEDED
    broker.stop()
    broker = embed(**keys.settings)
    assert broker.reload(replace(broker.config, server_key="", clients="")) == ("server_key", "clients")
    assert handshake(context, broker.urls[0], alice) == SUCCEEDED


def test_a_new_key_of_the_broker_has_effect_at_a_restart(
    start_broker: StartBroker, keys: KeyFiles, context: Context
) -> None:
    """Clients that know both keys get in before and after it."""
    alice = keys.add("alice")
    broker = start_broker(**keys.settings)
    following = new_key("broker")
    prepared = alice._replace(server_keys=(following.public_key,))
    keys.server_file.write_text(encode_key(following))
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_for("event=reloaded")
    assert handshake(context, broker.url, alice) == SUCCEEDED
    assert broker.terminate() == 0
    broker.restart()
    assert handshake(context, broker.url, prepared) == SUCCEEDED
    assert handshake(context, broker.url, alice) != SUCCEEDED


def test_the_log_tells_how_many_clients_are_known_and_warns_of_none(
    start_broker: StartBroker, keys: KeyFiles, alone: Command
) -> None:
    typed = [f"--{name.replace('_', '-')}={path}" for name, path in keys.settings.items()]
    checked = alone("config", "check", *typed)
    assert (checked.status, checked.lines[0], "event=no_clients" in checked.err) == (0, "ok", True)
    keys.add("alice")
    assert alone("config", "check", *typed).err == ""
    broker = start_broker(**keys.settings)
    broker.wait_for(f"clients need keys; 1 known, in {keys.clients_file}")
    assert "no_clients" not in broker.stderr
    keys.remove("alice")
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_for("event=no_clients")
