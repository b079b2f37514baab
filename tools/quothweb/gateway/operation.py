"""The operations of the gateway: what each takes and answers, in one table, and how one is executed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quothweb.access.authentication import Principal
from quothweb.brokers import BrokerClient
from quothweb.gateway.parameters import Parameter, parse_path, parse_query
from quothweb.problems import HttpProblem
from quothweb.services import WebServices, services_of


@dataclass(slots=True)
class GatewayCall:
    """One request in progress. given: its parameters in the path and in the query, parsed."""

    request: Request
    services: WebServices
    principal: Principal
    client: BrokerClient
    given: dict[str, Any]

    @property
    def topic(self) -> str:
        """The name of the topic in the path."""
        name: str = self.given["topic"]
        return name

    @property
    def is_head(self) -> bool:
        """True if only the headers of the answer are wanted."""
        return self.request.method == "HEAD"


Run = Callable[[GatewayCall], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Content:
    """A type of a body, with its schema in OpenAPI and an example."""

    media_type: str
    schema: Mapping[str, Any]
    example: Any = None


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """One operation. run: executes it. bodies: the types that its request may have; none for no body.

    answers: by the status, what it means and the types of its body. is_action: it needs `allow_actions`.
    shows_content: it needs `payloads`. needs_body: a
    request without a body is wrong.
    """

    name: str
    method: str
    path: str
    summary: str
    about: str
    run: Run
    parameters: tuple[Parameter, ...] = ()
    bodies: tuple[Content, ...] = ()
    answers: Mapping[int, tuple[str, tuple[Content, ...]]] = field(default_factory=dict)
    is_action: bool = False
    shows_content: bool = False
    needs_body: bool = False


class PathEndpoint:
    """The operations of one path, by the method."""

    def __init__(self, operations: Mapping[str, HttpOperation]) -> None:
        self._operations = dict(operations)
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]
        self.allow = ", ".join(sorted({*self._operations, "OPTIONS"}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        operation = self._operations.get(request.method)
        if operation is not None:
            await _execute(operation, request, send)
        elif request.method == "OPTIONS":
            await Response(status_code=204, headers={"Allow": self.allow})(scope, receive, send)
        else:
            text = f"this path has no {request.method:.20}"
            raise HttpProblem("method_not_allowed", text, headers={"Allow": self.allow})


async def _execute(operation: HttpOperation, request: Request, send: Send) -> None:
    """Execute an operation for the sender of a request, and send the answer."""
    services = services_of(request)
    principal = services.access.principal_of(request)
    given = parse_path(operation.parameters, request.path_params)
    given |= parse_query(operation.parameters, request.query_params.multi_items())
    if operation.is_action and not services.config.allow_actions:
        raise HttpProblem("actions_off", "this server lets no request change topics and groups")
    if operation.shows_content and not services.config.payloads:
        raise HttpProblem("payloads_off", "this server shows no content of records")
    with services.counted(principal):
        async with services.brokers.client_of(principal) as client:
            call = GatewayCall(request, services, principal, client, given)
            response = await operation.run(call)
            await response(request.scope, request.receive, send)
