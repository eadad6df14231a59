"""A local endpoint that speaks chat completions, and misbehaves as a test asks it to."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROMPT = "Say again: {sentence}"
KEY = "sk-secret-0123456789"
ANSWER_TOKENS = (11, 5)


def paraphrase(sentence):
    return f"In other words, {sentence}"


def answer(text, tokens=ANSWER_TOKENS):
    """A whole answer's status, headers and body."""
    body = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    if tokens:
        body["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return 200, {}, json.dumps(body)


class ChatServer:
    """`with ChatServer(reply) as server`: server.url.

    reply(sentence, number): (status, headers, body) of the number-th request (from 1) for a
    sentence. delay: seconds before it. asked: all requests in turn; answered: those that got a
    whole answer back; keys: Authorization headers seen.
    """

    def __init__(self, reply=None, delay=0.0, models=200):
        self.reply = reply or (lambda sentence, number: answer(paraphrase(sentence)))
        self.delay, self.models = delay, models
        self.asked, self.answered, self.keys = [], [], set()
        self.bodies = []
        self.most, self._now = 0, 0
        self._counts, self._lock = Counter(), threading.Lock()

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()

    def _take(self, body):
        content, begin = body["messages"][0]["content"], PROMPT.partition("{")[0]
        assert content.startswith(begin), content
        sentence = content.removeprefix(begin)
        with self._lock:
            self.asked.append(sentence)
            self.bodies.append(body)
            self._counts[sentence] += 1
            self._now += 1
            self.most = max(self.most, self._now)
            return sentence, self._counts[sentence]

    def _left(self, sentence, status):
        with self._lock:
            self._now -= 1
            if status == 200:
                self.answered.append(sentence)

    def _handler(owner):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                owner.keys.add(self.headers.get("Authorization"))
                self.send((owner.models, {}, "{}"))

            def do_POST(self):
                owner.keys.add(self.headers.get("Authorization"))
                length = int(self.headers["Content-Length"])
                sentence, number = owner._take(json.loads(self.rfile.read(length)))
                status = 0
                try:
                    time.sleep(owner.delay)
                    reply = owner.reply(sentence, number)
                    self.send(reply)
                    status = reply[0]
                except OSError:
                    self.close_connection = True  # whoever asked has gone
                finally:
                    owner._left(sentence, status)

            def send(self, reply):
                status, headers, body = reply
                content = body.encode() if isinstance(body, str) else body
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        return Handler
