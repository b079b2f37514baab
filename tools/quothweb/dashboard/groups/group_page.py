"""The page of one group: its place, its members, what is pending, its settings and its dead letters."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from quoth.core.calls import ask
from quothweb.brokers import BrokerClient
from quothweb.dashboard import figures
from quothweb.dashboard.groups.group_actions import group_actions
from quothweb.dashboard.groups.letter_table import LetterTable
from quothweb.dashboard.markup import banner, facts, link, section, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program, topic_words
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothwire.errors import QuothError
from quothwire.protocol.group_messages import DescribeGroup, GroupInfo, ListPending, Pending
from quothwire.text.quantity import format_span

PENDING_SHOWN = 100
AGAIN_S = 5.0
CURSOR = "cursor"
MEMBERS = (
    TableColumn("member", "Member"),
    TableColumn("records", "In flight", numeric=True),
    TableColumn("seen", "Last request", numeric=True),
)
PENDING = (
    TableColumn("first", "First pointer"),
    TableColumn("time", "Time (UTC)"),
    TableColumn("last", "Last pointer", numeric=True),
    TableColumn("attempts", "Attempts", numeric=True),
    TableColumn("member", "Member"),
    TableColumn("next", "State"),
)


async def group_page(view: PageView) -> None:
    """Build the page."""
    topic, group = view.request.path_params["topic"], view.request.path_params["group"]
    page = GroupPage(view, topic, group)
    await page.build()


class GroupPage:
    """One group for one viewer. It asks the broker every few seconds."""

    def __init__(self, view: PageView, topic: str, group: str) -> None:
        self._view = view
        self._topic = topic
        self._group = group
        self._cards: dict[str, Any] = {}

    async def build(self) -> None:
        """Add everything."""
        info, pending = await self._view.ask(self._state)
        with tag("div", classes="row"):
            with tag("h1", "Group "):
                tag("bdi", printable(self._group))
            self._state_badge = tag("span", classes="badge")
            with tag("span", "of topic "):
                link(printable(self._topic), self._view.topic_url(self._topic))
        self._problem = banner("", "critical")
        group_actions(self._view, self._topic, self._group, info, self._reload)
        names = (
            "Records behind",
            "Lag",
            "In flight",
            "Pending",
            "Redelivered",
            "Dead letters",
            "Gone",
            "Idle",
        )
        with tag("div", classes="cards narrow"):
            for name in names:
                with tag("dl", classes="card figure"):
                    tag("dt", name)
                    self._cards[name] = tag("dd")
        self._tables()
        self._settings(info)
        if info.settings.get("mode") != CURSOR:
            await LetterTable(self._view, self._topic, self._group).build()
        self._show(info, pending)
        ui.timer(AGAIN_S, self._reload, immediate=False)

    async def _state(self, client: BrokerClient) -> tuple[GroupInfo, Pending]:
        request = DescribeGroup(self._group)
        info = await client.execute(ask(GroupInfo, request, self._topic, timeout=client.timeout))
        listing = ListPending(self._group, limit=PENDING_SHOWN)
        return info, await client.execute(ask(Pending, listing, self._topic, timeout=client.timeout))

    async def _reload(self) -> None:
        try:
            self._show(*await self._view.ask(self._state))
        except QuothError as problem:
            if problem.code != "timed_out":
                self._problem.set_text(problem.text)

    def _tables(self) -> None:
        with tag("div", classes="wide"):
            with section("Members"):
                self._members = DataTable("Members", MEMBERS, "No member has asked for records lately.")
            with section("Pending records"):
                self._pending = DataTable(
                    "Pending records", PENDING, "Every record that was handed out is finished."
                )

    def _show(self, info: GroupInfo, pending: Pending) -> None:
        lag = max(0.0, (self._view.now - info.oldest) / 1e6) if info.lag and info.oldest else 0.0
        values = (
            figures.count(info.lag),
            figures.span(lag),
            *map(figures.count, (info.in_flight, info.pending, info.redelivered, info.dead, info.gone)),
            figures.span(round(info.idle)),
        )
        for card, value in zip(self._cards.values(), values, strict=True):
            card.set_text(value)
        self._problem.set_text(info.problem)
        self._state_badge.set_text("paused" if info.paused else "problem" if info.problem else "runs")
        tone = "warning" if info.paused else "critical" if info.problem else "good"
        self._state_badge.classes(replace=f"badge {tone}")
        self._members.show(
            DataRow(
                f"{number}",
                (
                    printable(member["name"]) or "without a name",
                    figures.count(member["in_flight"]),
                    f"{figures.span(round(member['idle']))} ago",
                ),
            )
            for number, member in enumerate(info.members)
        )
        rows = zip(pending.ranges, pending.members, strict=True)
        self._pending.show(self._pending_row(*row) for row in rows)

    def _pending_row(self, bounds: list[int], member: str) -> DataRow:
        first, last, attempts, milliseconds, token = bounds
        seconds = figures.span(milliseconds / 1_000)
        href = self._view.topic_url(self._topic, "records", at=first, record=first)
        state = f"leased for {seconds}" if token else f"free in {seconds}" if milliseconds else "free"
        cells = (
            {"text": str(first), "href": href}, figures.second(first), str(last), str(attempts),
            printable(member), state,
        )  # fmt: skip
        return DataRow(str(first), cells)

    def _settings(self, info: GroupInfo) -> None:
        with tag("div", classes="wide"):
            with section("Settings"), tag("div", classes="card"):
                facts([(name, _setting(name, value)) for name, value in info.settings.items()])
            with section("Place in the topic"):
                with tag("div", classes="card"):
                    self._place(info)
                self._copy_buttons()

    def _place(self, info: GroupInfo) -> None:
        facts(
            [
                ("finished up to", f"{info.after}, {figures.time(info.after)}"),
                ("handed out up to", f"{info.cursor}, {figures.time(info.cursor)}"),
                ("generation", f"{info.generation:,}"),
            ]
        )

    def _copy_buttons(self) -> None:
        url, topic, group = self._view.config.url, self._topic, self._group
        as_command = command(url, *topic_words(topic, "group", "info"), group)
        copy_buttons(
            as_command, program(url, f"print(client.group({topic!r}, {group!r}, create=False).info())")
        )


def _setting(name: str, value: Any) -> str:
    if name == "lease":
        return format_span(value)
    if name == "backoff":
        return ", ".join(map(format_span, value))
    if name == "max_attempts" and not value:
        return "no limit"
    if name == "dead_letter" and not value:
        return "none"
    if name == "durability" and not value:
        return "that of the topic"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
