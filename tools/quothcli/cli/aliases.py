"""Words that people type for a command, because another program calls it so. They are answered, not run: what
is learnt is the command, and a script does not depend on a second name."""

from __future__ import annotations

_LS = ("list", "show-all")
_RM = ("delete", "del", "remove")

MEANT: dict[tuple[str, ...], tuple[str, ...]] = {
    **{(word,): ("topic ls",) for word in ("ls", "list")},
    **{(word,): ("tail",) for word in ("sub", "subscribe", "consume", "follow", "watch")},
    **{(word,): ("pub",) for word in ("publish", "produce", "send", "put")},
    **{(word,): ("topic rm",) for word in ("rm", "delete")},
    **{(word,): ("serve",) for word in ("server", "start", "run")},
    **{(word,): ("ctx ls", "ctx") for word in ("context", "contexts")},
    ("topics",): ("topic ls", "topic"),
    ("cat",): ("read",),
    ("create",): ("topic create",),
    ("describe",): ("topic info",),
    ("info",): ("status", "topic info"),
    ("trim",): ("topic trim",),
    ("version",): ("--version",),
    **{("topic", word): ("topic ls",) for word in _LS},
    **{("topic", word): ("topic rm",) for word in _RM},
    **{("topic", word): ("topic info",) for word in ("describe", "show", "get", "status")},
    **{("topic", word): ("topic create",) for word in ("add", "new", "make")},
    **{("topic", word): ("topic set",) for word in ("alter", "change", "config", "update")},
    **{("topic", word): ("topic trim",) for word in ("purge", "truncate")},
    **{("ctx", word): ("ctx ls",) for word in _LS},
    **{("ctx", word): ("ctx rm",) for word in _RM},
    ("log", "list"): ("log ls",),
}
"""What is meant, by what is typed behind `quoth`: the first of these that takes the words that follow."""
