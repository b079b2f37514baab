"""A real browser for the pages of quoth-web: Chromium by Playwright, which reaches this machine only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Dialog,
    Error,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

from kit.deadlines import DEADLINE_S

WIDE, NARROW = 1280, 390
HEIGHT = 900
SERIOUS = ("serious", "critical")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def executable() -> str:
    """Return the path of a Chromium of the system, "" if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), "")


@contextmanager
def chromium(path: str | Path = "") -> Iterator[Browser]:
    """Start a browser. Playwright keeps an event loop in this thread until it ends.

    path: of another program than that of the system.
    """
    expect.set_options(timeout=DEADLINE_S * 1_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path or executable(), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class WatchedBrowser:
    """Opens pages, and collects what no page may do: errors, dialogs, requests to other machines."""

    def __init__(self, browser: Browser) -> None:
        self.problems: list[str] = []
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._for_size: dict[tuple[int, bool], BrowserContext] = {}

    def open(
        self, url: str, *, width: int = WIDE, dark: bool = False, context: BrowserContext | None = None
    ) -> Page:
        """Open a page, and wait until its socket is connected. context: of another page, for its cookies.

        Without one, pages of a test share a cache: the scripts are loaded once.
        """
        page = (context or self._shared(width, dark=dark)).new_page()
        page.goto(url)
        return connected(page)

    def _shared(self, width: int, *, dark: bool) -> BrowserContext:
        if (width, dark) not in self._for_size:
            self._for_size[width, dark] = self.context(width=width, dark=dark)
        return self._for_size[width, dark]

    def context(self, *, width: int = WIDE, dark: bool = False) -> BrowserContext:
        """Begin with an empty profile."""
        context = self._browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme="dark" if dark else "light",
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(DEADLINE_S * 1_000)
        context.on("page", self._watch)
        context.on("request", self._note_request)
        self._contexts.append(context)
        return context

    def close(self) -> None:
        """Close all pages."""
        for context in self._contexts:
            context.close()

    def _watch(self, page: Page) -> None:
        page.on("pageerror", self._note_error)
        page.on("dialog", self._refuse)
        page.on("console", lambda line: self._note_line(line.type, line.text))

    def _note_error(self, problem: Error) -> None:
        self.problems.append(f"an error: {problem}")

    def _refuse(self, dialog: Dialog) -> None:
        self.problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _note_line(self, kind: str, text: str) -> None:
        is_answer = "Failed to load resource" in text or "WebSocket connection" in text
        if kind == "error" and not is_answer:
            self.problems.append(text)

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
            self.problems.append(f"a request to {request.url}")


def connected(page: Page) -> Page:
    """Wait until a page has its socket, so that its handlers are called."""
    page.wait_for_function("window.did_handshake === true")
    page.wait_for_selector("h1")
    return page


def serious_findings(page: Page) -> list[str]:
    """Return what axe-core finds on a page and calls serious or critical."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in SERIOUS]


def table_column(page: Page, table: str, column: int = 0) -> Locator:
    """Find the fields of a column of a table, for expect() to wait for what they hold."""
    return page.get_by_role("region", name=table, exact=True).locator(f"tbody tr > :nth-child({column + 1})")
