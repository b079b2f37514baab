"""Forwarding to and from a broker with keys."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from kit.client.keyed import KeyedBroker, auth_error_of
from kit.client.records import values
from quoth import Client, QuothError, connect
from quoth.forward.forwarder import Forwarder
from quoth.forward.source import ForwardingProgress, LostRecords, StoredSource
from quothcli.commands.records.forwarding import log_source
from quothlog import Log


class Untroubled:
    """Fails for each event that is no progress."""

    def forwarded(self, records: int, size: int) -> None:
        """See `Events`."""

    def waits(self, problem: QuothError, seconds: float) -> None:
        """See `Events`."""
        raise AssertionError(f"it waits {seconds} s: {problem}")

    def lost(self, losses: LostRecords) -> None:
        """See `Events`."""
        raise AssertionError(losses)

    def began_anew(self, text: str) -> None:
        """See `Events`."""
        raise AssertionError(text)


def saved(_progress: ForwardingProgress) -> None:
    """Keep no progress."""


def test_records_are_forwarded_to_a_broker_with_keys_and_from_one(
    keyed: KeyedBroker, stack: ExitStack, topic: str
) -> None:
    client = stack.enter_context(Client(keyed.url, None, 10.0, key=keyed.alice))
    client.publish(topic, [b"one", b"two"])
    source = StoredSource(client, topic, 0)
    target = f"{topic}, forwarded"
    Forwarder(source, client, target, progress=None, save=saved, events=Untroubled()).run(until_end=True)
    assert values(client, target) == [b"one", b"two"]


def test_a_forwarder_ends_at_once_when_its_key_is_revoked(
    keyed: KeyedBroker, stack: ExitStack, topic: str, tmp_path: Path
) -> None:
    client = stack.enter_context(Client(keyed.url, None, 60.0, key=keyed.alice))
    with Log.open(tmp_path / "log") as log:
        log.append([b"one"])
        log.sync()
        source = log_source(tmp_path / "log")
        forwarder = Forwarder(source, client, topic, progress=None, save=saved, events=Untroubled())
        forwarder.run(until_end=True)
        log.append([b"two"])
        log.sync()
        keyed.revoke()
        problem = auth_error_of(lambda: forwarder.run(until_end=True))
        assert "does not know the key of alice" in problem.text
        keyed.allow()
        forwarder.run(until_end=True)
    with connect(keyed.url, key=keyed.owner) as beside:
        assert values(beside, topic) == [b"one", b"two"]
