"""The page where a person begins a session with a token, and those for requests that are not let in.

They are plain HTML: a client that is not authenticated costs the server nothing that stays.
"""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from quothweb.dashboard.view import local_path, page_url
from quothweb.problems import HttpProblem
from quothweb.service.request_body import login_body
from quothweb.services import services_of

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # without one, a browser sends the form with the origin null
}
_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} - Quoth</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}/assets/dashboard.css"><script src="{root}/assets/dashboard.js"></script>
</head><body class="alone"><main id="main"><h1>{title}</h1>{content}</main></body></html>
"""
_FORM = """\
<p>{text}</p>
<form method="post" action="{root}/login"><input type="hidden" name="next" value="{following}">
<label>Token<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button class="strong">Log in</button></form>
<p class="note">The session ends after {span}, or when the token is revoked.</p>
"""
_LOGOUT = '<form method="post" action="{root}/logout"><button>Log in with another token</button></form>'


async def login(request: Request) -> Response:
    """Show the form, or begin a session and go to the page that was wanted."""
    services = services_of(request)
    root = services.config.root_path
    if services.access.tokens is None:
        return RedirectResponse(page_url(root, ""), 303)
    if request.method != "POST":
        return _form(request, request.query_params.get("next", ""))
    given = await _given(request)
    following = given.get("next", "")
    try:
        cookie = services.access.log_in(given.get("token", "").strip(), request)
    except HttpProblem as problem:
        return _form(request, following, problem)
    response = RedirectResponse(_local(root, following), 303, {"Cache-Control": "no-store"})
    services.access.sessions.set_cookie(request, response, cookie)
    return response


async def logout(request: Request) -> Response:
    """End the session."""
    services = services_of(request)
    response = RedirectResponse(page_url(services.config.root_path, "login"), 303)
    services.access.sessions.delete_cookie(response)
    return response


def problem_page(connection: HTTPConnection, problem: HttpProblem) -> Response:
    """Return the answer to a person who is not let in: the login, or a page with the reason."""
    root = services_of(connection).config.root_path
    if problem.code == "unauthenticated":
        wanted = local_path(connection) + (f"?{connection.url.query}" if connection.url.query else "")
        return RedirectResponse(page_url(root, "login", next=wanted), 303, {"Cache-Control": "no-store"})
    content = (
        f'<p class="banner critical" role="alert">{escape(problem.text)}</p><p>{escape(problem.hint)}</p>'
    )
    if problem.code == "denied":
        content += _LOGOUT.format(root=root)
    return _page("You cannot see this" if problem.status == 403 else "Not now", content, root, problem.status)


def _form(request: Request, following: str, problem: HttpProblem | None = None) -> Response:
    config = services_of(request).config
    text = "This server needs a token. Its key needs the right admin on all topics."
    content = _FORM.format(
        text=text,
        root=escape(config.root_path),
        following=escape(following),
        span=f"{config.session_max_age / 3600:g} hours",
    )
    if problem is not None:
        content = f'<p class="banner critical" role="alert">{escape(problem.text)}</p>' + content
    return _page("Log in to Quoth", content, config.root_path, problem.status if problem else 200)


def _page(title: str, content: str, root: str, status: int) -> Response:
    return HTMLResponse(_PAGE.format(title=title, content=content, root=escape(root)), status, HEADERS)


async def _given(request: Request) -> dict[str, str]:
    """Read the fields of the form. Raises `HttpProblem` for one that is too large or too slow."""
    body = await login_body(request, services_of(request).config.request_timeout)
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _local(root: str, following: str) -> str:
    """Return the page to go to: one of this server, whatever the form says."""
    is_local = following.startswith("/") and not following.startswith(("//", "/\\"))
    is_clean = following.isprintable() and "\\" not in following
    return root + following if is_local and is_clean else page_url(root, "")
