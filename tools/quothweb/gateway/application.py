"""The application of the gateway: its paths, composed of all operations."""

from __future__ import annotations

from collections import defaultdict

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quothweb.config import WebConfig
from quothweb.gateway import status, topics
from quothweb.gateway.operation import HttpOperation, PathEndpoint
from quothweb.gateway.publishing import publish
from quothweb.gateway.reading import records
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
    *status.OPERATIONS,
)


def gateway(_: WebConfig) -> Starlette:
    """Make the application. Each of its errors is an object of JSON."""
    paths: defaultdict[str, dict[str, HttpOperation]] = defaultdict(dict)
    for operation in OPERATIONS:
        paths[operation.path][operation.method] = operation
    routes: list[BaseRoute] = [Route(path, PathEndpoint(found)) for path, found in paths.items()]
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _unknown_path,
            HttpProblem: _problem,
            QuothError: _broker_problem,
            Exception: _defect,
        },
    )
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


async def _unknown_path(request: Request, _: Exception) -> Response:
    return HttpProblem("unknown_path", f"there is no path {request.url.path!r:.200}").response()
