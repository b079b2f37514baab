"""Event loops in tests: tests that run in one, and the asyncio client as a blocking one.

As a blocking one it lives in a loop of its own, in a thread, so that one test tries it and `quoth.Client`.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Self, TypeVar, cast
from unittest import TestCase

import quoth.aio
from kit.deadlines import DEADLINE_S, eventually
from quoth import Client
from quoth.aio.iterators import Batches, Tail
from quoth.aio.reading import Portions

T = TypeVar("T")

THREADS = ("quoth-aio", "quoth-producer-")
HANGS_S = 5 * DEADLINE_S
"""In which a whole test in an event loop has ended, on any machine; pytest waits a little longer."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own; it must cause no warning and leave no thread."""
    with TestCase().assertNoLogs("asyncio", "WARNING"):  # about tasks and results that were never awaited
        try:
            return asyncio.run(asyncio.wait_for(main, HANGS_S))
        finally:
            eventually(lambda: not carriers(), "the threads of its clients end")
            gc.collect()


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function, by `run`.

    Its argument `client` is no fixture, but an asyncio client of its `meddler`, else of `broker`.
    """
    fixtures = dict(signature(test).parameters)
    takes_client = fixtures.pop("client", None) is not None
    takes_broker = "broker" in fixtures
    if takes_client and "meddler" not in fixtures:
        fixtures.setdefault("broker", Parameter("broker", Parameter.POSITIONAL_OR_KEYWORD))

    async def with_client(given: dict[str, Any]) -> None:
        at = given.get("meddler") or (given["broker"] if takes_broker else given.pop("broker"))
        async with quoth.aio.connect(at.url) as client:
            await test(client=client, **given)

    @wraps(test)
    def run_it(**given: Any) -> None:
        run(with_client(given) if takes_client else test(**given))

    run_it.__signature__ = Signature(list(fixtures.values()))  # type: ignore[attr-defined]
    return run_it


def carriers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREADS)]


async def no_carriers() -> bool:
    """Return True once all of them have ended."""
    return not carriers()


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def run(self, awaited: Awaitable[T]) -> T:
        """Await something there, and wait for it here."""
        return self.start(awaited).result()

    def start(self, awaited: Awaitable[T]) -> Future[T]:
        """Await something there; returns a future of it."""

        async def wait() -> T:
            return await awaited

        return asyncio.run_coroutine_threadsafe(wait(), self._loop)

    def call(self, function: Callable[..., T], *values: Any, **named: Any) -> T:
        async def make() -> T:
            return function(*values, **named)

        return self.run(make())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class InLoop:
    """An object of an asyncio client, used like its blocking twin: what it returns is awaited in the loop."""

    def __init__(self, loop: Loop, target: Any) -> None:
        self.__dict__.update(_loop=loop, _target=target)

    def __enter__(self) -> Self:
        self._loop.run(self._target.__aenter__())
        return self

    def __exit__(self, *raised: Any) -> None:
        self._loop.run(self._target.__aexit__(*raised))

    def __iter__(self) -> Self:
        target = self._target
        return self if hasattr(target, "__anext__") else type(self)(self._loop, aiter(target))

    def __next__(self) -> Any:
        try:
            return self._result(self._loop.run(anext(self._target)))
        except StopAsyncIteration:
            raise StopIteration from None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found
        return lambda *values, **named: self._result(self._loop.call(found, *values, **named))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._target, name, value)

    def close(self, *values: Any) -> None:
        self.__getattr__("aclose" if hasattr(self._target, "aclose") else "close")(*values)

    def _result(self, returned: Any) -> Any:
        if isinstance(returned, asyncio.Future):
            return self._loop.start(returned)
        if isinstance(returned, (Coroutine, Tail, quoth.aio.Reading)):
            returned = self._loop.run(returned)
        if isinstance(returned, list):
            return list(map(self._result, returned))
        return InLoop(self._loop, returned) if isinstance(returned, WRAPPED) else returned


WRAPPED = (
    *(Batches, Tail, Portions, quoth.aio.Reading, quoth.aio.NamedCursor),
    *(quoth.aio.ConsumerGroup, quoth.aio.GroupIteration, quoth.aio.GroupMessage, quoth.aio.GroupBatch),
    *(quoth.aio.Producer, quoth.aio.Transaction, quoth.aio.PartWriter),
)


class LoopClient(InLoop):
    """A `quoth.aio.Client` in a loop of its own, which ends with it."""

    def __init__(self, broker: Any, **options: Any) -> None:
        loop = Loop()
        try:
            client = loop.run(loop.call(quoth.aio.connect, broker, **options))
        except BaseException:
            loop.close()
            raise
        super().__init__(loop, client)

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._loop.close()


def connect(broker: Any, **options: Any) -> Client:
    """`quoth.connect`, for a client of another kind that takes the same calls."""
    return cast("Client", LoopClient(broker, **options))


TWINS: dict[str, Callable[..., Client]] = {"quoth": quoth.connect, "quoth.aio": connect}
