"""`quoth service`: files where systemd finds them, as systemd wants them, and away again without a trace."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Peers
from kit.deadlines import eventually
from kit.machine.commands import Command
from kit.machine.processes import listing, python_of
from kit.machine.tracing import needs_strace
from quothd.config import template
from quothwire.protocol.messages import DeleteTopic, RollTopic

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNIT = "etc/systemd/system/quothd.service"
USER_UNIT = ".config/systemd/user/quothd.service"
CONFIG = "etc/quoth/quothd.toml"
FILES = [CONFIG, UNIT, "etc/sysusers.d/quoth.conf"]
EXPOSURE_MAX = 2.0
"""As `systemd-analyze security` counts: 0 sees nothing of the machine, 10 all of it."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="this system has no systemd-analyze"
)


def files(root: Path) -> list[str]:
    """The files below a directory."""
    return [name for name in listing(root) if (root / name).is_file()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What is taken for the whole system."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def installed(alone: Command, root: Path) -> Path:
    """A system with the service."""
    assert alone("service", "install", "--prefix", str(root)).status == 0
    return root


# -- install and uninstall ----------------------------------------------------------------------------------


def test_install_puts_files_in_place_and_tells_what_to_type_next(alone: Command, root: Path) -> None:
    told = alone("service", "install", "--prefix", str(root))
    assert told.status == 0
    assert files(root) == FILES
    for name in FILES:
        assert f"written: {root / name}" in told.lines
        assert (root / name).stat().st_mode & 0o777 == 0o644
    assert "  systemctl enable --now quothd" in told.lines
    assert any("systemd-sysusers" in line for line in told.lines)
    assert (root / CONFIG).read_text().endswith(template.text())


def test_uninstall_takes_away_what_install_has_put_there(alone: Command, installed: Path) -> None:
    (installed / "etc/quoth-other").write_text("x")
    (installed / "var/lib/quoth").mkdir(parents=True)
    (installed / "var/lib/quoth/lock").write_text("x")
    told = alone("service", "uninstall", "--prefix", str(installed))
    assert told.status == 0
    assert files(installed) == ["etc/quoth-other", "var/lib/quoth/lock"]
    assert not (installed / "etc/quoth").exists()
    assert "the data stays, if there is any: /var/lib/quoth" in told.lines
    assert alone("service", "uninstall", "--prefix", str(installed)).status == 0


def test_the_same_twice_changes_nothing(alone: Command, installed: Path) -> None:
    before = {name: (installed / name).read_bytes() for name in FILES}
    told = alone("service", "install", "--prefix", str(installed), "--format", "json")
    assert [row["done"] for row in told.objects if "path" in row] == ["unchanged"] * 3
    assert {name: (installed / name).read_bytes() for name in FILES} == before


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_somebody_has_changed_is_kept(alone: Command, installed: Path, name: str) -> None:
    """By both, and told."""
    path = installed / name
    path.write_text(path.read_text().replace("#port = 5555", "port = 6000") + "# mine\n")
    changed = path.read_bytes()
    for verb in ("install", "uninstall"):
        told = alone("service", verb, "--prefix", str(installed))
        assert told.status == 0
        assert f"kept, since it was changed: {path}" in told.lines
        assert path.read_bytes() == changed
    assert files(installed) == [name]


def test_what_an_older_version_has_put_there_is_replaced(alone: Command, installed: Path) -> None:
    """It is known by its checksum, though it is another text."""
    from quothcli.commands.broker.service import Part

    path = installed / CONFIG
    path.write_text(Part(path, "# of another version\n").content)
    told = alone("service", "install", "--prefix", str(installed))
    assert f"replaced: {path}" in told.lines
    assert path.read_text().endswith(template.text())


@pytest.mark.parametrize("content", ["", "\n", "port = 1\n", "# Put here by `quoth service install` ()"])
def test_a_file_of_somebody_else_is_kept(alone: Command, root: Path, content: str) -> None:
    (root / CONFIG).parent.mkdir(parents=True)
    (root / CONFIG).write_text(content)
    for verb in ("install", "uninstall"):
        assert alone("service", verb, "--prefix", str(root)).status == 0
    assert (root / CONFIG).read_text() == content


def test_a_dry_run_does_nothing(alone: Command, root: Path) -> None:
    told = alone("service", "install", "--prefix", str(root), "--dry-run")
    assert f"would be written: {root / UNIT}" in told.lines
    assert files(root) == []
    alone("service", "install", "--prefix", str(root))
    told = alone("service", "uninstall", "--prefix", str(root), "--dry-run")
    assert f"would be removed: {root / UNIT}" in told.lines
    assert files(root) == FILES


def test_a_service_that_is_enabled_is_not_taken_away(alone: Command, installed: Path) -> None:
    """The link that starts it would point nowhere."""
    link = installed / "etc/systemd/system/multi-user.target.wants/quothd.service"
    link.parent.mkdir()
    link.symlink_to("../quothd.service")
    told = alone("service", "uninstall", "--prefix", str(installed))
    assert told.status == 1
    assert "hint: systemctl disable --now quothd" in told.err
    assert (installed / UNIT).exists()


AS_NOBODY = """\
import os, sys
from quothcli.application import run
run(["service", "uninstall", "--dry-run", "--prefix", "/nonexistent"])
if os.geteuid() == 0:
    os.setuid(65_534)
sys.exit(run(sys.argv[1:]))
"""
"""What it needs is loaded before: nobody may read this environment."""


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_the_service_of_the_system_needs_root(verb: str) -> None:
    """Whoever is somebody else is told so, and what to type instead."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", AS_NOBODY, "service", verb],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    happened, advice = done.stderr.splitlines()
    assert happened.startswith("quoth: needs_root: ")
    assert re.fullmatch(rf"hint: sudo .* service {verb}, or --user for one of your own", advice)


def test_a_service_of_ones_own_needs_nobody(alone: Command, root: Path) -> None:
    """Below the home directory, with its data there."""
    environment = {"HOME": str(root), "XDG_CONFIG_HOME": ""}
    told = alone("service", "install", "--user", environment=environment)
    assert told.status == 0
    assert files(root) == [".config/quoth/quothd.toml", USER_UNIT]
    assert "  systemctl --user enable --now quothd" in told.lines
    unit = (root / USER_UNIT).read_text()
    assert "User=" not in unit
    assert "--dir %h/.local/share/quoth" in unit
    assert alone("service", "uninstall", "--user", environment=environment).status == 0
    assert files(root) == []


def test_a_wheel_brings_all_that_it_needs(root: Path, tmp_path: Path) -> None:
    """A real one, unpacked far from any checkout."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=SYSTEMD.parent, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(wheel, unpacked, "zip")
    done = subprocess.run(
        [*python_of("quothcli.main"), "service", "install", "--prefix", str(root)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(unpacked)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert files(root) == FILES
    assert (unpacked / "quothcli/systemd/user/quothd.service").is_file()


# -- the unit -----------------------------------------------------------------------------------------------


def commands(unit: Path) -> list[str]:
    """What a unit runs, ExecStart first."""
    return re.findall(r"^Exec\w+=(\S+)", unit.read_text(), re.MULTILINE)


def test_the_unit_starts_the_quothd_of_this_environment(installed: Path) -> None:
    quothd, checks, kill = commands(installed / UNIT)
    assert quothd == checks
    assert os.access(quothd, os.X_OK)
    assert Path(quothd).name == "quothd"
    assert kill == "/bin/sh", "what every system has"


@needs_systemd
@pytest.mark.parametrize("options", [(), ("--user",)], ids=["system", "user"])
def test_systemd_finds_nothing_wrong_with_the_unit(
    alone: Command, root: Path, options: tuple[str, ...]
) -> None:
    assert alone("service", "install", "--prefix", str(root), *options).status == 0
    unit = root / (USER_UNIT if options else UNIT)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *options, str(unit)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "XDG_RUNTIME_DIR": str(root)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_the_sandbox_is_tight(installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(installed / UNIT)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd cannot tell it offline: {done.stderr.strip()}")
    assert float(found[1]) <= EXPOSURE_MAX, done.stdout


@needs_systemd
def test_the_user_is_one_that_systemd_can_make(installed: Path, root: Path) -> None:
    """In a system below a directory, by the real program."""
    if shutil.which("systemd-sysusers") is None:
        pytest.skip("this system has no systemd-sysusers")
    done = subprocess.run(
        ["systemd-sysusers", f"--root={installed}", "--dry-run"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "unrecognized option" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def settings(unit: Path) -> dict[str, list[str]]:
    """The settings of a unit, each with all its values."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def calls_of(group: str) -> set[str]:
    """The system calls of one of systemd's groups, those in it included."""
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", group], capture_output=True, text=True, timeout=60
    )
    names = {line.strip() for line in done.stdout.splitlines()[1:]}
    plain = {name for name in names if re.fullmatch(r"\w+", name)}
    return plain.union(*(calls_of(name) for name in names if name.startswith("@")))


@pytest.fixture
def allowed() -> set[str]:
    """The system calls that the unit allows."""
    calls = calls_of("@default")
    for value in settings(SYSTEMD / "quothd.service")["SystemCallFilter"]:
        for name in value.lstrip("~").split():
            meant = calls_of(name) if name.startswith("@") else {name}
            calls = calls - meant if value.startswith("~") else calls | meant
    return calls


@needs_strace
@needs_systemd
def test_whatever_the_daemon_asks_of_the_system_the_unit_allows(
    peers: Peers, tmp_path: Path, allowed: set[str]
) -> None:
    """A whole life under strace, with the process that checks sealed segments: calls, sockets, memory.

    libzmq, for one, ends the process where it may not set the policy of its threads.
    """
    output = tmp_path / "trace"
    prefix = ("strace", "-f", "-D", "-qq", "-o", str(output))
    broker = BrokerProcess(tmp_path / "data", prefix=prefix, scrub_interval=0.2, worker_timeout=0.1)
    try:
        broker.start()
        fast = peers.fast(broker)
        for number in range(3):
            fast.publish(f"t{number}", [b"x"], "synced")
        fast.call(RollTopic(), "t0")
        assert fast.fetch("t0").values == [b"x"]
        fast.call(DeleteTopic(), "t1")
        eventually(lambda: fast.status(limit=0).counters["scrub_rounds"] > 0, "a round is done", 60)
        os.kill(broker.pid, signal.SIGHUP)
        assert broker.terminate() == 0
    finally:
        broker.close()
    text = output.read_text(errors="replace")
    made = set(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    assert {"writev", "flock", "fdatasync"} <= made, "strace saw it"
    assert made - allowed == set()
    unit = settings(SYSTEMD / "quothd.service")
    families = set(re.findall(r" socket(?:pair)?\((AF_\w+)", text))
    assert families <= set(unit["RestrictAddressFamilies"][0].split())
    both = [line for line in text.splitlines() if "PROT_EXEC" in line and "PROT_WRITE" in line]
    assert (unit["MemoryDenyWriteExecute"], both) == (["yes"], [])
    beside_processes = set(re.findall(r'"(/proc/(?!self|thread-self|\d)[^"]+)"', text))
    assert "/proc/sys/kernel/random/boot_id" in beside_processes, "strace saw it"
    assert "ProcSubset" not in unit, "it would hide them"
