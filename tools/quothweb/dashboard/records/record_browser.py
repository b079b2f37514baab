"""The browser of a topic: a page of records from a time or a pointer on, and one of them in detail.

The place is in the URL: `?at=` a time, a pointer or a span before now, `?before=` a pointer, `?record=` a
pointer. Without one it shows the newest records.
"""

from __future__ import annotations

from nicegui import ui

from quoth.message import Message
from quoth.timestamps import as_pointer
from quothweb.dashboard import figures
from quothweb.dashboard.markup import banner, link, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program, topic_words
from quothweb.dashboard.records.record_detail import RecordDetail
from quothweb.dashboard.records.record_pages import PAGE_RECORDS, RecordPage, page_after, page_before
from quothweb.dashboard.records.record_table import HIDDEN, RecordTable
from quothweb.dashboard.topics.topic_head import topic_head
from quothweb.dashboard.view import PageView
from quothwire.errors import QuothError
from quothwire.pointer import POINTER_MAX, check_pointer, to_datetime
from quothwire.protocol.messages import TopicInfo

SLIDER_STEPS = 1_000


async def record_browser(view: PageView) -> None:
    """Build the page."""
    topic: str = view.request.path_params["topic"]
    info = await view.ask(lambda client: client.topic(topic))
    topic_head(view, topic, "records")
    browser = RecordBrowser(view, topic, info)
    await browser.build()


class RecordBrowser:
    """The records of one topic for one viewer."""

    def __init__(self, view: PageView, topic: str, info: TopicInfo) -> None:
        self._view = view
        self._topic = topic
        self._info = info
        self._problem = ""
        self._at = view.query("at").strip()
        self._before = 0 if self._at else self._pointer("before") or POINTER_MAX
        self._after = self._place()

    async def build(self) -> None:
        """Add the controls, the records and the chosen record."""
        page = await self._page()
        self._controls(page)
        if self._problem:
            banner(self._problem, "warning")
        if not self._view.config.payloads:
            banner(HIDDEN, "warning")
        with tag("div", classes="split"):
            with tag("div", classes="section"):
                self._records(page)
            if self._view.config.payloads:
                detail = RecordDetail(self._view, self._topic)
                self._follow_choice(detail)
        if self._view.config.payloads and (record := self._pointer("record")):
            self._table.choose(str(record))
            await detail.show(record)

    # -- the place ------------------------------------------------------------------------------------------

    def _pointer(self, name: str) -> int:
        text = self._view.query(name)
        try:
            return check_pointer(int(text)) if text.isdecimal() and len(text) < 20 else 0
        except QuothError:
            return 0

    def _place(self) -> int:
        """Return the pointer behind which the page begins, if it begins at a place."""
        if not self._at or self._at == "begin":
            return 0
        try:
            return max(0, as_pointer(self._at) - 1)
        except QuothError as problem:
            self._problem = f"{problem.text}: {problem.hint}. These are the newest records."
            self._at, self._before = "", POINTER_MAX
            return 0

    async def _page(self) -> RecordPage:
        if self._before:
            return await self._view.ask(lambda client: page_before(client, self._topic, self._before))
        return await self._view.ask(lambda client: page_after(client, self._topic, self._after))

    def _url(self, **query: object) -> str:
        return self._view.topic_url(self._topic, "records", **query)

    # -- what is shown --------------------------------------------------------------------------------------

    def _controls(self, page: RecordPage) -> None:
        """Add the form of the place. The slider and the calendar fill its field in the browser."""
        info, shown = self._info, page.first or self._after
        with tag("form", classes="section", method="get", action=self._url()):
            with tag("div", classes="row end"):
                with tag("label", "Begin at a time, a pointer, or like -15m"):
                    tag(
                        "input",
                        type="text",
                        name="at",
                        value=self._at,
                        placeholder="-15m",
                        autocomplete="off",
                    )
                with tag("label", "Date and time (UTC)"):
                    value = to_datetime(shown).strftime("%Y-%m-%dT%H:%M:%S") if shown else None
                    tag("input", type="datetime-local", step=1, value=value, data_fills="at")
                tag("button", "Go", "strong")
            if info.count and info.last > info.first:
                self._slider(shown)

    def _slider(self, shown: int) -> None:
        first, last = self._info.first, self._info.last
        place = round(SLIDER_STEPS * (shown - first) / (last - first))
        with tag("label", f"From {figures.second(first)} to {figures.second(last)} UTC"):
            tag(
                "input",
                type="range",
                min=0,
                max=SLIDER_STEPS,
                value=min(max(place, 0), SLIDER_STEPS),
                aria_label="Place in the topic by time",
                aria_valuetext=figures.time(shown),
                data_fills="at",
                data_first=first,
                data_last=last,
            )

    def _records(self, page: RecordPage) -> None:
        empty = "No record lies at this place or behind it." if self._at else "The topic holds no records."
        records = RecordTable("Records", empty, shows_content=self._view.config.payloads)
        self._table = records.table
        self._table.show(
            records.row(one) if isinstance(one, Message) else records.gap_row(one) for one in page.rows()
        )
        with tag("nav", classes="row", aria_label="Pages of records"):
            link("Oldest", self._url(at="begin"), "button")
            if page.first:
                link(f"Previous {PAGE_RECORDS}", self._url(before=page.first), "button")
                link(f"Next {PAGE_RECORDS}", self._url(at=page.last + 1), "button")
            link("Newest", self._url(), "button")
            count = len(page.records)
            tag("span", f"{count:,} record{'' if count == 1 else 's'} shown", "muted")
        self._copy_buttons(page)

    def _copy_buttons(self, page: RecordPage) -> None:
        url, topic = self._view.config.url, self._topic
        after, limit = max(0, (page.first or self._after + 1) - 1), max(1, len(page.records))
        words = topic_words(topic, "read", "--after", str(after), "--limit", str(limit))
        call = f"for message in client.read({topic!r}, after={after}, limit={limit}):"
        copy_buttons(command(url, *words), program(url, call, "    print(message)"))

    def _follow_choice(self, detail: RecordDetail) -> None:
        async def choose(key: str) -> None:
            if not key.isdecimal() or len(key) > 20:
                return
            self._table.choose(key)
            before = "" if self._at or self._before == POINTER_MAX else self._before
            ui.navigate.history.replace(self._url(at=self._at, before=before, record=key))
            await detail.show(check_pointer(int(key)), focus=True)

        self._table.on_choose(choose)
