"""The server: composes the application and runs it by uvicorn.

SIGTERM and SIGINT stop it in order: it takes no more connections, streams end, requests in progress get
their answers within `stop_timeout`. SIGHUP reads the configuration and the tokens again, and applies them
only if all of them are right. The broker may be away at the start and at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from quothweb.access.token_file import TokenTable, check_key_file, read_tokens
from quothweb.config import SCHEMA, WebConfig
from quothweb.gateway.application import EXPOSED_HEADERS, PREFIX, gateway
from quothweb.monitoring import endpoints
from quothweb.service.connections import protocol_of, socket_protocol_of
from quothweb.service.log_events import note
from quothweb.service.middleware import Outermost
from quothweb.services import WebServices
from quothwire import VERSION
from quothwire.config.sources import Sourced
from quothwire.errors import QuothError
from quothwire.service.exit_status import ExitStatus
from quothwire.service.log_writer import EventWriter, configure
from quothwire.service.sd_notify import Notifier

GRACE_S = 5.0
"""Time to stop beyond `stop_timeout`: for the connections to the broker and the interpreter."""
BACKLOG = 1_024
WEBSOCKET_BYTES_MAX = 64 * 1024
"""Size of a message of a client: it has nothing to say."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def make_app(found: Sourced[WebConfig]) -> FastAPI:
    """Make the application of a configuration; `services_of` finds its parts for a request.

    Raises ``bad_setting`` for a wrong tokens file.
    """
    config = found.config
    services = WebServices(found, read_tokens(Path(config.tokens)) if config.tokens else None)
    pages, page_routes = _pages(services)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(services.brokers.close_idle_for_ever()),
            asyncio.create_task(services.observer.run()),
        ]
        async with pages:
            yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await services.close()

    app = FastAPI(
        title="Quoth", version=VERSION, lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None
    )
    app.state.services = services
    app.mount(PREFIX, gateway(config))
    app.router.routes.extend([*endpoints.routes(), *page_routes])
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
    app.add_middleware(Outermost, services=services)
    return app


def _pages(
    services: WebServices,
) -> tuple[contextlib.AbstractAsyncContextManager[object], list[BaseRoute]]:
    """Return the lifespan and the routes of the dashboard, which is loaded only if it is served."""
    if not services.config.dashboard:
        return contextlib.nullcontext(), []
    from quothweb.dashboard.application import pages_of

    app, routes = pages_of(services)
    return app.router.lifespan_context(app), routes


class WebServer(uvicorn.Server):
    """The server of uvicorn, which reports its state and ends streams when it stops."""

    def __init__(self, app: FastAPI, config: WebConfig, notifier: Notifier, url: str) -> None:
        super().__init__(_uvicorn_config(app, config))
        self.services: WebServices = app.state.services
        self._notifier = notifier
        self._url = url
        self._stop_timeout = config.stop_timeout

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report that. What is there by now, the collector looks at no more."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        note("broker", url=self.services.config.url)
        tokens = self.services.access.tokens
        if tokens is not None:
            note("tokens_required", tokens=len(tokens), file=self.services.config.tokens)
            if not tokens:
                note("no_tokens", file=self.services.config.tokens)
        note("ready", url=self._url)
        self._notifier.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then everything else."""
        note("stopping")
        self._notifier.stopping(self._stop_timeout + GRACE_S)
        await self.services.streams.stop(min(1.0, self._stop_timeout))
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal; a second one does not wait for requests in progress."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def _uvicorn_config(app: FastAPI, config: WebConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_of(config.request_timeout, 2 * config.connections_max),
        ws=socket_protocol_of(config.request_timeout),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        root_path=config.root_path,
        proxy_headers=bool(config.trusted_proxies),
        forwarded_allow_ips=list(config.trusted_proxies),
        timeout_keep_alive=math.ceil(config.request_timeout),
        timeout_graceful_shutdown=math.ceil(config.stop_timeout),
        ws_max_size=WEBSOCKET_BYTES_MAX,
    )


class WebProcess:
    """One run of `quoth-web`, in the main thread.

    configuration: reads it at the start and on each SIGHUP; raises ``bad_setting``. file: its file, if any.
    """

    def __init__(
        self,
        configuration: Callable[[], Sourced[WebConfig]],
        file: Path | None,
        writer: EventWriter,
        notifier: Notifier,
    ) -> None:
        self._configuration = configuration
        self._file = file
        self._writer = writer
        self._notifier = notifier
        self._config = WebConfig()
        self._server: WebServer

    def run(self) -> int:
        """Serve until a signal or a failure; returns the exit status."""
        try:
            found = self._configuration()
            self._config = config = found.config
            if config.key_file:
                check_key_file(config.key_file)
            app = make_app(found)
        except QuothError as problem:
            note("refused", problem=problem)
            return ExitStatus.WRONG
        self._set_up_log()
        try:
            listening = bind(config.host, config.port)
        except OSError as problem:
            reason = problem.strerror or problem
            note("refused", problem=f"cannot listen on {config.host}:{config.port}: {reason}")
            return ExitStatus.NOT_STARTED
        self._server = WebServer(app, config, self._notifier, url_of(listening))
        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            try:
                runner.run(self._serve(listening))
            except Exception as problem:
                note("failed", problem)
                return ExitStatus.FAILED
        note("stopped")
        return ExitStatus.STOPPED

    async def _serve(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        await self._server.serve([listening])

    def _reload(self) -> None:
        """Read the configuration and the tokens again. A wrong one changes nothing."""
        self._notifier.reloading()
        try:
            found = self._configuration()
            tokens = read_tokens(Path(found.config.tokens)) if found.config.tokens else None
            if (tokens is None) != (self._server.services.access.tokens is None):
                text = "tokens was added to the configuration, or removed"
                raise QuothError("bad_setting", text, "restart quoth-web")
        except QuothError as problem:
            note("reload_refused", problem=problem.text)
        else:
            self._apply(found, tokens)
        self._notifier.ready()

    def _apply(self, reloaded: Sourced[WebConfig], tokens: TokenTable | None) -> None:
        """Apply what may change in a running server; for the rest, say that it takes a restart."""
        differing = SCHEMA.differing(self._config, reloaded.config)
        fixed = [name for name in differing if not SCHEMA.keys[name].live]
        config = replace(reloaded.config, **{name: getattr(self._config, name) for name in fixed})
        revoked = self._server.services.replace_tokens(tokens)
        self._server.services.origins = reloaded.origins
        note("reloaded", file=self._file or "none", changed=SCHEMA.differing(self._config, config))
        if tokens is not None:
            note("tokens_changed", tokens=len(tokens), revoked=sorted(revoked))
        if fixed:
            note("restart_needed", keys=fixed)
        self._config = config
        configure(self._writer, config.log_level, config.log_format)

    def _set_up_log(self) -> None:
        configure(self._writer, self._config.log_level, self._config.log_format)
        for name in ("uvicorn", "uvicorn.error", "websockets", "httpx"):
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("uvicorn.error").addFilter(_is_not_cut)


def _is_not_cut(record: logging.LogRecord) -> bool:
    """Drop what uvicorn says of an answer that was cut on purpose."""
    return "returned without completing" not in record.getMessage()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the URL of a socket that listens."""
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
