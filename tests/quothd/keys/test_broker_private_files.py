"""The files of a broker are for its user: data directory, key files, the sockets of ipc endpoints."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import Peers, refused
from kit.daemons import options
from kit.keys import KeyFiles
from kit.machine.commands import Command
from quothd import Broker
from quothd.config.check import check
from quothd.config.sources import load
from quothwire.protocol import announcement
from quothwire.security.key_file import encode_key

REFUSE = Callable[..., str]


def mode_of(path: Path | str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let the files of this process be for all users."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize(("settings", "mode"), [({}, 0o600), ({"ipc_mode": "0660"}, 0o660)])
def test_sockets_have_their_mode_and_at_no_time_a_wider_one(
    embed: Callable[..., Broker],
    socket: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    mode: int,
) -> None:
    """Both sockets, whatever the umask of the process is, which stays as it was."""
    before: list[int] = []
    chmod = Path.chmod

    def seen(path: Path, mode: int) -> None:
        before.append(mode_of(path))
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", seen)
    embed(listen=[f"ipc://{socket}"], **settings)
    assert before == [0o700, 0o700]
    assert [mode_of(path) for path in (socket, f"{socket}{announcement.SUFFIX}")] == [mode, mode]
    assert os.umask(0) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to any group")
def test_sockets_get_their_group(start_broker: StartBroker, socket: Path, peers: Peers) -> None:
    """By its number or its name; a connected client is served."""
    for group in ("12345", "daemon"):
        broker = start_broker(listen=f"ipc://{socket}", ipc_group=group, ipc_mode="0660")
        assert socket.group() == "daemon" if group == "daemon" else socket.stat().st_gid == int(group)
        assert mode_of(socket) == 0o660
        assert peers.fast(f"ipc://{socket}").publish("a", [b"1"])
        assert broker.terminate() == 0


def test_a_group_that_the_broker_may_not_use_is_an_error(
    tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_chown(_path: object, _user: int, _group: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse_chown)
    with refused("bad_setting"):
        Broker(tmp_path / "data", listen=[f"ipc://{socket}"], ipc_group="daemon").start()
    assert mode_of(socket) == 0o700


@pytest.mark.parametrize(("settings", "mask"), [({}, 0o077), ({"umask": "0027"}, 0o027)])
def test_the_daemon_has_the_umask_of_its_configuration(
    start_broker: StartBroker, peers: Peers, settings: dict[str, str], mask: int
) -> None:
    """No file that it makes is wider, whatever the umask of the shell is."""
    broker = start_broker(popen={"umask": 0}, **settings)
    peers.fast(broker).publish("a", [b"1"])
    broker.freeze()  # else files may go while they are looked at
    modes = {mode_of(path) for path in broker.directory.rglob("*")}
    assert not any(mode & mask for mode in modes)
    status = Path(f"/proc/{broker.pid}/status").read_text()
    assert f"Umask:\t{mask:04o}\n" in status


def test_a_directory_that_every_user_may_write_to_is_refused(refuse: REFUSE, tmp_path: Path) -> None:
    """At the start and by the check; a directory of a group is not."""
    data = tmp_path / "data"
    data.mkdir()
    for mode in (0o777, 0o1777, 0o702):
        data.chmod(mode)
        logged = refuse(2, directory=data)
        assert f"every user of this machine may write to {data} (mode {mode:04o})" in logged
        assert f"chmod o-w {data}" in logged
        with refused("bad_setting"):
            check(load({"dir": data}, {}))
        with refused("bad_setting"):
            Broker(data).start()
        assert list(data.iterdir()) == []
    data.chmod(0o770)
    check(load({"dir": data}, {}))


def test_a_broker_refuses_keys_that_protect_nothing(refuse: REFUSE, keys: KeyFiles, tmp_path: Path) -> None:
    """With the reason and what to type, as the check does."""
    public = tmp_path / "public.key"
    public.write_text(encode_key(keys.server._replace(secret_key="")))
    of_client = keys.write_key(keys.add("alice"))
    for settings, text in (
        ({"server_key": str(public)}, "has no secret key"),
        ({"server_key": str(of_client)}, f"{of_client} is the key file of a client"),
        ({"server_key": str(tmp_path / "none")}, "No such file"),
        ({"clients": str(tmp_path / "none")}, "No such file"),
        ({"clients": ""}, "clients is an empty path"),
        ({"server_key": ""}, "server_key is an empty path"),
    ):
        given = {**keys.settings, **settings}
        assert text in refuse(2, **given)
        assert text in refuse(2, "--check", **given)
    keys.add("quoth.rules")
    assert "is the process of the routing rules" in refuse(2, **keys.settings)
    for mode in (0o640, 0o604, 0o660):
        keys.server_file.chmod(mode)
        assert f"chmod 600 {keys.server_file}" in refuse(2, **keys.settings)


def test_other_machines_need_keys_or_the_word_insecure(
    embed: Callable[..., Broker], keys: KeyFiles, refuse: REFUSE, alone: Command
) -> None:
    logged = refuse(2, host="0.0.0.0")
    assert "0.0.0.0 can be reached from other machines" in logged
    assert "set server_key and clients" in logged
    checked = alone("config", "check", "--host", "0.0.0.0", *options(keys.settings))
    assert checked.lines[0] == "ok"
    broker = embed(host="0.0.0.0", **keys.settings)
    assert broker.urls[0].startswith("tcp://0.0.0.0:")
