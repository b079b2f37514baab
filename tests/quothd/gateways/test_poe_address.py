"""The address for clients of Poe: loopback unless `insecure`, bound at the start, or the start is refused."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.gateways.poe import ANY_PORT, PoePeer, poe_url
from kit.keys import KeyFiles
from kit.machine.ports import free_port
from quothd import Broker, Config
from quothd.config.check import check
from quothd.service import poe_supervisor
from quothd.service.poe_supervisor import CLOSING_S
from quothwire.errors import RequestError


@pytest.fixture
def taken() -> Iterator[int]:
    """Listen on a port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"poe_listen": "tcp://0.0.0.0:5557"}, "0.0.0.0 can be reached from other machines"),
        ({"poe_listen": "tcp://*:5557"}, "Poe's protocol has no keys"),
        ({"poe_listen": "tcp://[::]:5557"}, ":: can be reached"),
        ({"poe_listen": "ipc:///run/poe"}, "is not on TCP"),
        ({"poe_listen": "tcp://127.0.0.1"}, "has no port"),
        ({"poe_listen": "tcp://127.0.0.1:70000"}, "poe_listen: 'tcp://127.0.0.1:70000' has no port"),
        ({"poe_listen": "127.0.0.1:5557"}, "poe_listen: '127.0.0.1:5557'"),
        ({"poe_listen": "tcp://127.0.0.1:5555"}, "the broker itself listens on 5555 and 5556"),
        ({"poe_listen": "tcp://127.0.0.1:5556"}, "the broker itself listens on 5555 and 5556"),
        ({"poe_listen": "tcp://localhost:5556"}, "the broker itself listens on 5555 and 5556"),
        ({"poe_listen": "tcp://127.0.0.1:5556", "host": "localhost"}, "the broker itself listens on 5555"),
        ({"poe_listen": "tcp://0.0.0.0:5555", "insecure": True}, "the broker itself listens on 5555"),
        ({"poe_listen": "tcp://127.0.0.1:5555", "host": "*", "insecure": True}, "the broker itself listens"),
        ({"poe_listen": "tcp://127.0.0.1:7", "host": ""}, "listens on no address"),
        ({"poe_listen": "tcp://127.0.0.1:7", "host": "", "listen": ("inproc://x",)}, "listens on no address"),
    ],
)
def test_a_wrong_address_is_refused_with_the_reason(
    settings: dict[str, Any], text: str, tmp_path: Path
) -> None:
    """By a check, and by the start of a broker, which leaves nothing behind."""
    config = Config(dir=tmp_path / "data", **settings)
    with pytest.raises(RequestError) as refused:
        check(config)
    assert refused.value.code == "bad_setting"
    assert text in refused.value.text
    assert refused.value.hint
    broker = Broker(tmp_path / "data", config=config)
    with pytest.raises(RequestError) as refused:
        broker.start()
    assert text in refused.value.text


def test_keys_do_not_open_the_address_to_a_network_but_insecure_does(tmp_path: Path) -> None:
    """Clients of Poe have no keys."""
    keys = KeyFiles(tmp_path)
    settings: dict[str, Any] = {"poe_listen": "tcp://0.0.0.0:0", **keys.settings}
    with pytest.raises(RequestError, match="Poe's protocol has no keys"):
        check(Config(dir=tmp_path / "data", **settings))
    with Broker(tmp_path / "data", host="127.0.0.1", **settings, insecure=True) as broker:
        assert broker.poe_url.startswith("tcp://0.0.0.0:")
        with PoePeer(broker.poe_url) as poe:
            assert poe.put("t", b"1")


def test_a_port_that_is_taken_refuses_the_start(tmp_path: Path, taken: int) -> None:
    """The port of the broker itself is free again then."""
    settings: dict[str, Any] = {"poe_listen": f"tcp://127.0.0.1:{taken}", "port": free_port()}
    with pytest.raises(OSError, match="another program does") as refused:
        Broker(tmp_path / "data", host="127.0.0.1", **settings).start()
    assert refused.value.errno == errno.EADDRINUSE
    daemon = BrokerProcess(tmp_path / "data", **settings)
    daemon.launch()
    assert daemon.wait() == 3
    assert f"poe_listen: cannot listen on tcp://127.0.0.1:{taken}" in daemon.stderr
    with Broker(tmp_path / "data", host="127.0.0.1", port=settings["port"]):
        pass


def test_a_port_that_is_given_up_in_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of a broker that was killed may still have it."""
    waits: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as orphan:
        port = orphan.getsockname()[1]

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 10:
                orphan.close()

        monkeypatch.setattr(poe_supervisor, "time", SimpleNamespace(sleep=sleep))
        with Broker(tmp_path, host="127.0.0.1", poe_listen=f"tcp://127.0.0.1:{port}") as broker:
            assert broker.poe_url == f"tcp://127.0.0.1:{port}"
    assert waits == [CLOSING_S] * 10


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1.example.invalid", "cannot listen"),
        ("a" * 70, f"'{'a' * 70}' is no host"),
        ("a..b", "'a..b' is no host"),
    ],
)
def test_a_host_that_is_none_refuses_the_start(host: str, text: str, tmp_path: Path) -> None:
    broker = Broker(tmp_path, host="127.0.0.1", poe_listen=f"tcp://{host}:7", insecure=True)
    with pytest.raises(RequestError, match=text) as refused:
        broker.start()
    assert refused.value.code == "bad_setting"


def test_the_address_may_be_another_one_of_loopback_at_the_same_port(tmp_path: Path) -> None:
    check(Config(dir=tmp_path, poe_listen="tcp://127.0.0.2:5555"))
    check(Config(dir=tmp_path, poe_listen="tcp://[::1]:5555"))


def test_ipv6_and_localhost_are_loopback(tmp_path: Path) -> None:
    for address in ("tcp://[::1]:0", "tcp://localhost:*"):
        with Broker(tmp_path, host="127.0.0.1", poe_listen=address) as broker:
            host, _, port = broker.poe_url.removeprefix("tcp://").rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port)), 20) as poe:
                poe.sendall(bytes.fromhex("00000014 0000 00000000000000 0000000a 6e6f7468657265"))
                assert poe.recv(6, socket.MSG_WAITALL) == bytes.fromhex("00000002 0001")


def test_a_table_of_the_file_sets_the_address(start_broker: StartBroker, tmp_path: Path) -> None:
    (tmp_path / "quoth.toml").write_text(f'[poe]\nlisten = "{ANY_PORT}"\nidle = "1m"\n')
    broker = start_broker("--config", str(tmp_path / "quoth.toml"))
    with PoePeer(poe_url(broker)) as poe:
        assert poe.put("t", b"1")
    assert "poe" not in start_broker(directory=tmp_path / "other").stderr.lower().replace(str(tmp_path), "")
