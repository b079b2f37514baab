"""The client for Node in client/examples/node: the vectors, the sessions, and a real broker."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.client.conformance import PLAYER, play
from kit.deadlines import eventually
from kit.keys import KeyFiles, new_key
from kit.machine.commands import COMMAND_S
from kit.machine.processes import shared
from quothd import Broker

EXAMPLE = Path(__file__).resolve().parents[3] / "client" / "examples" / "node"
NODE_MIN = 20
INSTALL = (
    "npm",
    "install",
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--prefer-offline",
    "--loglevel=error",
)
UNSUPPORTED = ("produce: ", "transactions: ")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of its driver, with its packages in a folder of this run; npm caches them."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not here; on Debian type: apt-get install nodejs npm")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.strip("v\n").split(".")[0]) < NODE_MIN:
        pytest.skip(f"node is {version.strip()}, and the client needs {NODE_MIN}")
    with shared(tmp_path_factory, "node-client") as folder:
        if not (folder / "installed").exists():
            shutil.copytree(
                EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules"), dirs_exist_ok=True
            )
            done = subprocess.run(
                INSTALL, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, check=False
            )
            if done.returncode:
                pytest.skip(f"npm installs nothing: {done.stderr.strip()[-300:]}")
            (folder / "installed").touch()
    return ["node", str(folder / "driver.mjs")]


@pytest.mark.parametrize("vectors", ["batches", "settlements"])
def test_node_client_reads_writes_and_refuses_what_the_vectors_have(driver: list[str], vectors: str) -> None:
    command = [*driver, vectors, str(PLAYER.parent / f"{vectors}.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert (done.stderr, json.loads(done.stdout)) == ("", [])


def test_node_client_passes_all_sessions_that_it_supports(driver: list[str]) -> None:
    played = play(driver)
    played.hold()
    assert all(name.startswith(UNSUPPORTED) for name in played.of("SKIP"))
    assert len(played.of("PASS")) > len(played.of("SKIP"))


def test_node_and_python_read_what_the_other_has_published(driver: list[str], tmp_path: Path) -> None:
    keys, headers = [None, b"", b"k"], [{"trace": b"\0\xff", "é": b""}, {}, {"x": b"1"}]
    values = [b"one", b"", bytes(range(256))]
    hexed = {
        "values": [value.hex() for value in values],
        "keys": [None if key is None else key.hex() for key in keys],
        "headers": [{name: value.hex() for name, value in one.items()} for one in headers],
    }
    with Broker(tmp_path, host="127.0.0.1") as broker, quoth.connect(broker) as client:
        client.publish("python", values, key=keys, headers=headers)
        many = [b"%d" % number for number in range(2_500)]
        client.publish("many", many)
        published, read, followed = made(
            driver,
            broker.url,
            {"call": "publish", "topic": "node", "durability": "synced", **hexed},
            {"call": "read", "topic": "python", "after": "0"},
            {"call": "tail", "topic": "many", "after": "0", "records": len(many)},
        )
        found = client.read("node")
    assert [(one.value, one.key, one.headers) for one in found] == list(
        zip(values, keys, headers, strict=True)
    )
    assert [str(found[0].pointer), str(found[-1].pointer)] == [published["first"], published["last"]]
    assert (published["durability"], published["duplicate"]) == ("synced", False)
    assert {name: [one[name[:-1]] for one in read["records"]] for name in ("values", "keys")} == {
        name: hexed[name] for name in ("values", "keys")
    }
    assert [one["headers"] for one in read["records"]] == hexed["headers"]
    assert [bytes.fromhex(one["value"]) for one in followed["records"]] == many
    assert read["gaps"] == followed["gaps"] == []


def test_node_and_python_share_the_records_of_a_group(driver: list[str], tmp_path: Path) -> None:
    group = {"topic": "jobs", "group": "g"}
    with Broker(tmp_path, host="127.0.0.1") as broker, quoth.connect(broker) as client:
        ack = client.publish("jobs", [b"one", b"two", b"three"], key=[None, b"k", b""])
        last = str(ack.last)
        _, fetched, released, again, *settled, info = made(
            driver,
            broker.url,
            {"call": "group", **group, "settings": {"backoff": [0.5, 60], "max_attempts": 2}},
            {"call": "group_fetch", **group, "limit": 10},
            {"call": "group_release", **group, "pointer": str(ack.first + 1)},
            {"call": "group_fetch", **group, "limit": 10},
            {"call": "group_ack", **group, "pointer": str(ack.first)},
            {"call": "group_term", **group, "pointer": last, "reason": "é"},
            {"call": "group_nack", **group, "pointer": str(ack.first + 1), "delay_ms": 0, "reason": "later"},
            {"call": "group_info", **group},
        )
        assert [(one["key"], one["attempts"]) for one in fetched["records"]] == [
            (None, "1"),
            ("6b", "1"),
            ("", "1"),
        ]
        assert (released, again["records"]) == ({}, [fetched["records"][1]])
        assert settled == [{}, {}, {}]
        assert info["lag"] <= 2
        with client.group("jobs", "g") as python:
            (message,) = python.fetch()
            assert (message.value, message.attempts) == (b"two", 2)
            message.ack()
            assert eventually(lambda: python.lag().records == 0, "the letter is stored")
        (letter,) = client.read("jobs.g.dead")
        assert (letter.value, letter.headers["quoth-reason"].decode()) == (b"three", "é")


def test_a_node_client_takes_a_key_file_and_reports_why_a_key_is_refused(
    driver: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory := tmp_path / "keys").mkdir()
    ping = {"call": "ping"}
    files = KeyFiles(directory)
    alice = files.add("alice")
    astray = alice._replace(server_keys=(new_key("other").public_key,))
    (wide := files.write_key(alice)).chmod(0o640)
    with Broker(tmp_path / "data", host="127.0.0.1", **files.settings) as broker:
        url = broker.urls[0]
        refused_files = {
            "does not know the key, or has revoked it": files.write_key(new_key("mallory", files.server)),
            "has another key than the server-key": files.write_key(astray),
            "and its secret is for the owner alone: chmod 600": wide,
            "wants a key, and none was given": "",
        }
        for text, path in refused_files.items():
            monkeypatch.setenv("QUOTH_KEY_FILE", str(path))
            code = "bad_setting" if "chmod" in text else "auth_failed"
            assert (refused := refused_with(driver, url)).startswith(f"{code}: ")
            assert text in refused
        monkeypatch.setenv("QUOTH_KEY_FILE", str(files.write_key(alice)))
        assert made(driver, url, ping)[0]["time"]
    with Broker(tmp_path / "data", host="127.0.0.1") as broker:
        assert "takes no keys" in refused_with(driver, broker.urls[0])


def refused_with(driver: list[str], url: str) -> str:
    """Connect to a broker that refuses the client; returns the message."""
    client = Path(driver[1]).with_name("quoth.mjs").as_uri()
    script = f"""
        import {{ connect, QuothError }} from {json.dumps(client)};
        await connect({json.dumps(url)}).then(() => process.exit(1), (problem) => {{
            if (!(problem instanceof QuothError)) throw problem;
            console.log(problem.message);
        }});
    """
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=True)
    assert done.stderr == ""
    return done.stdout.rstrip("\n")


def made(driver: list[str], url: str, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Let the client make calls, and return their results."""
    job = {"session": "real", "url": url, "timeout_ms": 10_000, "resend_ms": 5_000, "calls": calls}
    done = subprocess.run(
        driver, input=json.dumps(job), capture_output=True, text=True, timeout=COMMAND_S, check=True
    )
    assert done.stderr == ""
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return results
