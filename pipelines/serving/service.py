"""cotbert serve: an HTTP service for a model's vectors with OpenAI's API, on Ray Serve.

The command's own process answers HTTP with uvicorn. It joins the texts of waiting requests into
batches and sends each to a replica, a Ray Serve actor with the encoder. Ray Serve's HTTP proxy is
not started, since it does not limit bodies, slow headers or connections.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cotbert_core.choices import Backend
from cotbert_core.encoder.pooling_files import unread_notes
from cotbert_core.errors import UserError, require_packages
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.recording.fetching import fetch_model
from pipelines.runtime.inference import choose_library
from pipelines.runtime.lost_nodes import Nodes, nodes_watched
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.serving.access_token import find_access_token
from pipelines.serving.batching import Batching
from pipelines.serving.options import ServeOptions
from pipelines.serving.replicas import check_replicas, running_replicas
from pipelines.serving.requests import ServedModel

# Time for requests in progress to finish when the service ends.
GRACE_SECONDS = 5
KEEP_ALIVE_SECONDS = 60
BACKLOG = 2048
# Packages of ray[serve] that are imported here or by ray.serve.
EXTRA = ("aiohttp", "fastapi", "httptools", "prometheus_client", "starlette", "uvicorn")


def serve_model(options: ServeOptions) -> None:
    """Serve a model until the process is interrupted, which raises KeyboardInterrupt.

    Raises UserError for an unusable model, address or token.
    """
    token = find_access_token(options)
    check_replicas(options.replicas)
    require_packages("serve", EXTRA, "serve")
    model = fetch_model(options.model)
    served, max_tokens, template_tokens, backend = _opened(model, options)
    from pipelines.serving.application import Service, application

    with (
        bound_socket(options.host, options.port) as listener,
        ray_session(),
        running_replicas(replace(options, model=model, backend=backend)) as replicas,
    ):
        batching = Batching(
            batch_tokens=options.batch_tokens or replicas.batch_tokens(),
            max_tokens=max_tokens,
            template_tokens=template_tokens,
            wait_seconds=options.max_batch_wait_ms / 1000,
            concurrent=replicas.concurrent,
        )
        max_body = options.max_body_mb * 1_000_000
        service = Service(served, replicas.encode, replicas.running, token, max_body, batching)
        listen(listener, options.host, options.port)
        say(
            f"serving {options.model} ({served.dimension} dimensions, {replicas.count} "
            f"replica{'' if replicas.count == 1 else 's'}) at {_address(listener)}"
            "/v1/embeddings; Ctrl-C ends it"
        )
        _answer_until_stopped(application(service), listener)


def _opened(model: str, options: ServeOptions) -> tuple[ServedModel, int, int, Backend]:
    """Return the model's properties, its maximum number of tokens, those of its longest template,
    and the library that runs it.

    It is opened here first, because Ray would restart a failing replica.
    """
    encoder = SentenceEncoder.from_pretrained(model, options.template, options.readout)
    for note in unread_notes(model, prompts=options.template is None):
        say(note)
    backend = choose_library(options.backend, encoder, options.precision)
    served = ServedModel(
        options.model,
        encoder.dimension,
        normalized=encoder.pooling.normalize,
        max_texts=options.max_texts,
        query_prompt=encoder.for_queries is not None,
    )
    template = max(one.bound.length for one in (encoder, encoder.for_queries or encoder))
    return served, encoder.max_length, template, backend


@contextmanager
def bound_socket(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket bound to the address, not yet listening; UserError if it is taken.

    Two services that start at once can both bind it: `listen` refuses the second.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(f"host {host!r} cannot be used ({error}): give an address") from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise _taken(host, port, error) from None
        yield listener


def listen(listener: socket.socket, host: str, port: int) -> None:
    """Accept connections from now on; UserError if another service listens there meanwhile."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _taken(host, port, error) from None


def _taken(host: str, port: int, error: OSError) -> UserError:
    return UserError(
        f"the service cannot listen at {host!r}, port {port} ({error.strerror}): give "
        "another --port or --host"
    )


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _answer_until_stopped(application: Any, listener: socket.socket) -> None:
    """Answer HTTP requests until SIGINT or SIGTERM, then raise KeyboardInterrupt; RuntimeError if
    Ray dies."""
    import uvicorn

    from pipelines.serving.limits import MOST_CONNECTIONS, TimedProtocol, allow_connections

    allow_connections()
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            http=TimedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )

    alive = True

    def end_without_nodes(nodes: Nodes) -> None:
        """Without a node no replica can start: the service would answer 503 for ever, and nothing
        would start it again."""
        nonlocal alive
        alive = any(node["Alive"] for node in nodes)
        server.should_exit |= not alive

    try:
        with nodes_watched(end_without_nodes):
            server.run([listener])
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the service has ended") from None
    if alive:  # SIGINT was ignored when the command began, as in a script after `&`
        raise KeyboardInterrupt("the service has ended")
    raise RuntimeError("Ray has died, which ran the model: start the service again")
