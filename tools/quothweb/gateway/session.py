"""The session of a person who logs in with a token: a cookie that pages and their scripts send.

GET      the name of the token with which the request was sent
POST     {"token": "..."}: begin a session
DELETE   end it
"""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response

from quothweb.access.token_file import TOKEN_CHARACTERS_MAX
from quothweb.gateway.topics import answer
from quothweb.service.request_body import login_body
from quothweb.services import services_of
from quothwire.errors import error

METHODS = ("GET", "HEAD", "POST", "DELETE")


async def session(request: Request) -> Response:
    """Show, begin or end a session."""
    access = services_of(request).access
    if request.method in ("GET", "HEAD"):
        return answer({"name": access.principal_of(request).name, "needs_token": access.tokens is not None})
    response = Response(status_code=204, headers={"Cache-Control": "no-store"})
    if request.method == "DELETE":
        access.sessions.delete_cookie(response)
    elif access.tokens is not None:
        cookie = access.log_in(await _token_of(request), request)
        access.sessions.set_cookie(request, response, cookie)
    return response


async def _token_of(request: Request) -> str:
    """Return the token in the body. Raises ``bad_request``."""
    body = await login_body(request, services_of(request).config.request_timeout)
    try:
        token = json.loads(body)["token"]
        if not isinstance(token, str) or len(token) > TOKEN_CHARACTERS_MAX:
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise error("bad_request", "the body has no token", 'like {"token": "..."}') from None
    return token
