"""The functions that rules call: registered by packages under the entry point ``quoth.rules``.

    [project.entry-points."quoth.rules"]
    split_order = "shop.rules:split_order"

    def split_order(record: quoth.Message) -> list[tuple[str, quoth.Message]]:
        return [("lines", record._replace(value=line)) for line in record.value.splitlines()]

A function gets the record and returns what is written: topics, and records made of it by `_replace`. It runs
in the process that evaluates the rules. It has to return the same for the same record, since a record is
evaluated again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points

from quoth.message import Message
from quothrules.failure import RuleFailure
from quothwire.errors import error
from quothwire.text.suggestion import nearest

ENTRY_POINTS = "quoth.rules"
RuleFunction = Callable[[Message], Iterable[tuple[str, Message]]]


def load_functions(names: Iterable[str]) -> dict[str, RuleFunction]:
    """Load registered functions. Raises `RequestError` ``bad_setting`` for one that is not there or fails."""
    found = {}
    registered = entry_points(group=ENTRY_POINTS)
    for name in sorted(names):
        if name not in registered.names:
            near = nearest(name, registered.names)
            hint = (
                f"did you mean {near}?" if near else f"a package registers it as entry point {ENTRY_POINTS}"
            )
            raise error("bad_setting", f"no function {name!r} is registered", hint)
        try:
            found[name] = registered[name].load()
        except Exception as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise error("bad_setting", f"the function {name!r} cannot be loaded: {reason}") from problem
    return found


def call_function(
    functions: Mapping[str, RuleFunction], name: str, message: Message
) -> list[tuple[str, Message]]:
    """Call a function and check what it returns. Raises `RuleFailure`."""
    try:
        returned = list(functions[name](message))
    except Exception as problem:
        raise RuleFailure(f"{name} raised {type(problem).__name__}: {problem}") from problem
    for one in returned:
        if not _is_routed(one):
            text = f"{name} returned {str(one)[:100]!r}: it returns tuples of a topic and a record"
            raise RuleFailure(text)
    return returned


def _is_routed(one: object) -> bool:
    match one:
        case (str(), Message(value=bytes(), key=None | bytes())):
            return True
        case _:
            return False
