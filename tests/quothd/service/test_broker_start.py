"""Starts: exit statuses and messages of those that fail, and which addresses a broker takes."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker, free_port
from quothlog import Log

WRONG, CANNOT = 2, 3
"""Exit statuses: the configuration is wrong; it is right, but the broker cannot start."""

Refuse = Callable[..., str]


# -- the system below it -------------------------------------------------------------------------------------

BOOT_ID = "/proc/sys/kernel/random/boot_id"
WITHOUT_BOOT_ID = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc/sys && exec "$@"', "sh")
"""Like ProcSubset=pid in a unit, which hides the same."""


def may_mount() -> bool:
    """True if this user can mount something in a namespace of its own."""
    return shutil.which("unshare") is not None and subprocess.run([*WITHOUT_BOOT_ID, "true"]).returncode == 0


needs_mounts = pytest.mark.skipif(not may_mount(), reason="this user may mount nothing")


@needs_mounts
def test_a_broker_without_a_boot_id_ends_before_it_is_ready(refuse: Refuse, tmp_path: Path) -> None:
    """Each publish to it would fail."""
    said = refuse(CANNOT, prefix=WITHOUT_BOOT_ID)
    assert f"unusable_system: {BOOT_ID}: No such file or directory" in said
    assert "ProcSubset=all" in said, "what to do"
    assert not (tmp_path / "data").exists()


@needs_mounts
def test_a_log_is_verified_without_a_boot_id(tmp_path: Path) -> None:
    """Only writers need it: they get the error of the broker. A cut batch at the end is torn."""
    done = subprocess.run(
        [*WITHOUT_BOOT_ID, sys.executable, "-c", "from quothlog import Log; Log.open('no log')"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert f"BrokerFailure: unusable_system: {BOOT_ID}: No such file" in done.stderr
    assert list(tmp_path.iterdir()) == []
    with Log.open(tmp_path / "log") as log:
        log.append([b"x" * 100] * 10)
    (path,) = (tmp_path / "log").glob("*.seg")
    path.with_suffix(".idx").unlink()
    with path.open("ab") as file:
        file.write(path.read_bytes()[-200:])
    done = subprocess.run(
        [*WITHOUT_BOOT_ID, Path(sys.executable).with_name("quoth"), "log", "verify", tmp_path / "log"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "unusable_system" in done.stderr) == (0, False), done.stderr
    assert "10" in done.stdout


# -- configuration --------------------------------------------------------------------------------------


def test_a_wrong_option_is_refused_with_its_name_and_value(refuse: Refuse) -> None:
    assert "did you mean --worker-timeout?" in refuse(WRONG, "--worker-timout", "5")
    said = refuse(WRONG, "--port", "70000")
    assert all(words in said for words in ("--port: port", "70000"))


def test_a_port_has_one_owner(refuse: Refuse, start_broker: StartBroker, tmp_path: Path) -> None:
    """As has the port for announcements. The refused broker leaves its directory unlocked."""
    file = tmp_path / "quoth.toml"
    file.write_text("durability = 'synced'\n")
    port = free_port()  # the neighbour of a port that the system gives may be taken
    with closing(socket.create_server(("127.0.0.1", port + 1))):
        assert f":{port + 1}" in refuse(CANNOT, port=port)
    broker = start_broker("--config", str(file), port=port)
    said = refuse(CANNOT, directory=tmp_path / "other", port=port)
    assert f":{port}" in said
    assert "is another broker running there?" in said
    other = start_broker(directory=tmp_path / "other", sync_interval=0.02)
    for one, number, worth in (
        (broker, signal.SIGTERM, "survives a power cut"),
        (other, signal.SIGINT, "may take the last 20 milliseconds"),
    ):
        assert str(one.directory) in one.wait_for("serving")
        assert worth in one.wait_for("acknowledged means")
        assert one.terminate(number) == 0
        assert "unlocked" in one.stderr
