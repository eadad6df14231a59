"""Requests and answers of /v1/embeddings in the format of OpenAI's API."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from cotbert_core.messages.printable import printable, shortened
from pipelines.embedding.quantization import shorten
from pipelines.reading.readers import MOST_CHARACTERS

Encoding = Literal["float", "base64"]
FIELDS = ("input", "model", "encoding_format", "dimensions", "input_type", "user")
INPUT_TYPES = ("document", "query")


class RequestError(Exception):
    """A refused request: HTTP status, message, invalid field, and OpenAI's error code."""

    def __init__(
        self, status: int, message: str, field: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.code = status, message, field, code

    def body(self) -> dict[str, Any]:
        """Return the error in OpenAI's format."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        if self.status == 401:
            kind = "authentication_error"
        error = {"message": self.message, "type": kind, "param": self.field, "code": self.code}
        return {"error": error}


@dataclass(frozen=True)
class EmbeddingRequest:
    """A valid request.

    texts: at least one. dimensions: number of leading dimensions to return. queries: whether the
    texts get the model's prompt for queries.
    """

    texts: list[str]
    encoding: Encoding
    dimensions: int
    queries: bool = False


@dataclass(frozen=True)
class ServedModel:
    """The model's properties, against which requests are checked.

    name: the model's name in requests and answers. dimension: size D of a vector. normalized:
    whether vectors have unit length. max_texts: maximum number of texts of a request. query_prompt:
    whether queries have a prompt of their own.
    """

    name: str
    dimension: int
    normalized: bool
    max_texts: int
    query_prompt: bool = False


def parse_request(body: bytes, model: ServedModel) -> EmbeddingRequest:
    """Return the request in a JSON body; RequestError for an invalid one."""
    given = _json_object(body)
    if unknown := [name for name in given if name not in FIELDS]:
        known = ", ".join(FIELDS)
        name = unknown[0][:100]
        _refuse(f"the field {name!r} is unknown: give {known}", printable(name))
    if given.get("model") not in (None, model.name):
        raise RequestError(
            404,
            f"the model {_shown(given['model'])} is not served here: give {model.name!r}, or "
            "leave model out",
            "model",
            "model_not_found",
        )
    encoding = given.get("encoding_format")
    if encoding not in (None, "float", "base64"):
        _refuse(f"encoding_format is {_shown(encoding)}: give float or base64", "encoding_format")
    kind = given.get("input_type")
    if kind not in (None, *INPUT_TYPES):
        _refuse(f"input_type is {_shown(kind)}: give {' or '.join(INPUT_TYPES)}", "input_type")
    texts = _texts(given.get("input"), model.max_texts)
    dimensions = _dimensions(given, model.dimension)
    queries = kind == "query" and model.query_prompt
    return EmbeddingRequest(texts, encoding or "float", dimensions, queries)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0][:100]  # after it, advice to a programmer
        if isinstance(error, UnicodeDecodeError):
            compressed = body.startswith(_GZIP)
            reason = "it is compressed" if compressed else "it is not UTF-8"
        if isinstance(error, RecursionError):
            reason = "it is nested too deeply"
        _refuse(f"the body is not JSON ({reason}): send an object such as {_EXAMPLE}")
    if not isinstance(given, dict):
        _refuse(f"the body is {_kind(given)}: send an object such as {_EXAMPLE}")
    return dict(given)


_GZIP = b"\x1f\x8b"
_EXAMPLE = '{"input": ["One text.", "Another one."]}'


def _texts(given: Any, most: int) -> list[str]:
    """Return the texts of `input`, which is a text or a list."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        _refuse(f"input is {_kind(given)}: give a text or a list of at least one text", "input")
    if len(texts) > most:
        _refuse(f"input has {len(texts)} texts: give at most {most} in one request", "input")
    for place, text in enumerate(texts):
        _check_text(place, text)
    return texts


def _check_text(place: int, text: Any) -> None:
    if isinstance(text, int | list) and not isinstance(text, bool):
        _refuse(
            f"input[{place}] is {_kind(text)}, and this model does not take token ids, which mean "
            "something else in every tokenizer: give the text",
            "input",
        )
    if not isinstance(text, str):
        _refuse(f"input[{place}] is {_kind(text)}: give a text", "input")
    if len(text) > MOST_CHARACTERS:
        _refuse(
            f"input[{place}] has {len(text):,} characters: give at most {MOST_CHARACTERS:,} in a "
            "text",
            "input",
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(f"input[{place}] has half of a surrogate pair: give valid Unicode", "input")


def _dimensions(given: dict[str, Any], most: int) -> int:
    number = given.get("dimensions")
    if number is None:
        return most
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
        _refuse(
            f"dimensions is {_shown(number)}: give a whole number from 1 to {most}", "dimensions"
        )
    return int(number)


def _refuse(message: str, field: str | None = None) -> NoReturn:
    raise RequestError(400, message, field)


def _shown(value: Any) -> str:
    return shortened(json.dumps(value), 100)


def _kind(value: Any) -> str:
    names: list[tuple[Any, str]] = [
        (type(None), "missing or null"),
        (bool, "true or false"),
        (int | float, "a number"),
        (str, "a text"),
        (list, "a list" if value else "an empty list"),
    ]
    return next((name for kind, name in names if isinstance(value, kind)), "an object")


def render_answer(
    request: EmbeddingRequest, vectors: np.ndarray, tokens: int, model: ServedModel
) -> bytes:
    """Return the answer as JSON. vectors: (N, D) float32. tokens: number of tokens of all texts."""
    if request.dimensions < vectors.shape[1]:
        vectors = shorten(vectors, request.dimensions, model.normalized)
    # A vector at a time: other threads wait while one is rendered, 0.4 ms for 384 numbers.
    data = (
        {"object": "embedding", "index": place, "embedding": _rendered(vector, request.encoding)}
        for place, vector in enumerate(vectors)
    )
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    rest = json.dumps({"object": "list", "model": model.name, "usage": usage})
    return f'{rest[:-1]}, "data": [{", ".join(map(json.dumps, data))}]}}'.encode()


def _rendered(vector: np.ndarray, encoding: Encoding) -> Any:
    if encoding == "float":
        return vector.tolist()
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
