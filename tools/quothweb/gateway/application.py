"""The application of the gateway: its paths, composed of all operations."""

from __future__ import annotations

from collections import defaultdict

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from quothweb.config import WebConfig
from quothweb.gateway import session, status, topics
from quothweb.gateway.groups import fetching, groups, settling
from quothweb.gateway.openapi import document
from quothweb.gateway.operation import HttpOperation, PathEndpoint
from quothweb.gateway.publishing import publish
from quothweb.gateway.reading import records
from quothweb.gateway.reading.websocket import TopicSocket
from quothweb.problems import HttpProblem
from quothwire.errors import QuothError

PREFIX = "/api/v1"
EXPOSED_HEADERS = (
    "ETag", "Location", "Retry-After", "Quoth-Gone", "Quoth-Log", "Quoth-Newest", "Quoth-Next",
)  # fmt: skip
"""Headers that scripts of other origins may read."""
OPERATIONS: tuple[HttpOperation, ...] = (
    *topics.OPERATIONS,
    *publish.OPERATIONS,
    *records.OPERATIONS,
    *groups.OPERATIONS,
    *fetching.OPERATIONS,
    *settling.OPERATIONS,
    *status.OPERATIONS,
)


def gateway(config: WebConfig) -> Starlette:
    """Make the application. Each of its errors is an object of JSON."""
    paths: defaultdict[str, dict[str, HttpOperation]] = defaultdict(dict)
    for operation in OPERATIONS:
        paths[operation.path][operation.method] = operation
    description = document(OPERATIONS, config.root_path + PREFIX, needs_token=bool(config.tokens))

    async def describe(_: Request) -> Response:
        return JSONResponse(description, headers={"Cache-Control": "no-cache"})

    routes: list[BaseRoute] = [
        Route("/openapi.json", describe),
        Route("/session", session.session, methods=session.METHODS),
        WebSocketRoute("/topics/{topic}/tail", TopicSocket()),
        *(Route(path, PathEndpoint(found)) for path, found in paths.items()),
    ]
    handlers = {
        HTTPException: _wrong_path,
        HttpProblem: _problem,
        QuothError: _broker_problem,
        Exception: _defect,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


async def _problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HttpProblem)
    return problem.response()


async def _broker_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, QuothError)
    return HttpProblem.of(problem).response()


async def _defect(_request: Request, _problem: Exception) -> Response:
    """Answer a request that met a defect, which the outermost layer logs."""
    return HttpProblem("defect", "the server met a defect of its own").response()


async def _wrong_path(request: Request, problem: Exception) -> Response:
    """Answer what the routes refuse: another path, or another method."""
    if isinstance(problem, HTTPException) and problem.status_code == 405:
        text = f"this path has no {request.method:.20}"
        return HttpProblem("method_not_allowed", text, headers=problem.headers).response()
    return HttpProblem("unknown_path", f"there is no path {request.url.path!r:.200}").response()
