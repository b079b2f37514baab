"""Poe as a peer: with a double of Erlang, with a double of its client, and with Poe where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from quothbench.load.clients import Clients
from quothbench.load.driver import VALUE
from quothbench.peers import poe
from quothbench.peers.work import CALL
from quothwire.errors import BrokerFailure

CLIENT = """\
-module(poe_protocol).
-export([socket/2, write/3, read/4]).

socket("127.0.0.1", 7) -> #{}.

write(Topic, Messages, #{}) ->
    Stored = stored(Topic),
    Count = length(Stored),
    put(Topic, Stored ++ lists:zip(lists:seq(Count + 1, Count + length(Messages)), Messages)).

read(Topic, After, Limit, #{}) -> lists:sublist(lists:nthtail(After, stored(Topic)), Limit).

stored(Topic) -> case get(Topic) of undefined -> [ALREADY]; Stored -> Stored end.
"""
"""A double of Poe's client, which keeps messages in its process. ALREADY: stored before the first write."""

Escript = Callable[[str], None]


@pytest.fixture
def escript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Escript:
    """Return a function that puts a shell script in the place of Erlang."""

    def put(script: str) -> None:
        program = tmp_path / "escript"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    return put


@pytest.fixture
def erlang() -> None:
    if shutil.which("escript") is None or shutil.which("erlc") is None:
        pytest.skip("Erlang is not installed")


def ready() -> None:
    """Begin at once."""


def test_versions_are_those_that_erlang_reports(escript: Escript) -> None:
    escript("echo Poe 0.1.0, Erlang/OTP 25")
    assert poe.POE.missing() == ""
    assert poe.POE.versions() == "Poe 0.1.0, Erlang/OTP 25"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo bisect_server, ranch; exit 1", "bisect_server, ranch"),
        (
            "echo 'escript: exception error: undef' >&2; echo '  in f/1' >&2; exit 127",
            "exception error: undef",
        ),
        ("exit 3", "exit status 3"),
    ],
)
def test_missing_poe_is_named_with_the_way_to_get_it(escript: Escript, script: str, reason: str) -> None:
    escript(script)
    missing = poe.POE.missing()
    assert f"{reason}): compile github.com/odo/poe and name " in missing
    assert "\n" not in missing


def test_seconds_of_a_client_count_with_all_its_messages(escript: Escript) -> None:
    escript("echo 1000 0.25")
    assert poe._write(ready, "7", 1_000) == 0.25
    escript("echo 1000 1.0e-3")
    assert poe._read(ready, "7", 1_000) == 0.001


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (
            "echo 'escript: exception error: closed' >&2; echo stack >&2; exit 127",
            "poe: escript: exception error: closed",
        ),
        ("echo 900 0.25", "poe: 900 messages instead of 1,000"),
        ("echo 1000", "poe: no count and seconds in '1000.n'"),
        ("echo ten 0.25", "poe: no count and seconds"),
    ],
)
def test_failure_of_a_client_is_an_error_of_ours(escript: Escript, script: str, problem: str) -> None:
    escript(script)
    with pytest.raises(BrokerFailure, match=problem):
        poe._read(ready, "7", 1_000)


def test_erlang_that_is_gone_is_an_error_of_ours(escript: Escript) -> None:
    with pytest.raises(BrokerFailure, match="poe: FileNotFoundError"):
        poe._read(ready, "7", 1_000)


@pytest.mark.usefixtures("erlang")
def test_erlang_names_all_that_it_does_not_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ERL_LIBS", str(tmp_path))
    needed = "appendix_server, bisect_server, gen_server2, poe_protocol, ranch"
    assert f"({needed}): " in poe.POE.missing()


@pytest.mark.usefixtures("erlang")
@pytest.mark.parametrize(
    ("already", "problem"),
    [
        ("", ""),
        ("{1, <<1>>}", "poe: escript: exception error: no function clause matching"),
        (f'{{1, binary:decode_hex(<<"{VALUE.hex()}">>)}}', "poe: 301 messages instead of 300"),
    ],
    ids=["as written", "another value", "another number"],
)
def test_client_counts_messages_and_looks_at_each(
    already: str, problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, built = tmp_path / "poe_protocol.erl", tmp_path / "double" / "ebin"
    source.write_text(CLIENT.replace("ALREADY", already))
    built.mkdir(parents=True)
    subprocess.run(["erlc", "-o", str(built), str(source)], timeout=60, check=True)
    monkeypatch.setenv("ERL_LIBS", str(tmp_path))
    if problem:
        with pytest.raises(BrokerFailure, match=problem):
            poe._write(ready, "7", 3 * CALL)
    else:
        assert 0 < poe._write(ready, "7", 3 * CALL) < 10


def test_poe_does_its_work(tmp_path: Path) -> None:
    if missing := poe.POE.missing():
        pytest.skip(missing)
    with Clients(1) as clients, poe.POE.serving(tmp_path / "data") as port:
        poe.POE.store(port)
        for way in poe.POE.ways:
            assert way.measure(clients, port) > 0
