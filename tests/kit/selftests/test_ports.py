"""Ports of tests: reserved, and none that the system gives away."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from kit.machine import ports

SYSTEM_FIRST = 32_768
"""The first port that Linux gives to a socket without one; macOS begins higher."""
NEAR = 80
OTHER = f"""
import sys
from kit.machine import ports
ports._PORTS = range(int(sys.argv[1]), int(sys.argv[1]) + {NEAR}, 2)
print(*(ports.free_port() for _ in range(3)))
"""


def test_port_is_given_once_while_nothing_listens_there(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    near = range(first, first + NEAR, 2)
    assert near[-1] < SYSTEM_FIRST
    monkeypatch.setattr(ports, "_PORTS", near)
    given = [first, *(ports.free_port() for _ in range(3))]
    command = [sys.executable, "-W", "error", "-c", OTHER, str(first)]
    other = subprocess.run(command, cwd=Path(ports.__file__).parents[2], capture_output=True, text=True)
    given += map(int, other.stdout.split())
    assert (len(set(given)), other.stderr) == (7, "")


def test_only_the_newest_ports_stay_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    near = iter(range(ports.free_port(), SYSTEM_FIRST, 2))
    monkeypatch.setattr(ports._RANDOM, "choice", lambda _: next(near))
    monkeypatch.setattr(ports, "_RESERVED", deque())
    monkeypatch.setattr(ports, "_RESERVED_MAX", 3)
    given = [ports.free_port() for _ in range(5)]
    assert [is_reserved(port) for port in given] == [False, False, True, True, True]


def is_reserved(port: int) -> bool:
    """True if no UDP socket can be bound to the port."""
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def test_port_and_the_next_one_can_be_bound() -> None:
    port = ports.free_port()
    with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 1)):
        pass
