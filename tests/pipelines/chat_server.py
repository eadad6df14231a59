"""A local endpoint that speaks chat completions, and misbehaves as a test asks it to."""

from __future__ import annotations

import json
import threading
import time
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


class ChatServer(ThreadingHTTPServer):
    """`with ChatServer(reply) as server`: server.url.

    reply(sentence, number): (status, headers, body) of the number-th request (from 1) for a
    sentence. delay: seconds before it. asked: all requests in turn; answered: those that got a
    whole answer back; keys: Authorization headers seen; most: requests at a time. blank: seconds
    between blank lines that precede the body for a while, to keep the connection open.
    """

    daemon_threads = True

    def __init__(self, reply=None, delay=0.0, models=200, blank=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.reply = reply or (lambda sentence, number: answer(paraphrase(sentence)))
        self.delay, self.models, self.blank = delay, models, blank
        self.asked, self.answered, self.bodies, self.keys = [], [], [], set()
        self.most = self.now = 0
        self.lock = threading.Lock()

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms until the headers are acknowledged

    def do_GET(self):
        self.send(self.server.models, {}, "{}")

    def do_POST(self):
        server, begin = self.server, PROMPT.partition("{")[0]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = body["messages"][0]["content"]
        assert content.startswith(begin), content
        sentence = content.removeprefix(begin)
        with server.lock:
            server.asked.append(sentence)
            server.bodies.append(body)
            number = server.asked.count(sentence)
            server.now += 1
            server.most = max(server.most, server.now)
        try:
            time.sleep(server.delay)
            reply = server.reply(sentence, number)
            self.send(*reply)
            server.answered += [sentence] * (reply[0] == 200)
        except OSError:
            self.close_connection = True  # whoever asked has gone
        finally:
            with server.lock:
                server.now -= 1

    def send(self, status, headers, body):
        self.server.keys.add(self.headers.get("Authorization"))
        content = body.encode() if isinstance(body, str) else body
        lines = 0 if self.server.blank is None else 100
        content = b"\n" * lines + content
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        for _ in range(lines):
            self.wfile.write(b"\n")
            time.sleep(self.server.blank)
        self.wfile.write(content[lines:])

    def log_message(self, *arguments):
        pass
