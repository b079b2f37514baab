"""The same methods, arguments and results in `quoth` and `quoth.aio`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getmembers, isfunction, signature
from typing import Any

import quoth
import quoth.aio
from kit.machine.commands import run_script

TWINS: dict[str, tuple[Any, Any]] = {
    "Client": (quoth.Client, quoth.aio.Client),
    "Producer": (quoth.Producer, quoth.aio.Producer),
    "Reading": (quoth.Reading, quoth.aio.Reading),
    "Transaction": (quoth.Transaction, quoth.aio.Transaction),
    "PartWriter": (quoth.PartWriter, quoth.aio.PartWriter),
}
IN_A_LOOP = {
    "Iterator[Batch]": "Batches[Batch]",
    "Iterator[StoredBatch]": "Batches[StoredBatch]",
    "Iterator[Message]": "Tail",
    "Iterator[list[Message]]": "Portions",
    "Future[Ack]": "asyncio.Future[Ack]",
    "Client": "Connecting",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}
"""What is called otherwise where it is awaited."""
ONLY_IN_A_LOOP = {"aclose"}
"""What asynchronous iterators have besides."""


def offered(kind: Any) -> dict[str, Callable[..., Any]]:
    """The public methods of a class, and those that make it a context manager."""
    special = {name for pair in IN_A_LOOP.items() for name in pair if name.startswith("__")}
    return {
        name: member
        for name, member in getmembers(kind, isfunction)
        if not name.startswith("_") or name in special
    }


def told(kind: Any) -> set[str]:
    """The public properties of a class."""
    return {name for name, member in getmembers(kind) if isinstance(member, property)}


def taken(function: Callable[..., Any]) -> list[tuple[str, Any, Any, Any]]:
    """The parameters of a function: names, kinds, defaults, types."""
    return [
        (one.name, one.kind, one.default, one.annotation) for one in signature(function).parameters.values()
    ]


def given(function: Callable[..., Any]) -> str:
    """The type of what it returns."""
    return str(signature(function).return_annotation)


def test_both_have_the_same_methods_arguments_and_results() -> None:
    for kind, (blocking, awaited) in TWINS.items():
        assert {IN_A_LOOP.get(name, name) for name in offered(blocking)} == {
            *offered(awaited)
        } - ONLY_IN_A_LOOP
        for name in offered(blocking):
            if not name.startswith("__"):
                one, other = getattr(blocking, name), getattr(awaited, name)
                assert taken(one) == taken(other), (kind, name)
                assert IN_A_LOOP.get(given(one), given(one)) == given(other), (kind, name)


def test_a_reading_has_the_same_properties() -> None:
    assert told(quoth.Reading) == told(quoth.aio.Reading) != set()


def test_connecting_takes_the_same() -> None:
    assert signature(quoth.Client) == signature(quoth.aio.Client)
    assert taken(quoth.connect) == taken(quoth.aio.connect)
    assert IN_A_LOOP[given(quoth.connect)] == given(quoth.aio.connect)


def test_who_does_not_ask_for_asyncio_does_not_get_it() -> None:
    """Importing it takes as long as everything else."""
    script = "import sys, quoth; sys.exit('asyncio' in sys.modules or 'quoth.aio' in sys.modules)"
    assert run_script(script).returncode == 0
