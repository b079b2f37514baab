"""One record in detail: its key, its headers, and its value in several views."""

from __future__ import annotations

import base64

from nicegui import ui

from quoth.message import Message
from quothweb.dashboard import figures
from quothweb.dashboard.markup import copy_button, facts, link, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program, topic_words
from quothweb.dashboard.records.record_text import VIEWS, best_view, preview, printable, view_of
from quothweb.dashboard.view import PageView
from quothwire.errors import QuothError

NAMES = {"text": "Text", "json": "JSON", "msgpack": "MessagePack", "hex": "Hex"}
COPIED_BYTES_MAX = 256 * 1024


class RecordDetail:
    """The panel of one record, which follows what is chosen in a table."""

    def __init__(self, view: PageView, topic: str) -> None:
        self._view = view
        self._topic = topic
        self._name = view.query("view") if view.query("view") in VIEWS else ""
        self._message: Message | None = None
        self._box = tag("section", classes="card section detail", aria_label="Record", tabindex=-1)
        self._box.set_visibility(False)

    async def show(self, pointer: int, *, focus: bool = False) -> None:
        """Read a record and show it, or why it cannot be read."""
        try:
            self._message = await self._view.ask(lambda client: client.get(self._topic, pointer))
        except QuothError as problem:
            self._message = None
            self._begin()
            with self._box:
                tag("h2", f"Record {pointer}")
                tag("p", problem.text, "critical")
        else:
            self._build(self._message)
        if focus:
            ui.run_javascript(f"document.getElementById('{self._box.html_id}').focus()")

    def _begin(self) -> None:
        self._box.clear()
        self._box.set_visibility(True)

    def _build(self, message: Message) -> None:
        view, topic, pointer = self._view, self._topic, message.pointer
        self._begin()
        with self._box:
            tag("h2", f"Record {pointer}")
            facts(
                [
                    ("Time", figures.time(pointer)),
                    ("Age", figures.age(pointer, view.now)),
                    ("Size", figures.size(len(message.value))),
                    *([("Key", preview(message.key))] if message.key is not None else []),
                ]
            )
            if message.headers or message.headers_problem:
                tag("h3", "Headers")
                rows = [(printable(name), preview(value)) for name, value in message.headers.items()]
                facts(rows)
                if message.headers_problem:
                    tag("p", f"The headers cannot be decoded: {message.headers_problem}", "warning")
            self._value = tag("div", classes="section")
            self._show_value(message)
            as_python = program(
                view.config.url, f"message = client.get({topic!r}, {pointer})", "print(message)"
            )
            copy_buttons(command(view.config.url, *topic_words(topic, "get"), str(pointer)), as_python)
            with tag("p", classes="row"):
                link("Link to this record", view.topic_url(topic, "records", at=pointer, record=pointer))
                link("As JSON", view.url("api", "v1", "topics", topic, "records", str(pointer)))

    def _show_value(self, message: Message) -> None:
        name = self._name or best_view(message.value)
        found = view_of(name, message.value)
        self._value.clear()
        with self._value:
            with tag("div", classes="row", role="group", aria_label="Form of the value"):
                tag("h3", "Value")
                for other, label in NAMES.items():
                    button = tag(
                        "button",
                        label,
                        "small",
                        type="button",
                        aria_pressed="true" if other == name else "false",
                    )
                    button.on("click", lambda _, chosen=other: self._choose(chosen))
            if found.problem:
                tag("p", f"Shown as hex, since {found.problem}.", "warning")
                found = view_of("hex", message.value)
            tag("pre", found.text, found.name, tabindex=0, aria_label="Value")
            if found.left_out:
                tag("p", f"{found.left_out:,} more bytes are not shown.", "muted")
            if len(message.value) <= COPIED_BYTES_MAX:
                with tag("div", classes="row"):
                    copy_button(found.text, "Copy value")
                    copy_button(base64.b64encode(message.value).decode(), "Copy as base64")
            else:
                tag("p", "The value is too large to be copied here; the command prints it.", "muted")

    def _choose(self, name: str) -> None:
        self._name = name
        if self._message is not None:
            self._show_value(self._message)
