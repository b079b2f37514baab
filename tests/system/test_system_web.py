"""The service quoth-web, installed from its package: metrics, the gateway, tokens, its sandbox."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.deadlines import eventually
from kit.machine.machines import needs_machine
from kit.machine.services import START_S, Service
from kit.web.browsers import WatchedBrowser, chromium, executable, serious_findings
from quothwire import VERSION

pytestmark = [pytest.mark.system, pytest.mark.timeout(900), needs_machine]
URL = "http://127.0.0.1:8080"
INSTALL_WEB = "DEBIAN_FRONTEND=noninteractive dpkg --install --force-confold /root/web.deb 2>&1"
CONFIG = "/etc/quoth/quoth-web.toml"
TOKENS = "/etc/quoth/tokens.toml"
EXPOSURE_MAX = 2.0


def curl(service: Service, *arguments: str) -> tuple[int, str]:
    """Send a request by curl in the network of the machine; returns status and body."""
    done = subprocess.run(
        ["nsenter", "--target", str(service.machine.leader), "--net", "--", "curl",
         "--silent", "--show-error", "--max-time", "30", "--write-out", "\\n%{http_code}", *arguments],
        capture_output=True, text=True,
    )  # fmt: skip
    body, _, status = done.stdout.rpartition("\n")
    assert done.returncode == 0, done.stderr
    return int(status), body.strip()


def posted(service: Service, value: str, *arguments: str) -> tuple[int, Any]:
    """Publish a record over HTTP."""
    url = f"{URL}/api/v1/topics/orders"
    status, body = curl(
        service, "--data-binary", value, "--header", "Content-Type: text/plain", *arguments, url
    )
    return status, json.loads(body)


@pytest.fixture(scope="module")
def web(debian: Service) -> Iterator[Service]:
    """The machine with both packages of this tree, and their services running."""
    debian.run("DEBIAN_FRONTEND=noninteractive dpkg --install --force-confold /root/current.deb 2>&1")
    debian.run("systemctl start quothd")
    debian.run(INSTALL_WEB)
    yield debian
    debian.run("DEBIAN_FRONTEND=noninteractive dpkg --purge quoth-web 2>&1")


def show(service: Service, name: str) -> str:
    """Return a property of the unit quoth-web."""
    return service.run(f"systemctl show --property={name} --value quoth-web").out.decode().strip()


def eventually_ready(service: Service) -> None:
    eventually(lambda: show(service, "ActiveState") == "active", "the service is active", START_S)
    eventually(lambda: curl(service, f"{URL}/readyz") == (200, "ok"), "the broker answers it", START_S)


def test_an_installation_serves_loopback_at_once_and_at_boot(web: Service) -> None:
    eventually_ready(web)
    assert (show(web, "UnitFileState"), show(web, "NRestarts")) == ("enabled", "0")
    assert curl(web, f"{URL}/livez") == (200, "ok")
    status, published = posted(web, "milk")
    assert (status, published["durability"]) == (201, "written")
    assert web.values("orders") == ["milk"]
    status, lines = curl(web, f"{URL}/api/v1/topics/orders/records?after=0")
    assert (status, json.loads(lines)["value"]) == (200, "milk")
    sockets = web.run("cat /proc/net/tcp /proc/net/tcp6").lines
    listening = {line.split()[1] for line in sockets if line.split()[3] == "0A"}
    assert f"0100007F:{8080:04X}" in listening
    assert not any(address.startswith("00000000:") for address in listening)


def test_metrics_are_scraped_and_alarms_are_checked(web: Service) -> None:
    eventually_ready(web)
    posted(web, "bread")
    eventually(
        lambda: 'quoth_topic_records_in_total{topic="orders"}' in curl(web, f"{URL}/metrics")[1],
        "the topic is observed",
        START_S,
    )
    status, text = curl(web, f"{URL}/metrics")
    assert status == 200
    assert "quoth_up 1.0" in text.splitlines()
    assert f'quoth_build_info{{version="{VERSION}"}} 1.0' in text.splitlines()
    assert web.quoth("check", "--max-lag", "1h").lines[0].startswith("QUOTH OK - ")
    web.run("systemctl stop quothd")
    eventually(lambda: curl(web, f"{URL}/healthz")[0] == 503, "it sees that the broker is away", START_S)
    assert "quoth_up 0.0" in curl(web, f"{URL}/metrics")[1].splitlines()
    web.run("systemctl start quothd")
    eventually_ready(web)
    said = web.quoth("service", "logs", "--web").lines
    assert any("broker_unreachable" in line for line in said), said[-5:]


def test_a_browser_shows_its_records(web: Service, tmp_path: Path) -> None:
    """The browser runs beside the machine, in its network, and finds no other host there."""
    eventually_ready(web)
    posted(web, "butter")
    program = tmp_path / "chromium"
    program.write_text(
        f'#!/bin/sh\nexec nsenter --target {web.machine.leader} --net -- {executable()} "$@"\n'
    )
    program.chmod(0o755)
    with chromium(program) as browser:
        watched = WatchedBrowser(browser)
        page = watched.open(URL)
        page.get_by_role("link", name="orders").first.click()
        page.get_by_role("link", name="Browse").click()
        page.get_by_text("butter").first.wait_for()
        assert serious_findings(page) == []
        assert watched.problems == []
        watched.close()


def test_tokens_let_in_and_a_reload_revokes_them(web: Service) -> None:
    """As OPERATIONS says: a token file, the key in the configuration, a reload or a restart."""
    made = web.quoth("key", "token", "shop", "--format", "json")
    found = json.loads(made.out)
    web.run(
        'printf "%s\\n" "$1" > /etc/quoth/tokens.toml; chown quoth-web: /etc/quoth/tokens.toml; '
        "chmod 600 /etc/quoth/tokens.toml",
        "\n".join(found["lines"]),
    )
    bearer = ("--header", f"Authorization: Bearer {found['token']}")
    kept = web.run(f"cat {CONFIG}").out
    try:
        web.run(f"sed -i '1i tokens = \"{TOKENS}\"' {CONFIG}; systemctl restart quoth-web")
        eventually_ready(web)
        assert posted(web, "eggs")[0] == 401
        assert posted(web, "eggs", *bearer)[0] == 201
        assert curl(web, f"{URL}/metrics")[0] == 401
        assert curl(web, *bearer, f"{URL}/metrics")[0] == 200
        web.run(f": > {TOKENS}; systemctl reload quoth-web")
        eventually(lambda: posted(web, "eggs", *bearer)[0] == 401, "the token is revoked", START_S)
    finally:
        web.run(f"cat > {CONFIG}; rm {TOKENS}; systemctl restart quoth-web", stdin=kept)
    eventually_ready(web)


def test_the_sandbox_hides_the_records_and_the_exposure_is_low(web: Service) -> None:
    pid = show(web, "MainPID")
    assert web.run('stat --format=%U "/proc/$1"', pid).lines == ["quoth-web"]
    assert web.machine.run("setpriv --reuid quoth-web --clear-groups ls /var/lib/quoth").status != 0
    text = web.run("systemd-analyze security --no-pager quoth-web").out.decode()
    level = float(text.rpartition("Overall exposure level for quoth-web.service: ")[2].split()[0])
    assert level <= EXPOSURE_MAX


def test_a_reinstallation_keeps_the_configuration_and_a_removal_the_broker(web: Service) -> None:
    web.run(f"sed -i '1i poll_interval = 3' {CONFIG}")
    pid = show(web, "MainPID")
    web.run(INSTALL_WEB)
    eventually_ready(web)
    assert show(web, "MainPID") not in ("0", pid)
    assert "poll_interval = 3" in web.run(f"cat {CONFIG}").lines
    web.run("DEBIAN_FRONTEND=noninteractive dpkg --remove quoth-web 2>&1")
    assert show(web, "LoadState") == "not-found"
    assert web.run("ls /usr/bin/quoth-web 2>/dev/null || true").lines == []
    web.quoth("ping")
    web.run(INSTALL_WEB)
    eventually_ready(web)


def test_a_purge_of_one_package_keeps_the_files_of_the_other(web: Service) -> None:
    """dpkg does not put a configuration file back that was deleted."""
    files = "/etc/quoth/web-keys/web.key /etc/quoth/shop.key"
    web.run(f"mkdir -p /etc/quoth/web-keys; touch {files}; chown quoth-web: /etc/quoth/web-keys/web.key")
    web.run("dpkg --remove quoth-web 2>&1; dpkg --purge quoth 2>&1")
    assert web.run("find /etc/quoth -type f | sort").lines == [CONFIG, "/etc/quoth/web-keys/web.key"]
    web.run("DEBIAN_FRONTEND=noninteractive dpkg --install --force-confold /root/current.deb 2>&1")
    web.run(INSTALL_WEB)
    web.run("systemctl start quothd")
    eventually_ready(web)
    web.run("touch /etc/quoth/shop.key; dpkg --purge quoth-web 2>&1")
    assert web.run("find /etc/quoth -type f | sort").lines == [
        "/etc/quoth/quothd.toml",
        "/etc/quoth/shop.key",
    ]
    web.run("rm /etc/quoth/shop.key")
    web.run(INSTALL_WEB)
    eventually_ready(web)
