"""The Debian package on a booted Debian of its own: installation, upgrade, removal, purge.

No step uses a network. Each test begins with the package in the state that it names, whatever ran before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.deadlines import eventually
from kit.machine.machines import Base, needs_machine
from kit.machine.services import CONFIG, START_S, Service, operations_lines
from kit.releases.packages import FORMER, Packages, build_release
from kit.scale import long_form
from quothwire import VERSION

pytestmark = [pytest.mark.system, pytest.mark.timeout(900), needs_machine]
INSTALL = "DEBIAN_FRONTEND=noninteractive dpkg --install --force-confold {} 2>&1"
"""What apt does with a package and a configuration that was changed, if no terminal asks."""
INSTALL_CURRENT = INSTALL.format("/root/current.deb")
CHANGE = """sed -i '/^worker_timeout/d' "$1"; sed -i '1i worker_timeout = 7.5' "$1" """
"""Changes the configuration."""
CLIENT = "/usr/local/client"
"""A copy of the environment, which an upgrade of the package does not change."""


@pytest.fixture
def installed(debian: Service) -> Service:
    """The machine with the package of this tree, and the service running."""
    debian.run(f"""
dpkg-query --show --showformat '${{Status}}' quoth 2>&1 | grep '^install ok installed$' || {INSTALL_CURRENT}
systemctl start quothd
""")
    return debian


def test_an_installation_starts_the_service_on_loopback_now_and_at_boot(installed: Service) -> None:
    assert (installed.show("ActiveState"), installed.show("UnitFileState")) == ("active", "enabled")
    assert "tcp://127.0.0.1:5555 answers" in installed.quoth("ping").lines[0]
    sockets = installed.run("cat /proc/net/tcp /proc/net/tcp6").lines
    listening = {line.split()[1] for line in sockets if line.split()[3] == "0A"}
    assert listening == {f"0100007F:{port:04X}" for port in (5555, 5556)}
    assert f"quoth {VERSION}, hot path in C" in installed.quoth("--version").lines
    installed.quoth("pub", "greetings", "hello, world")
    assert installed.values("greetings") == ["hello, world"]
    installed.quoth("doctor")
    assert installed.run("dpkg --verify quoth").lines == []
    owners = installed.run("stat --format='%U:%a' /var/lib/quoth /etc/quoth/quothd.toml").lines
    assert owners == ["quoth:700", "root:644"]


def test_the_package_has_manuals_documents_and_completion(installed: Service) -> None:
    installed.quoth("topic", "create", "completed")
    manual = installed.run("zcat /usr/share/man/man1/quoth-topic.1.gz").out.decode()
    assert "quoth topic create [OPTIONS] TOPIC" in manual
    commands = installed.run("cd /usr/share/man; ls man1 man8").lines
    assert {"quoth.1.gz", "quoth-group.1.gz", "quothd.8.gz"} <= {*commands}
    assert "## Upgrade" in installed.run("cat /usr/share/doc/quoth/OPERATIONS.md").lines
    completed = installed.run(
        """bash -ec '. /usr/share/bash-completion/completions/quoth
COMP_WORDS=(quoth topic info compl) COMP_CWORD=3
_quoth_completion quoth
echo "${COMPREPLY[@]}"'"""
    )
    assert completed.lines == ["completed"]


def test_no_file_or_variable_of_a_user_changes_the_installed_programs(installed: Service) -> None:
    """Not in the processes that a broker starts, either."""
    installed.run(
        """
mkdir -p /root/broken "$(python3 -m site --user-site)" /usr/local/lib/python3/dist-packages
for name in zmq xxhash msgpack quothwire; do
    echo 'raise SystemExit("this is another package")' > "/root/broken/$name.py"
done
cp /root/broken/* "$(python3 -m site --user-site)"
cd /root/broken
export PYTHONPATH=/root/broken PYTHONSTARTUP=/root/broken/zmq.py
quoth ping
quoth serve --dir /root/data --port 5600 --scrub-interval 500ms 2> /root/log &
trap 'kill $!' EXIT
export QUOTH_URL=tcp://127.0.0.1:5600
quoth pub t one --timeout 30
quoth topic roll t
until quoth status --format json | grep '"scrub_rounds": [1-9]'; do sleep 0.1; done
"""
    )


