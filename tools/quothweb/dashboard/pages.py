"""The registry of pages: what each path shows, and how a page is built whatever goes wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from nicegui import context, ui
from starlette.requests import Request
from starlette.responses import Response

from quothweb.dashboard.frame import frame
from quothweb.dashboard.markup import banner, link, tag
from quothweb.dashboard.view import ANSWER_S, PageView
from quothweb.problems import HttpProblem
from quothwire.errors import QuothError

Build: TypeAlias = "Callable[[PageView], Awaitable[Response | None]]"


BUILT_S = 4 * ANSWER_S
"""Time in which a page is built: it waits for the broker a few times at most."""


class DashboardPage(NamedTuple):
    """A page. path: as for FastAPI. title: may name parameters of the path in braces.

    build: adds the content, or returns another answer. current: its entry in the navigation.
    """

    path: str
    title: str
    current: str
    build: Build


def register(page: DashboardPage) -> None:
    """Let NiceGUI serve a page."""

    async def build(request: Request) -> Response | None:
        view = PageView(request)
        title = page.title.format_map(request.path_params)
        frame(view, title, page.current)
        content = context.client.content
        try:
            answer = await page.build(view)
        except (QuothError, HttpProblem) as problem:
            known = problem if isinstance(problem, HttpProblem) else HttpProblem.of(problem)
            context.client.status_code = known.status
            with content:
                _show_problem(view, title, known)
            return None
        return answer

    ui.page(page.path, response_timeout=BUILT_S)(build)


async def unknown_page(view: PageView) -> None:
    """Raise `HttpProblem` 404 for a path that no other page has."""
    text = f"There is no page {view.request.url.path!r:.200}."
    raise HttpProblem("unknown_path", text, "The navigation has all of them.")


def _show_problem(view: PageView, title: str, problem: HttpProblem) -> None:
    """Show why there is no content, and where to go from here."""
    tag("h1", title)
    if problem.code == "unknown_topic":
        tag(
            "p",
            "There is no such topic. It may have been deleted, or its name may be spelled in another way.",
        )
    else:
        banner(problem.text, "critical")
        if problem.hint:
            tag("p", problem.hint, "muted")
    with tag("p"):
        link("All topics", view.url("topics"))
