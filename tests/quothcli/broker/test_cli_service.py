"""`quoth service`: the files are where systemd finds them, as systemd wants them, and can be removed."""

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
from quothweb.config import example
from quothwire.protocol.messages import DeleteTopic, RollTopic

SYSTEMD = Path(__file__).parents[3] / "systemd"
UNIT = "etc/systemd/system/quothd.service"
USER_WEB_UNIT = ".config/systemd/user/quoth-web.service"
USER_UNIT = ".config/systemd/user/quothd.service"
CONFIG = "etc/quoth/quothd.toml"
FILES = [CONFIG, UNIT, "etc/sysusers.d/quoth.conf"]
WEB_UNIT = "etc/systemd/system/quoth-web.service"
WEB_CONFIG = "etc/quoth/quoth-web.toml"
WEB_FILES = [WEB_CONFIG, WEB_UNIT, "etc/sysusers.d/quoth-web.conf"]
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
    """The directory that stands for /."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def installed(alone: Command, root: Path) -> Path:
    """A system with the service."""
    assert alone("service", "install", "--prefix", str(root)).status == 0
    return root


# -- install and uninstall ----------------------------------------------------------------------------------


def test_install_writes_files_and_prints_what_to_type_next(alone: Command, root: Path) -> None:
    result = alone("service", "install", "--prefix", str(root), "--dry-run")
    assert f"would be written: {root / UNIT}" in result.lines
    assert files(root) == []
    result = alone("service", "install", "--prefix", str(root))
    assert result.status == 0
    assert files(root) == FILES
    for name in FILES:
        assert f"written: {root / name}" in result.lines
        assert (root / name).stat().st_mode & 0o777 == 0o644
        assert (root / name).parent.stat().st_mode & 0o777 == 0o755
    assert "  systemctl enable --now quothd" in result.lines
    assert any("systemd-sysusers" in line for line in result.lines)
    assert (root / CONFIG).read_text() == template.text()


def test_install_keeps_a_configuration_and_replaces_an_older_unit(alone: Command, installed: Path) -> None:
    (installed / CONFIG).write_text("port = 6000\n")
    (installed / UNIT).write_text("# of another version\n")
    result = alone("service", "install", "--prefix", str(installed), "--format", "json")
    assert [row["done"] for row in result.objects if "path" in row] == ["written", "written", "kept"]
    assert (installed / CONFIG).read_text() == "port = 6000\n"
    assert "ExecStart=" in (installed / UNIT).read_text()
    result = alone("service", "uninstall", "--prefix", str(installed))
    assert f"kept: {installed / CONFIG}" in result.lines
    assert files(installed) == [CONFIG]


def test_uninstall_removes_what_install_has_written(alone: Command, installed: Path) -> None:
    (installed / "etc/quoth-other").write_text("x")
    (installed / "var/lib/quoth").mkdir(parents=True)
    (installed / "var/lib/quoth/lock").write_text("x")
    result = alone("service", "uninstall", "--prefix", str(installed), "--dry-run")
    assert f"would be removed: {installed / UNIT}" in result.lines
    assert UNIT in files(installed)
    result = alone("service", "uninstall", "--prefix", str(installed))
    assert result.status == 0
    assert files(installed) == ["etc/quoth-other", "var/lib/quoth/lock"]
    assert "the data stays, if there is any: /var/lib/quoth" in result.lines
    assert alone("service", "uninstall", "--prefix", str(installed)).status == 0


def test_service_of_a_package_is_neither_replaced_nor_removed(alone: Command, root: Path) -> None:
    """A unit in /etc would go before that of the package, and its configuration belongs to the package."""
    packaged = root / "usr/lib/systemd/system/quothd.service"
    packaged.parent.mkdir(parents=True)
    packaged.write_text("# of the package\n")
    result = alone("service", "install", "--prefix", str(root))
    assert result.status == 1
    assert result.err.startswith("quoth: packaged: the package has installed quothd.service")
    assert "hint: systemctl enable --now quothd" in result.err
    (root / CONFIG).parent.mkdir(parents=True)
    (root / CONFIG).write_text(template.text())
    result = alone("service", "uninstall", "--prefix", str(root))
    assert f"kept: {root / CONFIG}" in result.lines
    assert files(root) == [CONFIG, "usr/lib/systemd/system/quothd.service"]
    assert alone("service", "install", "--web", "--prefix", str(root)).status == 0


def test_enabled_service_is_not_removed(alone: Command, installed: Path) -> None:
    """The link that starts it would point nowhere."""
    link = installed / "etc/systemd/system/multi-user.target.wants/quothd.service"
    link.parent.mkdir()
    link.symlink_to("../quothd.service")
    result = alone("service", "uninstall", "--prefix", str(installed))
    assert result.status == 1
    assert "hint: systemctl disable --now quothd" in result.err
    assert (installed / UNIT).exists()


AS_ANOTHER_USER = """\
import os, sys
from quothcli.application import run
run(["service", "uninstall", "--dry-run", "--prefix", "/nonexistent"])
if os.geteuid() == 0:
    os.setuid(65_534)
