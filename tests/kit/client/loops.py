"""Event loops in tests: tests that run in one, and the asyncio client as a blocking one.

As a blocking one it lives in a loop of its own, in a thread, so that one test tries it and `quoth.Client`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import wraps
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

import quoth.aio
from kit.deadlines import DEADLINE_S, eventually
from quoth import Ack, Batch, Client, Message, PartWriter, Producer, Reading, StoredBatch, Transaction

T = TypeVar("T")
P = ParamSpec("P")

THREADS = ("quoth-aio", "quoth-producer-")
HANGS_S = 5 * DEADLINE_S
"""In which a whole test in an event loop has ended, on any machine; pytest waits a little longer."""


class Complaints(logging.Handler):
    """The warnings of an event loop about tasks and results that were never awaited."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        self.said.append(record.getMessage())


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own; it must cause no warning and leave no thread."""
    complaints = Complaints()
    log = logging.getLogger("asyncio")
    log.addHandler(complaints)
    try:
        return asyncio.run(asyncio.wait_for(main, HANGS_S))
    finally:
        eventually(lambda: not carriers(), "the threads of its clients end")
        gc.collect()
        log.removeHandler(complaints)
        assert complaints.said == []


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
    """Return the names of the threads of asyncio clients and of producers."""
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
        """Call a function there, and return its result."""

        async def make() -> T:
            return function(*values, **named)

        return self.run(make())

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Iterating(Generic[T]):
    """An iterator of that loop."""

    def __init__(self, loop: Loop, iterator: AsyncIterator[T]) -> None:
        self._loop = loop
        self._iterator = iterator

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self._loop.run(anext(self._iterator))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End it, as a generator is."""
        self._loop.run(cast("Any", self._iterator).aclose())


class LoopReading(Iterating[Message]):
    """A `quoth.aio.Reading`, used like a `quoth.Reading`."""

    def __init__(self, loop: Loop, reading: quoth.aio.Reading) -> None:
        super().__init__(loop, reading)
        self._reading = reading

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reading, name)

    def close(self) -> None:
        """End it."""
        self._loop.run(self._reading.close())

    def portions(self, *values: Any) -> Iterator[list[Message]]:
        """See `quoth.Reading.portions`."""
        return Iterating(self._loop, self._loop.call(self._reading.portions, *values))


class Awaiting:
    """An object of that loop whose methods are awaited there."""

    def __init__(self, loop: Loop, awaited: Any) -> None:
        self._loop = loop
        self._awaited = awaited

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._loop.run(self._awaited.__aexit__(*raised))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._awaited, name)
        if not iscoroutinefunction(method):
            return method
        return lambda *values, **named: self._loop.run(method(*values, **named))

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("_loop", "_awaited"):
            super().__setattr__(name, value)
        else:
            setattr(self._awaited, name, value)


class LoopTransaction(Awaiting):
    """A `quoth.aio.Transaction`, used like a `quoth.Transaction`."""

    def part(self, *values: Any, **named: Any) -> PartWriter:
        """See `quoth.Transaction.part`."""
        made = self._loop.call(self._awaited.part, *values, **named)
        return cast("PartWriter", Awaiting(self._loop, made))


class LoopProducer(Awaiting):
    """A `quoth.aio.Producer`, used like a `quoth.Producer`."""

    def future(self) -> Future[Ack]:
        """See `quoth.Producer.future`."""
        return self._loop.start(self._loop.call(self._awaited.future))


class LoopClient(Awaiting):
    """A `quoth.aio.Client`, used like a `quoth.Client`."""

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

    def tail(self, *values: Any, **named: Any) -> Iterator[Message]:
        """See `quoth.Client.tail`."""
        tail = self._loop.call(self._awaited.tail, *values, **named)
        return Iterating(self._loop, self._loop.run(tail))

    def tail_many(self, *values: Any, **named: Any) -> Reading:
        """See `quoth.Client.tail_many`."""
        return self._reading(self._awaited.tail_many, *values, **named)

    def read_many(self, *values: Any, **named: Any) -> Reading:
        """See `quoth.Client.read_many`."""
        return self._reading(self._awaited.read_many, *values, **named)

    def batches(self, *values: Any, **named: Any) -> Iterator[Batch]:
        """See `quoth.Client.batches`."""
        return Iterating(self._loop, self._loop.call(self._awaited.batches, *values, **named))

    def stored(self, *values: Any, **named: Any) -> Iterator[StoredBatch]:
        """See `quoth.Client.stored`."""
        return Iterating(self._loop, self._loop.call(self._awaited.stored, *values, **named))

    def producer(self, *values: Any, **named: Any) -> Producer:
        """See `quoth.Client.producer`."""
        made = self._loop.call(self._awaited.producer, *values, **named)
        return cast("Producer", LoopProducer(self._loop, made))

    def transaction(self, *values: Any, **named: Any) -> Transaction:
        """See `quoth.Client.transaction`."""
        made = self._loop.call(self._awaited.transaction, *values, **named)
        return cast("Transaction", LoopTransaction(self._loop, made))

    def _reading(self, begin: Callable[..., quoth.aio.Reading], *values: Any, **named: Any) -> Reading:
        reading = self._loop.run(self._loop.call(begin, *values, **named))
        return cast("Reading", LoopReading(self._loop, reading))


def connect(broker: Any, **options: Any) -> Client:
    """`quoth.connect`, for a client of another kind that takes the same calls."""
    return cast("Client", LoopClient(broker, **options))


TWINS: dict[str, Callable[..., Client]] = {"quoth": quoth.connect, "quoth.aio": connect}
