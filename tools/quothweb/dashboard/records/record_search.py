"""The search of a topic: a text in values, keys or headers, between two times."""

from __future__ import annotations

import asyncio

from nicegui import ui

from quoth.message import Message
from quoth.timestamps import as_pointer
from quothweb.dashboard import figures
from quothweb.dashboard.markup import Tag, banner, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program, topic_words
from quothweb.dashboard.records.record_detail import RecordDetail
from quothweb.dashboard.records.record_scan import PLACES, SCAN_S_MAX, RecordQuery, RecordScan
from quothweb.dashboard.records.record_table import HIDDEN, RecordTable
from quothweb.dashboard.topics.topic_head import topic_head
from quothweb.dashboard.view import ANSWER_S, PageView
from quothwire.errors import QuothError
from quothwire.pointer import POINTER_MAX

TEXT_CHARACTERS_MAX = 500
FOUND_SHOWN_MAX = 1_000
PROGRESS_S = 0.3


async def record_search(view: PageView) -> None:
    """Build the page, and begin the search that the URL names."""
    topic: str = view.request.path_params["topic"]
    await view.ask(lambda client: client.topic(topic))
    topic_head(view, topic, "search")
    if not view.config.payloads:
        banner(f"{HIDDEN} So there is nothing to search in.", "warning")
        return
    RecordSearch(view, topic)


class RecordSearch:
    """One search of one viewer."""

    def __init__(self, view: PageView, topic: str) -> None:
        self._view = view
        self._topic = topic
        place = view.query("in", PLACES[0])
        self._query = RecordQuery(
            view.query("q")[:TEXT_CHARACTERS_MAX],
            place if place in PLACES else PLACES[0],
            view.query("case") == "ignore",
        )
        self._begin, self._end = view.query("from", "-15m"), view.query("to", "now")
        self._form()
        self._scan = self._parsed()
        self._is_running = False
        self._results()
        if self._scan is not None and self._query.text:
            ui.timer(0, self._go_on, once=True)

    def _form(self) -> None:
        query = self._query
        with tag("form", classes="row end", method="get", role="search"):
            with tag("label", "Text"):
                tag(
                    "input",
                    type="search",
                    name="q",
                    value=query.text,
                    required=True,
                    maxlength=TEXT_CHARACTERS_MAX,
                )
            with tag("label", "In"), tag("select", name="in"):
                for place in PLACES:
                    tag("option", place, value=place, selected=True if place == query.place else None)
            with tag("label", "From"):
                tag("input", type="text", name="from", value=self._begin, size=16)
            with tag("label", "To"):
                tag("input", type="text", name="to", value=self._end, size=16)
            with tag("label", classes="inline"):
                checked = True if query.ignores_case else None
                tag("input", type="checkbox", name="case", value="ignore", checked=checked)
                tag("span", "Ignore case")
            tag("button", "Search", "strong")

    def _parsed(self) -> RecordScan | None:
        try:
            after = 0 if self._begin in ("", "begin") else max(0, as_pointer(self._begin) - 1)
            until = POINTER_MAX if self._end in ("", "now", "end") else as_pointer(self._end)
        except QuothError as problem:
            banner(f"{problem.text} ({problem.hint})", "warning", "alert")
            return None
        return RecordScan(self._query, self._topic, after, until)

    def _results(self) -> None:
        with tag("div", classes="row"):
            self._progress = tag(
                "span", "Times are UTC: 2026-01-02T03:04:05Z, a pointer, -15m, begin.", "muted"
            )
            self._progress.props["role"] = "status"
            self._more = self._button("Go on", self._go_on)
            self._stop = self._button("Stop", self._stop_now)
        with tag("div", classes="split"):
            with tag("div", classes="section"):
                self._records = RecordTable("Records with the text", "None found yet.", shows_content=True)
            self._detail = RecordDetail(self._view, self._topic)
        self._records.table.on_choose(self._choose)
        self._records.table.set_visibility(bool(self._query.text))
        self._copy_buttons()

    def _button(self, text: str, handler: object) -> Tag:
        button = tag("button", text, type="button")
        button.on("click", handler)  # type: ignore[arg-type]
        button.set_visibility(False)
        return button

    def _copy_buttons(self) -> None:
        if self._query.text:
            url, topic, text = self._view.config.url, self._topic, self._query.text
            begin = () if self._begin in ("", "begin") else (f"--since={self._begin}",)
            words = topic_words(topic, "read", *begin, f"--grep={_escaped(text)}")
            since = "" if not begin else f", since={self._begin!r}"
            loop = (f"for batch in client.batches({topic!r}{since}):", "    for message in batch:")
            last = (f"        if {text.encode()!r} in message.value:", "            print(message)")
            copy_buttons(command(url, *words), program(url, *loop, *last))

    async def _choose(self, key: str) -> None:
        if key.isdecimal() and len(key) < 20:
            self._records.table.choose(key)
            await self._detail.show(int(key), focus=True)

    def _stop_now(self) -> None:
        self._is_running = False

    async def _go_on(self) -> None:
        """Scan one part, and show how far it is meanwhile."""
        scan = self._scan
        if scan is None or self._is_running or scan.is_over or len(scan.found) >= FOUND_SHOWN_MAX:
            return
        self._is_running = True
        self._more.set_visibility(False)
        self._stop.set_visibility(True)
        task = asyncio.ensure_future(self._view.ask(scan.go_on, SCAN_S_MAX + ANSWER_S))
        problem = ""
        try:
            while self._is_running and not task.done():
                await asyncio.wait((task,), timeout=PROGRESS_S)
                self._show()
            if task.done():
                task.result()
        except QuothError as failure:
            problem = f" {failure.text}."
        finally:
            task.cancel()
            self._is_running = False
        self._stop.set_visibility(False)
        self._more.set_visibility(not scan.is_over and len(scan.found) < FOUND_SHOWN_MAX)
        self._show(problem)

    def _show(self, problem: str = "") -> None:
        scan = self._scan
        assert scan is not None, "it was parsed"
        hits = sum(isinstance(one, Message) for one in scan.found)
        end = "The end is reached." if scan.is_over else f"Up to {figures.time(scan.after)}."
        text = f"Scanned {scan.records:,} records, {figures.size(scan.bytes)}; {hits:,} found. {end}{problem}"
        self._progress.set_text(text)
        self._records.table.show(
            self._records.row(one) if isinstance(one, Message) else self._records.gap_row(one)
            for one in scan.found[:FOUND_SHOWN_MAX]
        )


def _escaped(text: str) -> str:
    """Return a regular expression that matches a text."""
    return "".join(f"\\{sign}" if sign in r"\.^$*+?{}[]|()" else sign for sign in text)
