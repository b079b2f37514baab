"""The live tail of a topic: records as they come, in a bounded buffer, with a pause.

Its viewer has no cursor at the broker. A topic that is faster than a person can read is not shown whole: the
tail goes on at the end, and says so.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from nicegui import ui

from quoth.aio.iterators import Tail
from quoth.message import Gap, Message
from quothweb.dashboard import figures
from quothweb.dashboard.markup import banner, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program, topic_words
from quothweb.dashboard.records.record_detail import RecordDetail
from quothweb.dashboard.records.record_table import HIDDEN, RecordTable
from quothweb.dashboard.topics.topic_head import topic_head
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow
from quothwire.errors import QuothError

ROWS_MAX = 200
FAST_MAX = 1_000
"""Records in a second above which the tail leaves some out."""
SHOWN_S, RETRY_S = 0.5, 1.0


async def live_tail(view: PageView) -> None:
    """Build the page; records come once its browser is connected."""
    topic: str = view.request.path_params["topic"]
    info = await view.ask(lambda client: client.topic(topic))
    topic_head(view, topic, "tail")
    if not view.config.payloads:
        banner(HIDDEN, "warning")
    LiveTail(view, topic, info.last)


class LiveTail:
    """The tail of one viewer. after: the pointer behind which it begins."""

    def __init__(self, view: PageView, topic: str, after: int) -> None:
        self._view = view
        self._topic = topic
        self._after = after
        self._rows: deque[DataRow] = deque(maxlen=ROWS_MAX)
        self._count = 0
        self._is_changed = True
        self._problem = ""
        self._is_running = asyncio.Event()
        self._is_running.set()
        with tag("div", classes="row"):
            self._button = tag("button", "Pause", "strong", type="button").on("click", self._pause)
            tag("button", "Clear", type="button").on("click", self._clear)
            self._state = tag("span", classes="muted")
        with tag("div", classes="split"):
            shown = view.config.payloads
            with tag("div", classes="section"):
                self._table = RecordTable("Newest records", "Waiting for records.", shows_content=shown)
            if shown:
                self._detail = RecordDetail(view, topic)
                self._table.table.on_choose(self._choose)
        url, loop = view.config.url, f"for message in client.tail({topic!r}):"
        as_command = command(url, *topic_words(topic, "tail"))
        copy_buttons(as_command, program(url, loop, "    print(message)"))
        ui.timer(0, self._follow, once=True)
        ui.timer(SHOWN_S, self._show)

    def _pause(self) -> None:
        if self._is_running.is_set():
            self._is_running.clear()
        else:
            self._is_running.set()
        self._button.set_text("Pause" if self._is_running.is_set() else "Go on")
        self._is_changed = True

    def _clear(self) -> None:
        self._rows.clear()
        self._is_changed = True

    async def _choose(self, key: str) -> None:
        if key.isdecimal() and len(key) < 20:
            self._table.table.choose(key)
            await self._detail.show(int(key), focus=True)

    async def _follow(self) -> None:
        """Follow the topic until the page is closed. A pause ends a tail; the next one goes on behind it.

        It goes on, too, when a broker that was away answers again.
        """
        while True:
            await self._is_running.wait()
            try:
                if self._problem:
                    await self._view.ask(lambda client: client.topic(self._topic))
                    self._say("")
                async with self._view.services.brokers.client_of(self._view.principal) as client:
                    tail = client.tail(self._topic, after=self._after, on_gap=self._take_gap)
                    await self._take_from(tail)
                if self._is_running.is_set():
                    await self._skip()
            except QuothError as problem:
                self._say(problem.text)
                if not problem.retryable:
                    return
                await asyncio.sleep(RETRY_S)

    def _say(self, problem: str) -> None:
        """Show why no records come, or that they do."""
        self._problem = problem
        self._is_changed = True

    async def _take_from(self, tail: Tail) -> None:
        """Take records until a pause, or until there are too many in a second."""
        began, taken = time.monotonic(), 0
        paused = asyncio.ensure_future(self._paused())
        following = asyncio.ensure_future(tail.__anext__())
        try:
            while taken <= FAST_MAX and not paused.done():
                await asyncio.wait((following, paused), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    self._take(following.result())
                    following = asyncio.ensure_future(tail.__anext__())
                    taken += 1
                    if (now := time.monotonic()) - began >= 1:
                        began, taken = now, 0
        finally:
            paused.cancel()
            following.cancel()
            await tail.aclose()
            await asyncio.gather(paused, following, return_exceptions=True)

    def _take(self, message: Message) -> None:
        self._after = message.pointer
        self._count += 1
        self._rows.appendleft(self._table.row(message))
        self._is_changed = True

    async def _paused(self) -> None:
        while self._is_running.is_set():
            await asyncio.sleep(SHOWN_S / 2)

    async def _skip(self) -> None:
        """Go on at the end of the topic, and show a row for what is left out."""
        info = await self._view.ask(lambda client: client.topic(self._topic))
        if info.last > self._after:
            text = "The topic is faster than this page: records behind this one are left out"
            self._rows.appendleft(self._table.remark(f"left out {info.last}", self._after, text))
            self._after = info.last
            self._is_changed = True
        await asyncio.sleep(1)

    def _take_gap(self, gap: Gap) -> None:
        self._rows.appendleft(self._table.gap_row(gap))
        self._is_changed = True

    def _show(self) -> None:
        if not self._is_changed:
            return
        self._is_changed = False
        self._table.table.show([*self._rows])
        state = self._problem or ("follows the topic" if self._is_running.is_set() else "paused")
        came = f"{figures.count(self._count)} records came"
        self._state.set_text(f"{state}; {came}, the last {ROWS_MAX} are kept")
