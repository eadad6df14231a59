"""Sends requests to a service on loopback, well-formed ones and any bytes."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

SECONDS = 120


def post(
    port: int, body: Any, headers: dict[str, str] | None = None, path: str = "/v1/embeddings"
) -> tuple[int, Any]:
    """Return the status and the JSON that answer a body: bytes, an iterable of bytes, or JSON."""
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    return _answer(port, "POST", path, body, headers)


def get(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    return _answer(port, "GET", path, None, headers)


def _answer(
    port: int, method: str, path: str, body: Any, headers: dict[str, str] | None
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text.decode()
    finally:
        connection.close()


def open_socket(port: int, sent: bytes = b"") -> socket.socket:
    """Return a connection on which these bytes were sent."""
    found = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    found.sendall(sent)
    return found


def received(connection: socket.socket) -> bytes:
    """Return everything that arrives until the service closes the connection."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def half_a_body(length: int = 100) -> bytes:
    """Return a request that announces more bytes than it has."""
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + b'{"input": "a'
