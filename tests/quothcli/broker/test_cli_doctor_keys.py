"""`quoth doctor` and keys: a broker that is open to a network, a key that is refused or cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit.broker.brokers import StartBroker
from kit.keys import KeyFiles
from kit.machine.commands import PATIENT_DOCTOR, Command
from kit.machine.ports import free_port
from kit.machine.processes import needs_proc


def finding(quoth: Command, *words: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """Run the doctor; returns its exit status and what it found about keys."""
    result = quoth.prepared(PATIENT_DOCTOR)("doctor", *words, "--format", "json", **options)
    (found,) = [one for one in result.objects if one["check"] == "key"]
    return result.status, found


def test_broker_on_loopback_needs_no_keys(quoth: Command) -> None:
    status, found = finding(quoth)
    assert (status, found["verdict"]) == (0, "ok")


@needs_proc
def test_broker_without_keys_that_other_machines_reach_is_a_warning(
    start_broker: StartBroker, alone: Command
) -> None:
    broker = start_broker(host="0.0.0.0", insecure=True)
    port = int(broker.url.rpartition(":")[2])
    for url in (broker.url, f"tcp://127.0.0.1:{port}"):
        status, found = finding(alone, "--url", url)
        assert (status, found["verdict"]) == (0, "warn")
        assert f"tcp://0.0.0.0:{port}" in found["text"]
        assert "`quoth key new broker`" in found["advice"]


def test_key_file_of_a_broker_that_others_may_read_is_a_failure(alone: Command, tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path)
    keys.add("alice")
    environment = {f"QUOTH_{name.upper()}": path for name, path in keys.settings.items()}
    url = f"tcp://127.0.0.1:{free_port()}"

    def found() -> dict[str, Any]:
        result = alone("doctor", "--url", url, "--format", "json", environment=environment)
        (one,) = [row for row in result.objects if row["check"] == "its keys"]
        return dict(one)

    assert (found()["verdict"], "1 of clients" in found()["text"]) == ("ok", True)
    keys.server_file.chmod(0o644)
    assert (found()["verdict"], "0644" in found()["text"]) == ("fail", True)
    assert f"chmod 600 {keys.server_file}" in found()["advice"]
