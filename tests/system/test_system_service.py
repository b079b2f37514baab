"""The service on a booted Debian, installed by the lines of the README, in the sandbox of its unit.

Each test has a topic of its own, and restores what it changes of the service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kit.deadlines import eventually
from kit.machine.machines import needs_machine
from kit.machine.services import CONFIG, DROP_IN, START_S, Service, readme_lines
from kit.memory_groups import memory_group, needs_memory_group

pytestmark = [pytest.mark.system, pytest.mark.timeout(900), needs_machine]
EXPOSURE_MAX = 2.0
"""A mark of `systemd-analyze security`: 0 is isolated from the machine, 10 not at all."""


def test_the_lines_of_the_readme_start_the_service_now_and_at_boot(service: Service) -> None:
    assert service.show("ActiveState") == "active"
    assert service.show("UnitFileState") == "enabled"
    assert service.show("NRestarts") == "0"
    assert "tcp://127.0.0.1:5555 answers" in service.quoth("ping").lines[0]
    assert service.run('stat --format=%U:%a /var/lib/quoth "/proc/$1"', str(service.pid)).lines == [
        "quoth:700",
        "quoth:555",
    ]


def test_the_sandbox_lets_clients_do_all_that_changes_files(service: Service, topic: str) -> None:
    """Publish with each durability, roll, trim, commit a transaction, delete."""
    output = service.python(
        """
topic = sys.argv[1]
with quoth.connect() as client:
    levels = ("written", "synced")
    reached = [client.publish(topic, b"old", durability=level).durability for level in levels]
    client.roll(topic)
    new = client.publish(topic, b"new")
    removed = client.trim(topic, new.first).records
    left = [message.value.decode() for message in client.read(topic)]
    transaction = client.transaction(topic, "etl", 1)
    part = transaction.part(0)
    part.write([b"%d" % number for number in range(1_000)])
    staged = part.finish()
    before = len(client.read(topic))
    transaction.publish([staged])
    after = len(client.read(topic, limit=2_000))
    client.delete_topic(topic)
    print(json.dumps([reached, removed, left, before, after, topic in client.topics()]))
""",
        topic,
    )
    assert output == [["written", "synced"], 2, ["new"], 1, 1_001, False]


def test_the_other_lines_of_the_readme_succeed(service: Service, topic: str) -> None:
    """Doctor, configuration, reload and backup, from which the topic is restored."""
    service.quoth("pub", topic, stdin=b"kept\n")
    lines = readme_lines()
    for line in lines[lines.index("systemctl enable --now quothd") + 1 :]:
        service.run(line)
    service.quoth("restore", "/mnt/backup", "/mnt/restored", "--topic", topic)
    assert "1 record" in service.quoth("log", "verify", "/mnt/restored").lines[0]


def test_its_log_is_shown_with_the_names_of_events(service: Service) -> None:
    said = service.quoth("service", "logs", "--since", "-1d")
    assert said.status == 0
    assert any("event=ready" in line or " ready " in line for line in said.lines), said.lines[:5]
    assert not [line for line in said.lines if "unguarded" in line], "libzmq is guarded in it"


def test_a_reload_changes_live_keys_in_the_running_process(service: Service) -> None:
    cursor = service.cursor()
    with service.changed(CONFIG, "worker_timeout = 7.5\nport = 6666\n"):
        pid = service.pid
        service.run("systemctl reload quothd")
        eventually(lambda: "restart_needed" in service.journal(cursor), "the reload is logged", START_S)
        assert "event=reloaded file=/etc/quoth/quothd.toml changed=worker_timeout" in service.journal(cursor)
        assert service.pid == pid


def test_a_reload_of_a_wrong_file_fails_and_changes_nothing(service: Service) -> None:
    with service.changed(CONFIG, "worker_timout = 7.5\n"):
        pid = service.pid
        assert service.machine.run("systemctl reload quothd").status != 0
        assert (service.show("ActiveState"), service.pid) == ("active", pid)
        service.quoth("ping")


POE = """
import socket

with socket.create_connection(("127.0.0.1", 5557), timeout=20) as poe:
    poe.sendall(bytes.fromhex("00000010 0002 00000001 74 00000005 68656c6c6f"))
    print(json.dumps(poe.recv(13, socket.MSG_WAITALL)[:6].hex()))
"""


def test_clients_of_poe_are_served_in_the_sandbox(service: Service) -> None:
    """A put as it was recorded gets the answer that was recorded, but for the pointer."""
    with service.changed(CONFIG, '[poe]\nlisten = "tcp://127.0.0.1:5557"\n'):
        assert service.restart().status == 0
        service.eventually_serves()
        assert service.python(POE) == "000000090003"
        assert service.values("t") == ["hello"]
    service.quoth("topic", "rm", "t", "--yes")


def test_a_daemon_that_is_killed_is_started_again_with_all_records(service: Service, topic: str) -> None:
    values = [f"{number}" for number in range(10_000)]
    service.quoth("pub", topic, stdin="\n".join(values).encode())
    pid = service.pid
    service.run('kill -KILL "$1"', str(pid))
    eventually(lambda: service.pid not in (0, pid), "there is another process", START_S)
    service.eventually_serves()
    assert service.quoth("read", topic, "--limit", "20000", "--format", "raw").lines == values
    service.quoth("pub", topic, stdin=b"more\n")


FLOOD = """
import socket
from contextlib import suppress

