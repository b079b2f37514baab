"""Handlers of records, for an event loop: see `quoth.groups.subscription`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from inspect import isawaitable

from quoth.aio.groups.group import ConsumerGroup, GroupMessage
from quoth.groups.calls import taken
from quoth.groups.options import GroupOptions
from quoth.groups.settlements import GIVEN_BACK_MS
from quoth.groups.subscription import (
    FREE_S,
    Subscription,
    SubscriptionCounts,
    begun,
    stopped_by_signals,
)
from quoth.tracing import handling
from quothwire.protocol.settlement import Settle


class SubscriptionRun:
    """One run of some subscriptions. For the loop."""

    def __init__(
        self, subscriptions: Iterable[Subscription], group_of: Callable[[GroupOptions], ConsumerGroup]
    ) -> None:
        self._subscriptions = begun(subscriptions)
        self._group_of = group_of
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Take no more records. Handlers that are executed go on."""
        self._stopping.set()

    async def execute(self) -> list[SubscriptionCounts]:
        """Execute the handlers until it is stopped. Raises the error that has ended a subscription."""
        loop = asyncio.get_running_loop()
        # Not by `add_signal_handler`, which would remove the handlers that the application has in the loop.
        with stopped_by_signals(partial(loop.call_soon_threadsafe, self.stop)):
            dispatchers = [asyncio.create_task(self._dispatch(one)) for one in self._subscriptions]
            try:
                await self._stopping.wait()
                outcomes = await asyncio.gather(*dispatchers, return_exceptions=True)
            except asyncio.CancelledError:
                for one in dispatchers:
                    one.cancel()
                await asyncio.gather(*dispatchers, return_exceptions=True)
                raise
        for problem in filter(None, outcomes):
            raise problem
        return [one.counts for one in self._subscriptions]

    async def _dispatch(self, subscription: Subscription) -> None:
        """Execute one subscription."""
        try:
            async with self._group_of(subscription.group) as group:
                await self._hand_out(subscription, group)
            subscription.left = group._member.stock.released
        finally:
            self.stop()

    async def _hand_out(self, subscription: Subscription, group: ConsumerGroup) -> None:
        """Start a task for each record; returns once these have ended."""
        free = asyncio.Semaphore(subscription.concurrency)
        tasks: set[asyncio.Task[None]] = set()

        async def work(message: GroupMessage) -> None:
            try:
                with handling(message):
                    result = subscription.handler(message)
                    if isawaitable(result):
                        await result
            except asyncio.CancelledError:
                message._settle(Settle.NACK, GIVEN_BACK_MS)
                raise
            except BaseException as problem:
                subscription.fail(message, problem)
            else:
                subscription.succeed(message)
            finally:
                free.release()

        try:
            while not self._stopping.is_set():
                is_free = await _acquired(free, group._member.stock.keep(FREE_S))
                if is_free and not self._stopping.is_set():
                    message = await group._drive(taken(group))
                    if message is None:
                        free.release()
                    else:
                        task = asyncio.create_task(work(message))
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        finally:
            await asyncio.gather(*tasks, return_exceptions=True)


async def _acquired(semaphore: asyncio.Semaphore, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await semaphore.acquire()
    except TimeoutError:
        return False