sys.exit(run(sys.argv[1:]))
"""
"""Runs a command as another user, who cannot read this environment: the modules are loaded before."""


def test_service_of_the_system_without_root_names_the_line_to_type() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", AS_ANOTHER_USER, "service", "install"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    happened, advice = done.stderr.splitlines()
    assert happened.startswith("quoth: needs_root: ")
    assert re.fullmatch(r"hint: sudo .* service install, or --user for one of your own", advice)


def test_service_of_a_user_needs_no_root(alone: Command, root: Path) -> None:
    environment = {"HOME": str(root), "XDG_CONFIG_HOME": ""}
    result = alone("service", "install", "--user", environment=environment)
    assert result.status == 0
    assert files(root) == [".config/quoth/quothd.toml", USER_UNIT]
    assert "  systemctl --user enable --now quothd" in result.lines
    unit = (root / USER_UNIT).read_text()
    assert "User=" not in unit
    assert "--dir %h/.local/share/quoth" in unit
    assert alone("service", "uninstall", "--user", environment=environment).status == 0
    assert files(root) == []


def test_service_of_the_http_side_is_installed_apart(alone: Command, installed: Path) -> None:
    result = alone("service", "install", "--web", "--prefix", str(installed))
    assert files(installed) == sorted([*FILES, *WEB_FILES])
    assert "  systemctl enable --now quoth-web" in result.lines
    assert (installed / WEB_CONFIG).read_text() == example()
    assert [Path(path).name for path in commands(installed / WEB_UNIT)] == ["quoth-web", "quoth-web", "sh"]
    assert os.access(commands(installed / WEB_UNIT)[0], os.X_OK)
    result = alone("service", "uninstall", "--web", "--prefix", str(installed))
    assert not any("data" in line for line in result.lines), "it has none"
    assert files(installed) == FILES


# -- its log ------------------------------------------------------------------------------------------------

JOURNALCTL = """\
#!/bin/sh
printf '%s\\n' "$@"
"""


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("", "--unit quothd.service --boot"),
        ("--web -f", "--unit quoth-web.service --boot --follow"),
        (
            "--user -n 5 --since 2026-01-02T03:04:05Z",
            "--user-unit quothd.service --since=@1767323045.000000 --lines=5",
        ),
    ],
)
def test_logs_are_those_of_journalctl(typed: str, given: str, tmp_path: Path) -> None:
    program = tmp_path / "journalctl"
    program.write_text(JOURNALCTL)
    program.chmod(0o755)
    done = subprocess.run(
        [*python_of("quothcli.main"), "service", "logs", *typed.split()],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.split()
    assert {"--output=cat", "--quiet", "--no-pager"} <= set(said)
    assert [word for word in said if word not in ("--output=cat", "--quiet", "--no-pager")] == given.split()


def test_logs_without_journalctl_say_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [*python_of("quothcli.main"), "service", "logs"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("quoth: not_found: there is no journalctl")


# -- the unit -----------------------------------------------------------------------------------------------


def commands(unit: Path) -> list[str]:
    """List the programs that a unit runs, ExecStart first."""
    return re.findall(r"^Exec\w+=(\S+)", unit.read_text(), re.MULTILINE)


def test_unit_starts_the_quothd_of_this_environment(installed: Path) -> None:
    quothd, checks, kill = commands(installed / UNIT)
    assert quothd == checks
    assert os.access(quothd, os.X_OK)
    assert Path(quothd).name == "quothd"
    assert kill == "/bin/sh", "a program of every system"


@needs_systemd
def test_systemd_finds_no_error_in_the_units_and_little_exposure(alone: Command, installed: Path) -> None:
    assert alone("service", "install", "--prefix", str(installed), "--user").status == 0
    assert alone("service", "install", "--prefix", str(installed), "--web").status == 0
    assert alone("service", "install", "--prefix", str(installed), "--web", "--user").status == 0
    units = (((), UNIT), (("--user",), USER_UNIT), ((), WEB_UNIT), (("--user",), USER_WEB_UNIT))
    for options, unit in units:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *options, str(installed / unit)],
            capture_output=True, text=True, timeout=60, env={**os.environ, "XDG_RUNTIME_DIR": str(installed)},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    for unit in (UNIT, WEB_UNIT):
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(installed / unit)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
        if found is None:
            pytest.skip(f"this systemd cannot tell it offline: {done.stderr.strip()}")
        assert float(found[1]) <= EXPOSURE_MAX, done.stdout


@needs_systemd
def test_systemd_can_make_the_user(installed: Path, root: Path) -> None:
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
    """Parse the settings of a unit, each with all its values."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def calls_of(group: str) -> set[str]:
    """List the system calls of one of systemd's groups and of the groups in it."""
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
def test_unit_allows_every_system_call_of_the_daemon(peers: Peers, tmp_path: Path, allowed: set[str]) -> None:
    """A broker runs under strace from start to end, with the process that checks sealed segments.

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
