"""Completion as shells ask for it, with a real bash and its TAB key."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command, after
from kit.machine.ports import free_port
from kit.machine.screens import Terminal
from quoth import Client
from quoth.client import DEFAULT_TIMEOUT_S
from quothcli.cli.options import COMPLETION_VARIABLE

PATIENT = "from quothcli.cli import options; options.COMPLETION_S = 20.0"
"""A busy machine may need longer for an answer than a person waits for one."""
BASH = shutil.which("bash")


def candidates(command: Command, line: str) -> list[str]:
    """Ask as bash does, at the end of a line."""
    words = [*line.split(), *([""] if line.endswith(" ") else [])]
    environment = {
        COMPLETION_VARIABLE: "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    result = command(environment=environment)
    assert (result.status, result.err) == (0, "")
    return sorted(filter(None, result.lines))


LINES = {
    "quoth re": ["read", "reference", "restore"],
    "quoth topic r": ["rm", "roll"],
    "quoth group p": ["pause", "pending"],
    "quoth group dead s": ["show"],
    "quoth consume t --mode at_": ["at_least_once", "at_most_once"],
    "quoth --url tcp://a:1 pi": ["ping", "pipeline"],
    "quoth read orders --si": ["--since"],
    "quoth read --ct": ["--ctx"],
    "quoth --format ": ["json", "jsonl", "raw", "text"],
    "quoth top --sort ": ["age", "bytes", "lag", "name", "rate"],
    "quoth errors disk": ["disk_low"],
    "quoth help protoc": ["protocol"],
    "quoth completion f": ["fish"],
    "quoth pub t --file /etc/": [],
}


def test_commands_options_and_choices_are_completed(alone: Command) -> None:
    assert {line: candidates(alone, line) for line in LINES} == LINES


def test_topics_and_contexts_are_completed(quoth: Command) -> None:
    for name in ("orders", "orders:eu"):
        assert quoth("pub", name, "x").status == 0
    assert quoth("ctx", "add", "shop", quoth.url).status == 0
    asked = quoth.prepared(PATIENT)
    assert candidates(asked, "quoth read ord") == ["orders", "orders:eu"]
    assert candidates(asked, "quoth ctx use s") == candidates(asked, "quoth ping --ctx ") == ["shop"]
    asked.url = ""
    assert candidates(asked, f"quoth --url {quoth.url} tail orders:") == ["orders:eu"]
    assert candidates(asked, "quoth --ctx shop read orders:") == ["orders:eu"]


def test_groups_are_completed_as_arguments_and_behind_an_option(quoth: Command, client: Client) -> None:
    client.publish("invoices", b"x")
    client.group("invoices", "billing").info()
    asked = quoth.prepared(PATIENT)
    for line in ("group info invoices b", "group dead retry invoices b", "consume invoices --group b"):
        assert candidates(asked, f"quoth {line}") == ["billing"], line
    assert candidates(asked, "quoth consume nowhere -g b") == []


def test_groups_of_a_source_that_is_forwarded_are_completed(quoth: Command, client: Client) -> None:
    client.publish("readings", b"x")
    for name in ("copy", "other"):
        client.cursor("readings", name).pointer()
    asked = quoth.prepared(PATIENT)
    asked.url = ""
    line = f"quoth forward {quoth.url} tcp://b:1 --from readings --topic x --group "
    assert candidates(asked, f"{line}c") == ["copy"]
    assert candidates(asked, line) == ["copy", "other"]


def test_broker_that_does_not_answer_and_damaged_contexts_give_no_candidate(
    alone: Command, tmp_path: Path
) -> None:
    (tmp_path / "config" / "quoth").mkdir(parents=True)
    (tmp_path / "config" / "quoth" / "contexts.json").write_text("damaged")
    assert candidates(alone, "quoth ctx use s") == []
    began = time.monotonic()
    assert candidates(alone, f"quoth --url tcp://127.0.0.1:{free_port()} read ") == []
    assert time.monotonic() - began < DEFAULT_TIMEOUT_S, "it waits as long as a command does"


def test_each_shell_takes_its_script(alone: Command) -> None:
    for shell in ("bash", "zsh", "fish"):
        result = alone("completion", shell)
        assert (result.status, result.err) == (0, "")
        assert COMPLETION_VARIABLE in result.out.decode()
        if shutil.which(shell) is not None:
            subprocess.run([shell, "-n"], input=result.out, check=True, timeout=DEADLINE_S)


@pytest.fixture
def terminal(tmp_path: Path, broker: BrokerProcess) -> Iterator[Terminal]:
    """An interactive bash that finds `quoth` on its PATH."""
    *command, code = after(PATIENT)
    words = " ".join(f"'{word}'" for word in command)
    (tmp_path / "code.py").write_text(code)
    (tmp_path / "quoth").write_text(f'#!/bin/sh\nexec {words} "$(cat \'{tmp_path}/code.py\')" "$@"\n')
    (tmp_path / "quoth").chmod(0o700)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {"PATH": path, "QUOTH_URL": broker.url, "HOME": "/", "TERM": "dumb", "PS1": "$ "}
    shell = Terminal(str(BASH), "--norc", "--noprofile", "-i", **environment)
    yield shell
    shell.close()


@pytest.mark.skipif(BASH is None, reason="this system has no bash")
def test_tab_key_of_bash_completes_a_line_that_runs(terminal: Terminal, quoth: Command) -> None:
    assert quoth("pub", "unlike-any-other", "hello").status == 0
    for typed, shown in (
        ('eval "$(quoth completion bash)"; echo re""ady\n', "ready"),
        ("quoth rea\t", "read "),
        ("unlike\t", "-any-other "),
        ("--form\traw\n", "hello"),
    ):
        before = len(terminal.seen)
        terminal.type(typed)
        assert terminal.read_until(lambda seen: shown in seen[before:]), terminal.seen  # noqa: B023
