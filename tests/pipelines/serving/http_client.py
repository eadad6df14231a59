"""Sends requests to a service on loopback, well-formed ones and any bytes."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from typing import Any

SECONDS = 120


def post(port: int, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Return the status and the JSON that answer a body: bytes, an iterable of bytes, or JSON."""
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    return _answer(port, "POST", "/v1/embeddings", content, headers)


def get(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    return _answer(port, "GET", path, None, headers)


def _answer(
    port: int, method: str, path: str, body: Any, headers: dict[str, str] | None
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    with closing(connection):
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text.decode()


def open_socket(port: int, sent: bytes = b"") -> socket.socket:
    """Return a connection on which these bytes were sent."""
    found = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    found.sendall(sent)
    return found


def received(connection: socket.socket) -> bytes:
    """Return everything that arrives until the service closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def half_a_body(length: int = 100) -> bytes:
    """Return a request that announces more bytes than it has."""
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + b'{"input": "a'
