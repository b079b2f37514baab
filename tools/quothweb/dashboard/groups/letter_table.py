"""The dead letters of a group: which are left, and for pages that may, retries and drops of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from quoth.core.request_state import ClientCall
from quoth.groups.letters.dead_letters import GroupLetters, LetterProblem, StoredLetter, dead_letters
from quoth.groups.letters.letter_retry import CHUNK, LetterRetry
from quothweb.brokers import BrokerClient
from quothweb.dashboard import figures
from quothweb.dashboard.actions import execute
from quothweb.dashboard.markup import link, section, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program, topic_words
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothwire.errors import QuothError

SHOWN = CHUNK
"""Letters on the page: so many are retried at once, too."""
READ_MAX = 20
"""Reads of the topic of the letters until a page is given up: its letters may be those of other groups."""
ACTION_S = 20.0
COLUMNS = (
    TableColumn("time", "Dead since (UTC)"),
    TableColumn("record", "Record", numeric=True),
    TableColumn("attempts", "Attempts", numeric=True),
    TableColumn("member", "Last member"),
    TableColumn("reason", "Reason", kind="text"),
)
WORDS = {
    "retry": (
        "Retry",
        "Publishes the record again at the end of topic {topic}, for all its groups. Then its letter counts "
        "as handled. It is stored once, however often its letter is retried.",
    ),
    "drop": (
        "Drop",
        "Counts the letter as handled without a retry. It stays in its topic until retention removes it.",
    ),
}


class LetterTable:
    """The letters that are neither retried nor dropped, the oldest first."""

    def __init__(self, view: PageView, topic: str, group: str) -> None:
        self._view = view
        self._topic = topic
        self._group = group
        self._shown: list[StoredLetter] = []
        self._wanted: tuple[str, list[int]] = ("", [])
        self._letters = ""

    async def build(self) -> None:
        """Add the table, and what can be done with its rows."""
        with section("Dead letters"):
            self._note = tag("p", classes="muted")
            self._table = DataTable("Dead letters", COLUMNS, "No dead letter is left.")
            await self._load()
            if self._letters:
                with tag("p"):
                    link(f"Browse {printable(self._letters)}", self._view.topic_url(self._letters, "records"))
            if self._view.config.allow_actions:
                self._controls()
            url, words = self._view.config.url, topic_words(self._topic, "group", "dead", "ls")
            call = f"print(client.read({self._letters!r}))"
            copy_buttons(command(url, *words, self._group), program(url, call))

    # -- what is left ---------------------------------------------------------------------------------------

    async def _load(self) -> None:
        try:
            self._shown, more = await self._view.ask(self._left)
        except (QuothError, LetterProblem) as problem:
            self._shown, more = [], False
            self._note.set_text("" if problem.code == "unknown_topic" else problem.text)
        else:
            self._note.set_text(f"The oldest {len(self._shown)} are shown." if more else "")
        self._table.show(map(self._row, self._shown))

    async def _left(self, client: BrokerClient) -> tuple[list[StoredLetter], bool]:
        """Return the oldest letters that are left, and whether there may be more."""
        found = await client.execute(dead_letters(client, self._topic, self._group))
        self._letters = found.letters
        newest = await client.execute(found.newest())
        left = await client.execute(found.left())
        after, letters = left.after, list[StoredLetter]()
        for _ in range(READ_MAX):
            if after >= newest or len(letters) > SHOWN:
                break
            some, after = await client.execute(found.page(left, after, newest, lambda _: None, 10 * SHOWN))
            letters += some
        return letters[:SHOWN], len(letters) > SHOWN or after < newest

    def _row(self, letter: StoredLetter) -> DataRow:
        time: dict[str, Any] = {"text": figures.second(letter.pointer)}
        if self._view.config.allow_actions:
            buttons = [
                {"name": name, "label": label, "about": f"{label} letter {letter.pointer}"}
                for name, (label, _) in WORDS.items()
            ]
            time["buttons"] = buttons
        url = self._view.topic_url(self._topic, "records", at=letter.original, record=letter.original)
        reason = printable(letter.reason) if self._view.config.payloads else "hidden (payloads is off)"
        record = {"text": str(letter.original), "href": url}
        cells = (time, record, str(letter.attempts), printable(letter.member), reason)
        return DataRow(str(letter.pointer), cells)

    # -- retry and drop -------------------------------------------------------------------------------------

    def _controls(self) -> None:
        with tag("dialog") as self._dialog:
            self._question = tag("h2")
            self._effect = tag("p")
            with tag("div", classes="row"):
                yes = tag("button", "Yes", "strong", type="button", data_close="")
                tag("button", "Cancel", type="button", data_close="")
        self._dialog.props["aria-labelledby"] = self._question.html_id
        yes.on("click", self._confirmed)
        self._table.on_action(lambda name, key: self._ask(name, [int(key)] if key.isdecimal() else []))
        with tag("div", classes="row"):
            for name, (label, _) in WORDS.items():
                button = tag("button", f"{label} all shown", type="button", aria_haspopup="dialog")
                button.on(
                    "click", lambda _, chosen=name: self._ask(chosen, [one.pointer for one in self._shown])
                )

    def _ask(self, name: str, pointers: Sequence[int]) -> None:
        if name not in WORDS or not pointers:
            return
        label, effect = WORDS[name]
        what = f"letter {pointers[0]}" if len(pointers) == 1 else f"{len(pointers)} letters"
        self._wanted = (name, sorted(pointers))
        self._question.set_text(f"{label} {what} of group {printable(self._group)}?")
        self._effect.set_text(effect.format(topic=printable(self._topic)))
        ui.run_javascript(f"document.getElementById('{self._dialog.html_id}').showModal()")

    async def _confirmed(self) -> None:
        name, pointers = self._wanted
        self._wanted = ("", [])
        if name in WORDS and pointers:
            await execute(self._view, lambda: self._finish(name, pointers))

    async def _finish(self, name: str, pointers: Sequence[int]) -> str:
        work = _retried if name == "retry" else _dropped
        said = await self._view.ask(lambda client: self._work(client, pointers, work), ACTION_S)
        await self._load()
        return said

    async def _work(
        self,
        client: BrokerClient,
        pointers: Sequence[int],
        work: Callable[[GroupLetters, Sequence[StoredLetter]], ClientCall[str]],
    ) -> str:
        found = await client.execute(dead_letters(client, self._topic, self._group))
        left = await client.execute(found.left())
        chosen = [await client.execute(found.letter(one)) for one in pointers if left.has(one)]
        if not chosen:
            return "Nothing was done: these letters had been retried or dropped before."
        return await client.execute(work(found, chosen))


def _retried(found: GroupLetters, letters: Sequence[StoredLetter]) -> ClientCall[str]:
    """Retry a few letters, and return what was done."""
    retry = LetterRetry(found)
    yield from retry.publish(letters)
    yield from found.finish(letters)
    return f"{retry.counts.retried} letters were retried, {retry.counts.handled} had been handled before."


def _dropped(found: GroupLetters, letters: Sequence[StoredLetter]) -> ClientCall[str]:
    """Drop a few letters, and return what was done."""
    yield from found.finish(letters)
    return f"{len(letters)} letters were dropped."
