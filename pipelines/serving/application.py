"""The HTTP application: /v1/embeddings, /v1/models, /health and /metrics.

It runs in the command's process, independent of Ray and the encoder: `encode` turns a batch of
texts into vectors, and `health` returns the number of running replicas.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cotbert_core.errors import first_line
from pipelines.runtime.progress import say
from pipelines.serving.access_token import AccessToken
from pipelines.serving.batching import Batcher, Batching
from pipelines.serving.limits import (
    MOST_BODIES,
    MOST_WAITING_TEXTS,
    Admission,
    discard_body,
    is_closing,
    read_body,
)
from pipelines.serving.metrics import CONTENT_TYPE, ServiceMetrics
from pipelines.serving.requests import (
    EmbeddingRequest,
    RequestError,
    ServedModel,
    parse_request,
    render_answer,
)

# Timeout of a request; clients that wait longer have usually given up.
ANSWER_SECONDS = 300.0
# Larger answers are rendered in a thread: 100,000 numbers as JSON take 40 ms.
MOST_NUMBERS_AT_ONCE = 25_000
# nginx's log status for a client that has closed the connection; nobody receives it.
CLIENT_CLOSED = 499
# Timeouts of a request body in seconds: without a byte, and in total.
BODY_TIMES = {"silent": 10.0, "total": 60.0}
Encode = Callable[[list[str], bool], Awaitable[tuple[np.ndarray, np.ndarray]]]
Health = Callable[[], Awaitable[int]]


@dataclass(frozen=True)
class Service:
    """The configuration of the application.

    encode: returns vectors and numbers of tokens of a batch, of queries or of other texts. health:
    returns the number of running replicas. token: None if requests need none. max_body: in bytes.
    """

    model: ServedModel
    encode: Encode
    health: Health
    token: AccessToken | None
    max_body: int
    batching: Batching


class Endpoints:
    """The functions that answer requests."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._metrics = ServiceMetrics()
        most_texts = max(MOST_WAITING_TEXTS, service.model.max_texts)
        self._admission = Admission(MOST_BODIES * service.max_body, most_texts)
        self._metrics.waiting.set_function(lambda: self._admission.held["texts"])
        self._started = int(time.time())
        # Queries with a prompt of their own are in batches of their own.
        free = asyncio.Semaphore(service.batching.concurrent)
        self.batchers = {
            queries: Batcher(partial(self._encode, queries=queries), service.batching, free)
            for queries in (False, True)
        }

    async def embeddings(self, request: Request) -> Response:
        """Answer POST /v1/embeddings, and count it."""
        started = time.perf_counter()
        try:
            response = await self._embeddings(request)
        except RequestError as error:
            response = error_response(error)
            if is_closing(request.headers, error.status):
                await discard_body(request.receive)
        except ClientDisconnect:
            response = Response(status_code=CLIENT_CLOSED)
        except asyncio.CancelledError:  # by uvicorn, which ends and would answer a bare 500
            response = error_response(
                RequestError(503, "the service is ending: try again later", code="ending")
            )
        except Exception as error:  # a replica or Ray died
            say(f"warning: a request failed: {first_line(error)}")
            response = error_response(
                RequestError(503, "the encoder failed on this request: try again", code="failed")
            )
        self._metrics.requests.labels(str(response.status_code)).inc()
        self._metrics.request_seconds.observe(time.perf_counter() - started)
        return response

    async def _embeddings(self, request: Request) -> Response:
        self._check_token(request)
        model = self._service.model
        with (
            self._admission.holding("bytes") as hold_bytes,
            self._admission.holding("texts") as hold_texts,
        ):
            announced = request.headers.get("content-length")
            body = await read_body(
                request.stream(), announced, self._service.max_body, hold_bytes, **BODY_TIMES
            )
            wanted = parse_request(body, model)
            hold_texts(len(wanted.texts))
            vectors, tokens = await self._while_connected(request, wanted)
            self._metrics.sentences.inc(len(wanted.texts))
            self._metrics.tokens.inc(tokens)
            if vectors.size <= MOST_NUMBERS_AT_ONCE:
                answer = render_answer(wanted, vectors, tokens, model)
            else:
                answer = await asyncio.to_thread(render_answer, wanted, vectors, tokens, model)
        return Response(answer, media_type="application/json")

    async def _while_connected(
        self, request: Request, wanted: EmbeddingRequest
    ) -> tuple[np.ndarray, int]:
        """Return vectors and number of tokens, unless the client disconnects or it times out."""
        embedded = asyncio.create_task(self.batchers[wanted.queries].embed(wanted.texts))
        left = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait(
                {embedded, left}, timeout=ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if embedded.done():
                return embedded.result()
            if left.done():
                raise ClientDisconnect
            raise RequestError(
                503,
                f"the service did not answer within {ANSWER_SECONDS:g} seconds: send fewer texts "
                "in a request, or try again when fewer are waiting",
            )
        finally:
            embedded.cancel()
            left.cancel()

    async def _encode(self, texts: list[str], queries: bool) -> tuple[np.ndarray, np.ndarray]:
        started = time.perf_counter()
        encoded = await self._service.encode(texts, queries)
        self._metrics.batch_seconds.observe(time.perf_counter() - started)
        self._metrics.batch_sentences.observe(len(texts))
        return encoded

    async def models(self, request: Request) -> Response:
        """Answer GET /v1/models, and GET /v1/models/NAME for the model's own name."""
        self._check_token(request)
        name = self._service.model.name
        one = {"id": name, "object": "model", "owned_by": "cotbert", "created": self._started}
        asked = request.path_params.get("name", name)
        if asked != name:
            sentence = f"the model {asked[:100]!r} is not served here, but {name!r}: give its name"
            raise RequestError(404, sentence, code="model_not_found")
        return JSONResponse(one if request.path_params else {"object": "list", "data": [one]})

    async def health(self, _: Request) -> Response:
        """Answer GET /health: 200 while a replica runs, else 503. It needs no token."""
        replicas = await self._service.health()
        status = "ok" if replicas else "no replica runs"
        return JSONResponse(
            {"status": status, "replicas": replicas}, status_code=200 if replicas else 503
        )

    async def metrics(self, request: Request) -> Response:
        """Answer GET /metrics."""
        self._check_token(request)
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    def _check_token(self, request: Request) -> None:
        token = self._service.token
        if token is not None and not token.admits(request.headers.get("authorization")):
            raise RequestError(
                401,
                "the token is missing or wrong: send the header Authorization: Bearer TOKEN",
                code="invalid_api_key",
            )


async def _disconnected(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def error_response(error: RequestError) -> Response:
    """Return the error response; after some errors uvicorn closes the connection."""
    headers = {"Retry-After": "1"} if error.status == 503 else {}
    if error.status in (401, 408):  # the rest of the body is not read
        headers["Connection"] = "close"
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


async def _refused(_: Request, error: Any) -> Response:
    return error_response(error)


async def _not_found(request: Request, error: Any) -> Response:
    sentence = f"{request.method} {request.url.path[:100]} is not known here: POST /v1/embeddings"
    return error_response(RequestError(error.status_code, sentence))


def application(service: Service) -> Starlette:
    """Return the ASGI application, whose lifespan runs the batcher."""
    endpoints = Endpoints(service)

    @asynccontextmanager
    async def batches(_: Starlette) -> AsyncIterator[None]:
        running = [asyncio.create_task(one.run()) for one in endpoints.batchers.values()]
        yield
        for task in running:
            task.cancel()

    served = Starlette(
        routes=[
            Route("/v1/embeddings", endpoints.embeddings, methods=["POST"]),
            Route("/v1/models", endpoints.models),
            Route("/v1/models/{name:path}", endpoints.models),
            Route("/health", endpoints.health),
            Route("/metrics", endpoints.metrics),
        ],
        exception_handlers={RequestError: _refused, HTTPException: _not_found},
        lifespan=batches,
    )
    served.router.redirect_slashes = False  # a path with a slash more is not known
    return served
