"""The process: its start and its end, its exit statuses, its log, and a broker that comes and goes."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.supervisors import Supervisor
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.commands import Command
from kit.machine.ports import free_port
from kit.web.servers import WebProcess, code_of, events
from quothweb import main
from quothweb.service.log_events import EVENTS

from ..conftest import StartWeb


def exit_status(*arguments: str, **settings: Any) -> tuple[int, str]:
    """Run a server that cannot start; returns its exit status and what it said."""
    web = WebProcess(*arguments, **settings)
    web.launch()
    return web.wait(), web.stderr


# -- start and end ------------------------------------------------------------------------------------------


def test_a_server_reports_its_start_and_its_end(
    broker: BrokerProcess, start_web: StartWeb, tmp_path: Path
) -> None:
    manager = Supervisor.below(tmp_path)
    try:
        web = start_web(broker.url, environment=manager.environment())
        manager.wait_for("READY")
        assert f"asking {broker.url}" in web.stderr
        assert web.terminate() == 0
        manager.wait_for("STOPPING")
        assert web.stderr.splitlines()[-2] == "quoth-web: stopped"
    finally:
        manager.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_requests_in_progress_get_their_answers_at_the_end(
    broker: BrokerProcess, start_web: StartWeb, topic: str, number: int
) -> None:
    web = start_web(broker.url)
    host, _, port = web.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        connection.sendall(
            f"POST /api/v1/topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nha".encode()
        )
        with web.client() as http:
            eventually(lambda: http.get("/topics").status_code == 200, "it serves")
        os.kill(web.pid, number)
        web.wait_for("quoth-web: stopping")
        connection.sendall(b"lf")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 201")
    assert web.wait() == 0


def test_a_wrong_configuration_is_2_and_a_taken_port_3(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"host": "0.0.0.0"}, "other machines"),
        ({"port": 70_000}, "port is 0 to 65535"),
        ({"tokens": str(tmp_path / "none.toml")}, "none.toml"),
        ({"key_file": str(tmp_path / "none.key")}, "none.key"),
        ({"root_path": "quoth"}, "root_path"),
        ({"cors_origins": "*"}, "no origin"),
        ({"log_level": "loud"}, "log_level"),
    ]
    for settings, text in wrong:
        assert main.print_check(settings) == 2, settings
        assert text in capfd.readouterr().err
    status, said = exit_status(host="0.0.0.0")
    assert (status, "other machines" in said) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, said = exit_status(port=taken.getsockname()[1])
    assert (status, "cannot listen on 127.0.0.1:" in said) == (3, True)


def test_a_file_and_variables_are_read_and_a_wrong_name_suggests_the_right_one(
    broker: BrokerProcess, start_web: StartWeb, tmp_path: Path
) -> None:
    file = tmp_path / "quoth-web.toml"
    file.write_text(f'url = "{broker.url}"\npayloads = false\n')
    port = free_port()
    web = WebProcess("--config", str(file), environment={"QUOTH_WEB_PORT": str(port)})
    del web.settings["port"]
    web.start()
    try:
        assert web.url == f"http://127.0.0.1:{port}"
    finally:
        web.close()
    file.write_text("payload = false\n")
    status, said = exit_status("--config", str(file))
    assert (status, "did you mean payloads?" in said) == (2, True)
    status, said = exit_status(environment={"QUOTH_WEB_PROT": "1"})
    assert (status, "did you mean QUOTH_WEB_PORT?" in said) == (2, True)


def test_the_check_prints_what_differs(alone: Command, tmp_path: Path) -> None:
    checked = alone("web", "--check", "--port", "0", "--payloads")
    assert checked.status == 0
    assert checked.lines[:2] == ["ok", "port = 0  --port"]
    assert alone("web", "--check", "--host", "0.0.0.0").status == 2


def test_without_its_packages_the_command_says_what_to_install(
    alone: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "NEEDED", ("fastapi", "no_such_package"))
    happened, advice = alone("web").refused(1)
    assert "no_such_package" in happened
    assert advice == "hint: pip install 'quoth[web]'"


def test_a_reload_names_keys_that_need_a_restart(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "quoth-web.toml"
    file.write_text(f'url = "{broker.url}"\n')
    web = WebProcess("--config", str(file)).start()
    try:
        file.write_text(f'url = "{broker.url}"\nlog_format = "json"\npayloads = false\n')
        os.kill(web.pid, signal.SIGHUP)
        assert "keys=payloads" in web.wait_for("event=restart_needed")
        assert web.wait_for("event=reloaded").endswith("changed=log_format")
        file.write_text("port = 'x'\n")
        os.kill(web.pid, signal.SIGHUP)
        assert '"event": "reload_refused"' in web.wait_for("reload_refused")
        with web.client() as http:
            assert http.get("/topics").status_code == 200
    finally:
        web.close()


# -- the broker comes and goes ------------------------------------------------------------------------------


def test_a_server_starts_without_a_broker_and_serves_when_it_comes(
    start_broker: StartBroker, start_web: StartWeb, tmp_path: Path
) -> None:
    port = free_port()
    web = start_web(f"tcp://127.0.0.1:{port}", timeout=0.3)
    with web.client() as http:
        answer = http.get("/topics")
        assert (answer.status_code, code_of(answer)) == (503, "disconnected")
        assert answer.json()["error"]["retryable"] is True
        assert answer.headers["retry-after"] == "1"
        broker = start_broker(port=port)
        eventually(lambda: http.get("/topics").status_code == 200, "the broker is there")
        broker.kill()
        assert http.post("/topics/t", content=b"v").status_code in (503, 504)
        broker.restart()
        eventually(lambda: http.post("/topics/t", content=b"v").status_code == 201, "it is back")


def test_a_request_waits_for_a_broker_that_is_away_for_a_moment(
    start_broker: StartBroker, start_web: StartWeb
) -> None:
    broker = start_broker()
    web = start_web(broker.url)
    found: list[httpx.Response] = []
    with web.client() as http:
        http.post("/topics/t", content=b"v")
        broker.kill()
        waiting = threading.Thread(target=lambda: found.append(http.get("/topics/t/count")))
        waiting.start()
        broker.restart()
        waiting.join(DEADLINE_S)
    assert found[0].json()["records"] == 1


# -- behind a proxy -----------------------------------------------------------------------------------------


def test_only_trusted_proxies_name_the_client(broker: BrokerProcess, start_web: StartWeb) -> None:
    headers = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
    for trusted, address in (("", "127.0.0.1"), ("127.0.0.1", "203.0.113.7")):
        web = start_web(broker.url, access_log=True, trusted_proxies=trusted)
        with web.client() as http:
            http.get("/topics", headers=headers)
        assert f"address={address}" in web.wait_for("event=request")


def test_a_path_in_front_of_the_server_stands_in_what_it_names(
    broker: BrokerProcess, start_web: StartWeb, topic: str
) -> None:
    """A proxy removes it before the server sees the request."""
    web = start_web(broker.url, root_path="/quoth")
    with web.client() as http:
        answer = http.post(f"/topics/{topic}", content=b"v")
        assert answer.headers["location"].startswith(f"/quoth/api/v1/topics/{topic}/records/")
        assert http.get("/openapi.json").json()["servers"] == [{"url": "/quoth/api/v1"}]


# -- the log ------------------------------------------------------------------------------------------------


def test_the_table_lists_exactly_the_events_of_the_code() -> None:
    folder = Path(main.__file__).parent
    texts = "\n".join(path.read_text() for path in folder.rglob("*.py") if path.name != "log_events.py")
    for name, event in EVENTS.items():
        assert f'note("{name}"' in texts or f'note(\n        "{name}"' in texts or name == "message", name
        assert event.meaning


def test_streams_do_not_delay_the_end_beyond_its_limit(
    broker: BrokerProcess, start_web: StartWeb, topic: str
) -> None:
    """Even of clients that read nothing."""
    web = start_web(broker.url, stop_timeout=1)
    with web.client() as http:
        http.post(f"/topics/{topic}", content=b"v")
        with events(http, f"/topics/{topic}/records?after=0"):
            assert web.terminate() == 0