greeting = b"\\xff" + bytes(8) + b"\\x7f\\x03\\x00" + b"NULL".ljust(20, b"\\0") + b"\\0" + bytes(31)
ready = b"\\x04\\x1c\\x05READY\\x0bSocket-Type\\0\\0\\0\\x06DEALER"
with socket.create_connection(("127.0.0.1", 5555)) as connection, suppress(ConnectionError):
    connection.sendall(greeting + ready)
    answer = connection.recv(4_096)
    while b"READY" not in answer:  # libzmq refuses a message before it
        part = connection.recv(4_096)
        assert part, "the daemon has closed the connection"
        answer += part
    while True:
        connection.sendall(b"\\x01\\x01x" * 100_000)
print("null")
"""
"""A client of ZMTP whose message does not end: libzmq keeps all its parts in memory."""


@contextmanager
def little_memory(service: Service) -> Iterator[None]:
    """Let the kernel kill the daemon soon: by its unit, or from outside if that has no memory controller."""
    if "memory" in service.run("cat /sys/fs/cgroup/cgroup.controllers").out.decode().split():
        with service.changed(DROP_IN, "[Service]\nMemoryMax=200M\n"):
            assert service.restart().status == 0
            cursor = service.cursor()
            yield
            assert "killed by the OOM killer" in service.journal(cursor)
    else:
        with memory_group() as group:
            group.take(service.machine.outside(service.pid))
            with group.limited():
                yield


@needs_memory_group
def test_a_daemon_that_is_killed_for_want_of_memory_is_started_again_with_all_records(
    installed: Service, topic: str
) -> None:
    values = [f"{number}" for number in range(10_000)]
    with little_memory(installed):
        installed.quoth("pub", topic, stdin="\n".join(values).encode())
        pid = installed.pid
        installed.python(FLOOD)
        eventually(lambda: installed.pid not in (0, pid), "there is another process", START_S)
    installed.eventually_serves()
    assert installed.quoth("read", topic, "--limit", "20000", "--format", "raw").lines == values
    installed.quoth("pub", topic, stdin=b"more\n")


def test_the_unit_limits_memory_tasks_and_descriptors(service: Service) -> None:
    output = service.run("systemd-analyze verify --man=no quothd.service 2>&1").lines
    assert [line for line in output if "quothd" in line] == []
    total = int(re.findall(r"MemTotal: +(\d+) kB", service.run("cat /proc/meminfo").out.decode())[0]) * 1_024
    assert int(service.show("MemoryMax")) == pytest.approx(total / 2, rel=0.01)
    names = ("MemorySwapMax", "TasksMax", "LimitCORE", "LimitNOFILE", "OOMPolicy")
    assert [service.show(name) for name in names] == ["0", "2048", "0", "65536", "continue"]
    limits = service.run('cat "/proc/$1/limits"', str(service.pid)).out.decode()
    assert re.search(r"Max core file size +0 +0 ", limits)


def test_the_watchdog_restarts_a_frozen_daemon_and_no_idle_one(installed: Service) -> None:
    with installed.changed(DROP_IN, "[Service]\nWatchdogSec=8\n"):
        assert installed.restart().status == 0
        pid, began = installed.pid, int(installed.show("WatchdogTimestampMonotonic"))
        cursor = installed.cursor()
        eventually(
            lambda: int(installed.show("WatchdogTimestampMonotonic")) > began + 12_000_000,
            "it notifies the watchdog",
            START_S,
        )
        assert installed.pid == pid
        installed.run('kill -STOP "$1"', str(pid))
        eventually(lambda: installed.pid not in (0, pid), "there is another process", START_S)
        installed.eventually_serves()
        assert "result 'watchdog'" in installed.journal(cursor)


LOAD = """
topic, acknowledged = sys.argv[1], 0
try:
    with quoth.connect(timeout=60) as client:
        while True:
            values = [b"%d" % (acknowledged + row) for row in range(100)]
            client.publish(topic, values, timeout=60 if acknowledged < 1_000 else 1)
            acknowledged += 100
            if acknowledged == 1_000:
                print("going", flush=True)
except quoth.QuothError as problem:
    print(json.dumps([acknowledged, problem.code]))
