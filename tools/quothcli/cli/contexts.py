"""Contexts: names that a user gives to brokers, in one small file of this user.

    $XDG_CONFIG_HOME/quoth/contexts.json, else ~/.config/quoth/contexts.json

    {"in_use": "shop", "before": "", "contexts": {
        "shop": {"url": "tcp://10.0.0.7:5555", "timeout": 5.0, "key": "/home/alice/alice.key"}}}

It is replaced as a whole, under a lock on its directory: two commands at once lose nothing, and one that is
killed leaves the old file. A file that cannot be read is an error that names it, and is never written.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from quothcli.cli.exit_status import CommandStatus, Refused
from quothwire.protocol.value import Value
from quothwire.text.paths import naming
from quothwire.text.suggestion import nearest

PREVIOUS = "-"
"""Stands for the context that was in use before."""
_NAME = r"\w[\w.-]{0,63}"
_URL = r"tcp://\S+:[0-9]{1,5}|ipc://\S+"


class Context(Value):
    """A broker under a name.

    timeout: seconds to wait for it, None for the default. key: the absolute path of the key file for it.
    """

    url: str
    timeout: float | None = None
    key: str | None = None

    def content(self) -> dict[str, Any]:
        """Return the object in the file. Without a key it is one that older versions read, too."""
        content = asdict(self)
        if self.key is None:
            del content["key"]
        return content


class Contexts(Value):
    """All contexts. in_use, before: names, or empty."""

    contexts: Mapping[str, Context] = field(default_factory=dict)
    in_use: str = ""
    before: str = ""

    def find(self, name: str) -> Context:
        """Return the context of a name. Raises `Refused` ``unknown_context``, with a similar name."""
        found = self.contexts.get(name)
        if found is None:
            near = nearest(name, self.contexts)
            hint = "`quoth ctx ls` lists them, `quoth ctx add` makes one"
            meant = f"did you mean {near}? " if near else ""
            raise _unknown(f"there is no context {name!r}", meant + hint)
        return found

    def add(self, name: str, context: Context) -> Contexts:
        """Return these with a new or changed one. Raises `Refused` ``bad_context``."""
        if not re.fullmatch(_NAME, name):
            raise _bad(f"{name!r} is no name", "1 to 64 letters, digits and ._-, a letter or digit first")
        if not re.fullmatch(_URL, context.url):
            hint = "like tcp://127.0.0.1:5555 or ipc:///run/quoth/quoth"
            raise _bad(f"{context.url!r} is no address", hint)
        return replace(self, contexts={**self.contexts, name: context})

    def use(self, name: str) -> Contexts:
        """Return these with another one in use. Raises `Refused` ``unknown_context``."""
        if name == PREVIOUS:
            if not self.before:
                hint = "`quoth ctx use NAME` takes one by its name"
                raise _unknown("no other context was in use before", hint)
            name = self.before
        self.find(name)
        return self if name == self.in_use else replace(self, in_use=name, before=self.in_use)

    def remove(self, name: str) -> Contexts:
        """Return these without one. Raises `Refused` ``unknown_context``."""
        self.find(name)
        return Contexts(
            {other: context for other, context in self.contexts.items() if other != name},
            "" if self.in_use == name else self.in_use,
            "" if self.before == name else self.before,
        )


def folder_of_user(variable: str, below_home: str) -> Path:
    """Return a folder of this user by the XDG base directory specification.

    variable: names it, unless its path is relative. Raises FileNotFoundError if this user has no home.
    """
    named = os.environ.get(variable, "")
    if os.path.isabs(named):
        return Path(named)
    try:
        return Path.home() / below_home
    except RuntimeError:  # a container's user without an entry in passwd
        raise FileNotFoundError(errno.ENOENT, "this user has no home", f"~/{below_home}") from None


def config_home() -> Path:
    """Return the folder of this user's configurations. Raises FileNotFoundError without a home."""
    return folder_of_user("XDG_CONFIG_HOME", ".config")


def path() -> Path:
    """Return the path of the file. Raises FileNotFoundError if this user has no home."""
    return config_home() / "quoth" / "contexts.json"


def load() -> Contexts:
    """Read the file; without a file there is no context. Raises `Refused` ``bad_contexts``, or OSError."""
    try:
        file = path()
        return _decode(json.loads(file.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):  # or no home, or /dev/null for one
        return Contexts()
    except (ValueError, TypeError) as problem:
        hint = "correct it, or move it away; nothing was changed in it, and --url works without it"
        raise Refused("bad_contexts", f"{file} cannot be understood: {problem}", hint) from None


def change(how: Callable[[Contexts], Contexts]) -> tuple[Contexts, Contexts]:
    """Change the file; returns the contexts before and after. Raises as `load` does."""
    from quothlog.storage.filesystem import PosixFileSystem, write_durably

    file = path().resolve()  # a link stays one
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = load()
        new = how(old)
        if new != old:
            with naming(file):
                write_durably(PosixFileSystem(), file, [_encode(new)])
    finally:
        os.close(lock)
    return old, new


def _encode(held: Contexts) -> bytes:
    content = {**asdict(held), "contexts": {name: one.content() for name, one in held.contexts.items()}}
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def _decode(content: Any) -> Contexts:
    """Decode the file. Raises ValueError or TypeError for anything that this program did not write."""
    found = Contexts(**content)
    contexts = Contexts()
    raw: dict[str, Any] = dict(found.contexts)
    for name, one in raw.items():
        context = Context(**one)
        if not isinstance(context.url, str) or not isinstance(context.timeout, float | int | None):
            raise ValueError(f"context {name!r} needs a url, and a timeout in seconds or null")
        if context.key is not None and not (isinstance(context.key, str) and os.path.isabs(context.key)):
            raise ValueError(f"the key of context {name!r} is no absolute path of a file")
        try:
            contexts = contexts.add(name, context)
        except Refused as problem:
            raise ValueError(problem.text) from None
    for name in (found.in_use, found.before):
        if name != "" and name not in contexts.contexts:
            raise ValueError(f"it names a context {name!r} that it does not hold")
    return replace(found, contexts=contexts.contexts)


def _unknown(text: str, hint: str) -> Refused:
    return Refused("unknown_context", text, hint, CommandStatus.NOT_FOUND)


def _bad(text: str, hint: str) -> Refused:
    return Refused("bad_context", text, hint, CommandStatus.USAGE)
