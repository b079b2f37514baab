"""Ports of tests: reserved, and none that the system gives away."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kit.machine import ports

TESTS = Path(__file__).resolve().parents[2]
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
    other = subprocess.check_output([sys.executable, "-c", OTHER, str(first)], cwd=TESTS, text=True)
    given += map(int, other.split())
    assert len(set(given)) == 7


def test_port_and_the_next_one_can_be_bound() -> None:
    port = ports.free_port()
    with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 1)):
        pass
