"""A job server on loopback that answers as a test asks it to."""

from __future__ import annotations

import json
import platform
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version


def answers(ray=None, python=None, jobs=None):
    """Return path -> (status, body) of a cluster of two nodes, and one that has ended."""
    rows = [{"state": state} for state in ("ALIVE", "DEAD", "ALIVE")]
    responses = {
        "/api/version": {"ray_version": ray or version("ray")},
        "/api/v0/cluster_metadata": {
            "data": {"pythonVersion": python or platform.python_version()}
        },
        "/api/v0/nodes": {"data": {"result": {"result": rows}}},
    }
    responses |= {f"/api/jobs/{name}": job for name, job in (jobs or {}).items()}
    return {path: (200, body) for path, body in responses.items()}


class FakeServer:
    """`with FakeServer(answers()) as server`: server.url, and server.asked, the requests seen.

    token: the one that it requires; it answers 401 without one, 403 to another.
    """

    def __init__(self, responses, token=None):
        self.responses, self.token, self.asked = responses, token, []

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path, authorization):
        if self.token and not authorization:
            return 401, {}
        if self.token and authorization != f"Bearer {self.token}":
            return 403, {}
        return self.responses.get(path.partition("?")[0], (404, {}))

    def _handler(owner):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                owner.asked.append(self.path)
                status, body = owner._answer(self.path, self.headers.get("Authorization"))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        return Handler
