"""The same methods, arguments and results in `quoth` and `quoth.aio`."""

from __future__ import annotations

import re
from inspect import getmembers, isfunction, signature
from typing import Any

import quoth
import quoth.aio
from kit.machine.commands import run_script

TWINS: list[tuple[Any, Any]] = [
    (quoth.Client, quoth.aio.Client),
    (quoth.Producer, quoth.aio.Producer),
    (quoth.Reading, quoth.aio.Reading),
    (quoth.Transaction, quoth.aio.Transaction),
    (quoth.PartWriter, quoth.aio.PartWriter),
    (quoth.ConsumerGroup, quoth.aio.ConsumerGroup),
    (quoth.GroupMessage, quoth.aio.GroupMessage),
    (quoth.NamedCursor, quoth.aio.NamedCursor),
]
IN_A_LOOP = {
    "Iterator[Batch]": "Batches[Batch]",
    "Iterator[StoredBatch]": "Batches[StoredBatch]",
    "Iterator[Message]": "Tail",
    "Iterator[GroupBatch]": "GroupIteration[GroupBatch]",
    "Iterator[GroupMessage]": "GroupIteration[GroupMessage]",
    "Iterator[list[Message]]": "Portions",
    "Future[Ack]": "asyncio.Future[Ack]",
    "Client": "Connecting",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}
"""What is called otherwise where it is awaited."""
TYPES = {
    "BaseException", "Callable", "Column", "CursorFile", "False", "Future", "GivenGroupSettings",
    "GivenSettings", "Iterable", "Iterator", "Literal", "Mapping", "None", "OnGap", "Self", "Sequence",
    "Start", "Timestamp", "TracebackType", "True", "Unpack", "Welcome",
}  # fmt: skip
"""What signatures name beside the public classes: the standard library's types, aliases, and `Welcome`."""
SPECIAL = {name for pair in IN_A_LOOP.items() for name in pair if name.startswith("__")}


def offered(kind: Any) -> dict[str, Any]:
    """The public methods and properties of a class, and those that make it a context manager."""
    return {
        name: member
        for name, member in getmembers(kind, lambda one: isfunction(one) or isinstance(one, property))
        if not name.startswith("_") or name in SPECIAL
    }


def shape(function: Any) -> tuple[list[tuple[Any, ...]], str]:
    """Names, kinds, defaults and types of the parameters of a function, and the type of its result."""
    found = signature(function)
    taken = [(one.name, one.kind, one.default, one.annotation) for one in found.parameters.values()]
    return taken, str(found.return_annotation)


def test_both_clients_have_the_same_methods_arguments_and_results() -> None:
    assert signature(quoth.Client) == signature(quoth.aio.Client)
    pairs: list[tuple[Any, Any]] = [(quoth.connect, quoth.aio.connect)]
    for blocking, awaited in TWINS:
        one, other = offered(blocking), offered(awaited)
        assert {IN_A_LOOP.get(name, name) for name in one} == set(other) - {"aclose"}, blocking
        pairs += [(one[name], other[name]) for name in one if name not in SPECIAL and isfunction(one[name])]
    assert len(pairs) > 30
    for function, twin in pairs:
        taken, given = shape(function)
        assert (taken, IN_A_LOOP.get(given, given)) == shape(twin), function


def test_signatures_name_public_types_alone() -> None:
    """The methods are made of calls, whose own results and first parameters are internal."""
    methods = [one for kind, _ in TWINS for one in offered(kind).values() if isfunction(one)]
    named = {word for method in methods for word in re.findall(r"\b[A-Z]\w+", str(signature(method)))}
    assert {"Ack", "Iterator", "Timestamp"} <= named
    assert named <= {*quoth.__all__, *TYPES}


def test_importing_quoth_does_not_import_asyncio() -> None:
    """Importing it takes as long as everything else."""
    script = "import sys, quoth; sys.exit('asyncio' in sys.modules or 'quoth.aio' in sys.modules)"
    assert run_script(script).returncode == 0
