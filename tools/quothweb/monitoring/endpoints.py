"""The paths for monitoring: `/metrics`, `/livez`, `/readyz`, `/healthz`.

Whether the server lives, and whether the broker answers, any client may ask. Everything that names topics is
for operators.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from quoth.monitoring.alarms import Severity, worst
from quothweb.monitoring.collector import CONTENT_TYPE, exposition
from quothweb.services import services_of

FRESH = {"Cache-Control": "no-store"}


def routes() -> list[BaseRoute]:
    """Return the routes of the paths."""
    return [
        Route("/metrics", metrics),
        Route("/livez", live),
        Route("/readyz", ready),
        Route("/healthz", health),
    ]


async def metrics(request: Request) -> Response:
    """Return the metrics of the broker for Prometheus."""
    services = services_of(request)
    await services.operators.require(request)
    text = exposition(services.observer, services.config.topics_shown_max)
    return Response(text, media_type=CONTENT_TYPE, headers=FRESH)


async def live(_: Request) -> Response:
    """Answer as long as the server does."""
    return PlainTextResponse("ok\n", headers=FRESH)


async def ready(request: Request) -> Response:
    """Return 200 if the broker has answered in the last round, else 503 with the reason.

    A broker that tells no metrics may serve everything else; one that refuses the key of the server does not.
    """
    observer = services_of(request).observer
    is_known = observer.metrics_problem is None or observer.metrics_problem.code != "auth_failed"
    if observer.is_reachable and is_known:
        return PlainTextResponse("ok\n", headers=FRESH)
    reason = "the broker was not asked yet"
    if observer.failure is not None:
        reason = observer.failure.code
    elif observer.metrics_problem is not None and not is_known:
        reason = observer.metrics_problem.code
    elif observer.answered_at:
        reason = f"no answer for {observer.age:.0f} s"
    return PlainTextResponse(f"{reason}\n", 503, headers=FRESH)


async def health(request: Request) -> Response:
    """Return 200 without a critical alarm, else 503. `?verbose` lists the alarms, for operators."""
    services = services_of(request)
    found = services.observer.alarms()
    severity = worst(found)
    is_healthy = severity is not Severity.CRITICAL and services.observer.answered_at > 0
    status = 200 if is_healthy else 503
    if "verbose" not in request.query_params:
        return PlainTextResponse(f"{severity.name.lower()}\n", status, headers=FRESH)
    await services.operators.require(request)
    content = {
        "state": severity.name.lower(),
        "age_seconds": round(services.observer.age, 3) if services.observer.answered_at else None,
        "alarms": [{**one._asdict(), "severity": one.severity.name.lower()} for one in found],
    }
    return JSONResponse(content, status, headers=FRESH)