POST = """
from urllib.request import Request, urlopen

url = "http://127.0.0.1:8080/api/v1/topics/web"
with urlopen(Request(url, data=b"by http", headers={"Content-Type": "application/octet-stream"})) as answer:
    print(json.dumps(answer.status))
"""
READY = """
from contextlib import closing
from http.client import HTTPConnection

with closing(HTTPConnection("127.0.0.1", 8080)) as connection:
    connection.request("GET", "/readyz")
    print(json.dumps(connection.getresponse().status))
"""


def test_the_package_of_the_http_side_serves_and_goes_with_that_of_the_broker(installed: Service) -> None:
    installed.run(INSTALL.format("/root/web.deb"))
    state = installed.run("systemctl is-active quoth-web; systemctl is-enabled quoth-web").lines
    assert state == ["active", "enabled"]
    assert installed.python(POST) == 201
    eventually(lambda: installed.python(READY) == 200, "the broker answers it", START_S)
    assert installed.values("web") == ["by http"]
    assert b"--port N" in installed.run("zcat /usr/share/man/man8/quoth-web.8.gz").out
    assert installed.machine.run("dpkg --remove quoth").status != 0, "it is needed"
    installed.run("dpkg --purge quoth-web 2>&1")
    assert installed.machine.run("systemctl is-active quoth-web").lines == ["inactive"]
    left = installed.run("find /etc /usr -name 'quoth-web*' -not -path '*/quothcli/*'").lines
    assert left == ["/usr/share/man/man1/quoth-web.1.gz"], "of the command `quoth web`"
    installed.quoth("ping")


LOAD = """
import json, sys, quoth

topic, acknowledged = sys.argv[1], []
with quoth.connect(timeout=60) as client, client.producer(topic) as producer:
    while client.count("stop").records == 0:
        for number in range(len(acknowledged), len(acknowledged) + 50):
            producer.send(b"%d" % number)
        producer.flush()
        acknowledged += range(len(acknowledged), len(acknowledged) + 50)
        if len(acknowledged) == 500:
            print("going", flush=True)
print(len(acknowledged))
"""


def test_an_upgrade_under_load_loses_nothing_and_keeps_the_configuration(debian: Service) -> None:
    """A client of the former version goes on through it. Each record is there once, in its order."""
    debian.run("dpkg --purge quoth 2>&1; rm -rf /var/lib/quoth")
    debian.run(INSTALL.format("/root/former.deb"))
    debian.run(f"rm -rf {CLIENT}; cp -r /usr/lib/quoth {CLIENT}")
    debian.run(CHANGE, CONFIG)
    debian.run("systemctl restart quothd")
    for topic in ("load", "stop"):
        debian.quoth("topic", "create", topic)
    load = debian.machine.start(f'exec {CLIENT}/bin/python3 -I -c "$@"', LOAD, "load")
    with load:
        assert load.stdout is not None
        assert load.stderr is not None
        assert load.stdout.readline() == b"going\n", load.stderr.read().decode()
        pid, before = debian.pid, debian.quoth("count", "load").lines
        debian.run(INSTALL_CURRENT)
        eventually(lambda: debian.quoth("count", "load").lines != before, "the client goes on", START_S)
        assert debian.pid not in (0, pid)
        debian.quoth("pub", "stop", "now")
        acknowledged = int(load.stdout.read() or 0)
    assert acknowledged > 500
    values = debian.quoth("read", "load", "--limit", "1000000", "--format", "raw").lines
    assert values == [f"{number}" for number in range(acknowledged)]
    assert f"quoth {VERSION}," in debian.quoth("--version").lines[0]
    assert "worker_timeout = 7.5" in debian.run(f"cat {CONFIG}").lines
    debian.run("systemctl stop quothd")
    debian.run(INSTALL_CURRENT)
    assert debian.show("ActiveState") == "inactive", "what was stopped by hand is not started"