"""


def test_a_stop_under_load_loses_no_acknowledged_record(service: Service, topic: str) -> None:
    load = service.machine.start(
        'exec /opt/quoth/bin/python -c "$@"', f"import json, sys, quoth\n{LOAD}", topic
    )
    with load:
        assert load.stdout is not None
        assert load.stdout.readline() == b"going\n"
        service.run("systemctl stop quothd")
        acknowledged, code = json.loads(load.stdout.read())
    assert code in ("stopping", "timed_out", "disconnected", "busy")
    assert service.show("Result") == "success"
    assert service.restart().status == 0
    kept = service.python(
        """
with quoth.connect() as client:
    print(json.dumps([int(one.value) for one in client.read(sys.argv[1], limit=10_000_000)]))
""",
        topic,
    )
    assert acknowledged > 0
    assert kept[:acknowledged] == list(range(acknowledged))
    assert len(kept) in (acknowledged, acknowledged + 100), (
        "what was on its way is there whole, or not at all"
    )


def test_the_scrub_process_and_a_unix_socket_work_within_the_sandbox(installed: Service, topic: str) -> None:
    with installed.changed(CONFIG, 'scrub_interval = 0.5\nlisten = ["ipc:///run/quoth/quoth"]\n'):
        assert installed.restart().status == 0
        rounds = """
with quoth.connect("ipc:///run/quoth/quoth") as client:
    client.publish(sys.argv[1], b"x")
    client.roll(sys.argv[1])
    print(json.dumps(client.status().counters.get("scrub_rounds", 0)))
"""
        eventually(lambda: installed.python(rounds, topic) > 0, "a round is done", START_S)
        assert "x" in installed.values(topic), "over tcp"


def test_the_exposure_of_the_unit_is_low(installed: Service) -> None:
    output = installed.run("systemd-analyze security --no-pager quothd").out.decode()
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", output)
    assert found is not None, output
    assert float(found[1]) <= EXPOSURE_MAX, output


# -- needs of a publish ------------------------------------------------------------------------------


def test_a_sandbox_that_hides_the_boot_id_is_reported_at_the_start(installed: Service) -> None:
    """A ready broker would fail with each publish."""
    with installed.changed(DROP_IN, "[Service]\nProcSubset=pid\nRestart=no\n"):
        cursor = installed.cursor()
        assert installed.restart().status != 0
        journal = installed.journal(cursor)
        assert "unusable_system: /proc/sys/kernel/random/boot_id: No such file or directory" in journal
        assert "ProcSubset=all" in journal
        assert installed.show("ActiveState") == "failed"


BREAKS: dict[str, tuple[str, str]] = {
    "a folder of root": ("chown root: {}", "chown quoth: {}"),
    "a mount that is read-only": (
        "mount --bind {0} {0} && mount -o remount,bind,ro {0}",
        "umount {}",
    ),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_directory_that_takes_no_files_is_reported_at_the_start(installed: Service, how: str) -> None:
    topics = "/var/lib/quoth/topics"
    spoil, mend = (script.format(topics) for script in BREAKS[how])
    with installed.changed(DROP_IN, "[Service]\nRestart=no\n"):
        installed.run(f"systemctl stop quothd; {spoil}")
        try:
            cursor = installed.cursor()
            assert installed.restart().status != 0
            assert f"storage_failed: {topics}" in installed.journal(cursor)
        finally:
            installed.run(mend)


# -- a service of one user ----------------------------------------------------------------------------------

USER_MANAGER = r"""
useradd --create-home dev
cd /run/systemd/system
mkdir user@.service.d
cat > user-runtime-dir@.service <<'END'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=install --directory --owner=%i --mode=700 /run/user/%i
END
printf '[Service]\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\n' > user@.service.d/test.conf
systemctl daemon-reload
systemctl start "user@$(id --user dev)"
"""
"""Does the work of logind at a login. A minimal Debian has none."""
AS_USER = r"""
cat > /run/as-user
exec su dev -c 'cd; export XDG_RUNTIME_DIR=/run/user/$(id --user); sh -e /run/as-user'
"""


def test_a_user_can_have_a_service_of_their_own(installed: Service) -> None:
    """Their own manager starts, reloads and restarts it."""
    installed.run(USER_MANAGER)
    output = installed.run(
        AS_USER,
        stdin=b"""
quoth service install --user > /dev/null
printf 'port = 5600\\n' > .config/quoth/quothd.toml
systemctl --user daemon-reload
systemctl --user enable --now quothd 2> /dev/null
export QUOTH_URL=tcp://127.0.0.1:5600
quoth pub t one --durability synced > /dev/null
pid=$(systemctl --user show --property=MainPID --value quothd)
systemctl --user reload quothd
test "$(systemctl --user show --property=MainPID --value quothd)" = "$pid"
kill -KILL "$pid"
quoth pub t two --timeout 60 > /dev/null
quoth read t --format raw
ls .local/share/quoth
systemctl --user disable --now quothd 2> /dev/null
quoth service uninstall --user > /dev/null
""",
    )
    assert output.lines == ["one", "two", "lock", "topics"]
