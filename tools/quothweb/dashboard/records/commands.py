"""Commands and programs that do what a page shows: the same records for a terminal and for a script."""

from __future__ import annotations

import shlex

from quothweb.dashboard.markup import copy_button, tag

DEFAULT_URL = "tcp://127.0.0.1:5555"


def command(url: str, *words: str) -> str:
    """Return a command of `quoth`. words: behind its name. A topic that looks like an option stands last."""
    options = ["--url", url] if url != DEFAULT_URL else []
    return shlex.join(["quoth", *words, *options])


def topic_words(topic: str, *before: str) -> tuple[str, ...]:
    """Return the words of a command on a topic, whose name may begin with a dash."""
    return (*before, "--", topic) if topic.startswith("-") else (*before, topic)


def program(url: str, *lines: str) -> str:
    """Return a program with a client."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"import quoth\n\nwith quoth.connect({url!r}) as client:\n{body}\n"


def copy_buttons(as_command: str, as_python: str) -> None:
    """Add the buttons that copy a view as a command and as a program."""
    with tag("div", classes="row"):
        copy_button(as_command, "Copy as command", f"Copy as command: {as_command}")
        copy_button(as_python, "Copy as Python")