IN_OPT = """
cp -r /usr/lib/quoth /opt/quoth
sed -i '1s|/usr/lib/quoth/|/opt/quoth/|' /opt/quoth/bin/quoth*
DEBIAN_FRONTEND=noninteractive dpkg --purge quoth 2>&1
ln -s /opt/quoth/bin/quoth /usr/local/bin/
quoth service install
systemd-sysusers /etc/sysusers.d/quoth.conf
systemctl daemon-reload
systemctl enable --now quothd
"""
"""Replaces the package by its files in /opt/quoth, as if they had been installed there."""


def test_an_installation_in_opt_becomes_one_of_the_package(installed: Service, topic: str) -> None:
    """By the lines of the documentation. Its command does not install a second unit beside the package's."""
    assert installed.machine.run("quoth service install").refused(1)[0].startswith("quoth: packaged: ")
    installed.run(IN_OPT)
    installed.quoth("pub", topic, "one")
    installed.run(CHANGE, CONFIG)
    assert "/opt/quoth" in installed.show("ExecStart")
    for line in operations_lines("## Install and start", 1):
        installed.run(line.replace("apt-get install ./quoth_*.deb", INSTALL_CURRENT))
    assert "/opt" not in installed.show("ExecStart")
    assert (installed.show("ActiveState"), installed.show("UnitFileState")) == ("active", "enabled")
    assert installed.values(topic) == ["one"]
    assert "worker_timeout = 7.5" in installed.run(f"cat {CONFIG}").lines


def test_the_data_directory_moves_to_another_disk(installed: Service, topic: str) -> None:
    installed.quoth("pub", topic, "one")
    installed.run("mkdir -p /mnt/new; mount -t tmpfs -o mode=0700 tmpfs /mnt/new")
    try:
        for line in operations_lines("## Move to another disk"):
            installed.run(line)
        installed.run("mount --bind /mnt/new /var/lib/quoth; systemctl start quothd")
        assert installed.values(topic) == ["one"]
        installed.quoth("pub", topic, "two")
        assert installed.values(topic) == ["one", "two"]
        assert installed.run("stat --format=%U:%a:%m /var/lib/quoth").lines == ["quoth:700:/var/lib/quoth"]
    finally:
        installed.run("systemctl stop quothd; umount --lazy /var/lib/quoth; umount /mnt/new")


def test_a_removal_keeps_data_and_configuration_for_the_next_installation(
    installed: Service, topic: str
) -> None:
    installed.quoth("pub", topic, "one")
    installed.run(CHANGE, CONFIG)
    pid = installed.pid
    installed.run("dpkg --remove quoth 2>&1")
    assert installed.machine.run('kill -0 "$1"', str(pid)).status != 0
    assert installed.show("LoadState") == "not-found"
    assert installed.run("ls -d /usr/bin/quoth* /usr/lib/quoth 2>/dev/null || true").lines == []
    assert "worker_timeout = 7.5" in installed.run(f"cat {CONFIG}").lines
    installed.run(INSTALL_CURRENT)
    assert installed.values(topic) == ["one"]
    assert "worker_timeout = 7.5" in installed.run(f"cat {CONFIG}").lines


def test_a_purge_removes_the_configuration_keeps_the_records_and_says_so(
    installed: Service, topic: str
) -> None:
    installed.quoth("pub", topic, "one")
    installed.run("quoth key new broker --dir /etc/quoth")
    purged = installed.run("dpkg --purge quoth 2>&1")
    assert "quoth: the records stay, with their user: rm -r /var/lib/quoth deletes them" in purged.lines
    assert installed.run("find /etc /usr -name 'quoth*' -not -path '/usr/local/*'").lines == []
    installed.run(INSTALL_CURRENT)
    assert installed.values(topic) == ["one"]


@long_form
def test_packages_of_the_same_files_are_the_same_bytes(
    base: Base, packages: Packages, tmp_path: Path
) -> None:
    assert build_release(FORMER, base, tmp_path).read_bytes() == packages.former.read_bytes()


@pytest.mark.skipif(shutil.which("lintian") is None, reason="there is no lintian: apt-get install lintian")
def test_lintian_has_nothing_to_say_of_the_package(packages: Packages, tmp_path: Path) -> None:
    done = subprocess.run(
        ["lintian", "--fail-on=error,warning", "--tag-display-limit=0", packages.current],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # it leaves files there
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
