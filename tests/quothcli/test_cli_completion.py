"""Completion as the shells ask for it: a real bash, its variables, its TAB key."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, free_port
from kit.deadlines import DEADLINE_S
from kit.machine.commands import COMMAND_S, Command, after
from quoth.client import DEFAULT_TIMEOUT_S
from quothcli.cli import contexts
from quothcli.cli.completion import SCRIPTS, VARIABLE, _words
from quothcli.cli.contexts import Context

PATIENT = "from quothcli.cli import completion; completion.BROKER_S = 20.0"
"""A busy machine may need longer for an answer than a person waits for one."""
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="this system has no bash")
ASK = """
eval "$(quoth completion bash)"
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMP_LINE="$LINE" COMP_POINT=${{#LINE}}
_quoth_completion quoth
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `quoth` is the command under test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    *command, code = after(PATIENT)
    words = " ".join(f"'{word}'" for word in command)
    (folder / "code.py").write_text(code)
    (folder / "quoth").write_text(f'#!/bin/sh\nexec {words} "$(cat \'{folder}/code.py\')" "$@"\n')
    (folder / "quoth").chmod(0o700)
    return f"{folder}:{os.environ['PATH']}"


def bash(path: str, line: str, url: str = "") -> list[str]:
    """What bash offers for a line."""
    environment = {**os.environ, "PATH": path, "LINE": line, "QUOTH_URL": url}
    words = line.replace("'", "").split() + ([""] if line.endswith(" ") else [])
    told = subprocess.run(
        [str(BASH), "--norc", "-c", ASK.format(words=" ".join(f"'{word}'" for word in words))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=True,
    )
    assert told.stderr == ""
    return sorted(filter(None, told.stdout.split("\n")))


LINES = {
    "quoth re": ["read", "reference", "restore"],
    "quoth topic r": ["rm", "roll"],
    "quoth tr": ["transaction"],
    "quoth --url tcp://a:1 pi": ["ping", "pipeline"],
    "quoth read orders --si": ["--since"],
    "quoth pub orders --d": ["--durability"],
    "quoth read --ct": ["--ctx"],
    "quoth --format ": ["json", "jsonl", "raw", "text"],
    "quoth read orders --format=j": ["json", "jsonl"],
    "quoth top --sort ": ["age", "bytes", "lag", "name", "rate"],
    "quoth errors disk": ["disk_low"],
    "quoth completion f": ["fish"],
    "quoth pub t --file /etc/": [],
}


@needs_bash
@pytest.mark.parametrize("line", LINES)
def test_bash_completes_commands_and_options(path: str, line: str) -> None:
    assert bash(path, line) == LINES[line]


@needs_bash
def test_bash_completes_topics_of_the_broker(path: str, quoth: Command) -> None:
    names = ["orders", "orders:eu", "orders of 'today'", "*"]
    for name in names:
        assert quoth("pub", name, "x").status == 0
    assert bash(path, "quoth read orders", quoth.url) == [
        "orders",
        "orders:eu",
        r"orders\ of\ \'today\'",
    ]
    assert bash(path, "quoth topic info orders:e", quoth.url) == ["eu"], "bash's word begins at the colon"
    assert bash(path, "quoth read 'orders o", quoth.url) == ["orders of 'today'"]
    assert r"\*" in bash(path, "quoth pub ", quoth.url)
    assert bash(path, f"quoth --url {quoth.url} tail orders:") == ["eu"]
    assert bash(path, f"quoth tail --url {quoth.url} orders:") == ["eu"]


@needs_bash
def test_bash_completes_contexts_and_their_topics(path: str, quoth: Command) -> None:
    contexts.change(lambda held: held.add("shop", Context(quoth.url)))
    assert quoth("pub", "of-the-shop", "x").status == 0
    assert bash(path, "quoth ctx use s") == ["shop"]
    assert bash(path, "quoth ping --ctx ") == ["shop"]
    assert bash(path, "quoth --ctx shop read of-") == ["of-the-shop"]
    contexts.path().write_text("damaged")
    assert bash(path, "quoth ctx use s") == []


def test_a_broker_that_does_not_answer_is_silence(alone: Command) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    began = time.monotonic()
    told = alone("quoth read ", environment={VARIABLE: "bash", "QUOTH_URL": url})
    assert (told.status, told.out, told.err) == (0, b"", "")
    assert time.monotonic() - began < DEFAULT_TIMEOUT_S, "it waits as long as a command does"


def test_other_shells_hand_over_words(quoth: Command) -> None:
    assert quoth("pub", "a topic", "x").status == 0
    asked = quoth.prepared(PATIENT)
    for shell in ("zsh", "fish"):
        environment: Mapping[str, str] = {VARIABLE: shell}
        assert "a topic" in asked("read", "a", environment=environment).lines
        assert asked("read", "x", "--format=js", environment=environment).lines[0] == "--format=json"
        assert asked("", environment=environment).lines[:2] == ["serve", "config"]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_is_understood_by_its_shell(alone: Command, shell: str) -> None:
    told = alone("completion", shell)
    assert (told.status, told.err) == (0, "")
    if shutil.which(shell) is None:
        pytest.skip(f"this system has no {shell}")
    subprocess.run([shell, "-n"], input=told.out, check=True, timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("quoth", [""]),
        ("quoth ", [""]),
        ("quoth a b", ["a", "b"]),
        ("quoth 'a b' c", ["a b", "c"]),
        ("quoth a\\ b", ["a b"]),
        ("quoth a\\ ", ["a "]),
        ("quoth a#b", ["a#b"]),
        ("quoth x 'a b", ["x", "a b"]),
        ('quoth x "a b', ["x", "a b"]),
        ("quoth x a\\", ["x", "a"]),
    ],
)
def test_words_of_a_line(line: str, words: list[str]) -> None:
    found, quoted = _words(line)
    assert (found or [""]) == words
    assert quoted == (line.count("'") + line.count('"') == 1)


@pytest.fixture
def terminal(path: str, broker: BrokerProcess) -> Iterator[int]:
    """An interactive bash; what is typed and shown."""
    environment = {"PATH": path, "QUOTH_URL": broker.url, "HOME": "/", "TERM": "dumb", "PS1": "$ "}
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(str(BASH), ["bash", "--norc", "--noprofile", "-i"], {**os.environ, **environment})
    yield fd
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(fd)


def shown(fd: int, text: str) -> None:
    """Wait until a terminal shows a text."""
    seen = ""
    deadline = time.monotonic() + DEADLINE_S
    while text not in seen:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{text!r} is not in {seen!r}"
        seen += os.read(fd, 65_536).decode(errors="replace")


@needs_bash
def test_the_tab_key(terminal: int, quoth: Command) -> None:
    assert quoth("pub", "unlike:any other", "hello").status == 0
    os.write(terminal, b'eval "$(quoth completion bash)"; echo re""ady\n')
    shown(terminal, "ready")
    os.write(terminal, b"quoth rea\t")
    shown(terminal, "read ")
    os.write(terminal, b"unlike:\t")
    shown(terminal, r"any\ other ")
    os.write(terminal, b"--form\traw\n")
    shown(terminal, "hello")
