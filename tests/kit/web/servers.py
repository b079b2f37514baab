"""Processes of quoth-web, and clients of HTTP for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from kit.daemons import DaemonProcess
from kit.deadlines import DEADLINE_S
from kit.machine.processes import python_of

NDJSON = "application/x-ndjson"


class WebProcess(DaemonProcess):
    """`quoth-web` as a process: see `DaemonProcess`. Made by the fixtures `start_web` and `web`."""

    command = python_of("quothweb.main")
    ready = "quoth-web: ready "

    @property
    def api(self) -> str:
        """The URL of the gateway."""
        return f"{self.url}/api/v1"

    def client(self, token: str = "", **options: Any) -> httpx.Client:
        """Return a client of the gateway."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.api, headers=headers, timeout=DEADLINE_S, **options)


def code_of(response: httpx.Response) -> str:
    """Return the code of an answer that has to be an error, with the shape of one."""
    assert response.headers["content-type"] == "application/json"
    found = response.json()["error"]
    assert set(found) == {"code", "text", "hint", "retryable"}
    assert response.headers["cache-control"] == "no-store"
    code: str = found["code"]
    return code


def lines_of(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the objects of an answer of lines."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == NDJSON
    return [json.loads(line) for line in response.text.splitlines()]


def values_of(response: httpx.Response) -> list[str]:
    """Return the values of an answer of lines."""
    return [line["value"] for line in lines_of(response)]


def ndjson(*records: Mapping[str, Any]) -> bytes:
    """Encode a body of lines."""
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


class ServerEvents:
    """The events of a stream, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()

    def next(self) -> dict[str, Any]:
        """Return the next event: its fields, the data decoded. Comments are skipped."""
        found: dict[str, Any] = {}
        for line in self._lines:
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                found[name] = json.loads(value) if name == "data" else value
            elif not line and "data" in found:
                return found
        raise EOFError("the stream has ended")

    def comment(self) -> str:
        """Return the next comment, which keeps the connection alive."""
        return next(line for line in self._lines if line.startswith(":"))


@contextmanager
def events(client: httpx.Client, path: str, **headers: str) -> Iterator[ServerEvents]:
    """Follow a topic."""
    with client.stream("GET", path, headers={"Accept": "text/event-stream", **headers}) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        yield ServerEvents(response)


class TokenFile:
    """A tokens file, which each change replaces."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens.toml"
        self._tables: dict[str, str] = {}
        self._write()

    def add(self, name: str, key_file: Path | None = None) -> str:
        """Write a token, with the rights of a key; returns it."""
        token = f"quoth_{name}_token_of_a_test"
        table = f'[tokens."{name}"]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
        self._tables[name] = table + (f'key_file = "{key_file}"\n' if key_file else "")
        self._write()
        return token

    def remove(self, name: str) -> None:
        """Remove a token."""
        del self._tables[name]
        self._write()

    def _write(self) -> None:
        self.path.write_text("\n".join(self._tables.values()))
        self.path.chmod(0o600)
