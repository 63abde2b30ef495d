"""A real HTTP server on loopback that speaks ``/v1/chat/completions`` as told, and badly where told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """``texts``: one a choice. ``cut``: bytes of the body that are sent before the connection drops; ``delay``: seconds before the answer."""

    texts: list[str] = field(default_factory=list)
    status: int = 200
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: int | None = None
    finish: str = "stop"
    usage: tuple[int, int] | None = (10, 5)


@dataclass
class ChatServer:
    """``answer(request, number)`` gives the reply to the ``number``-th request. ``seen`` holds the requests, ``most`` how many were under way at once."""

    answer: Callable[[dict[str, Any], int], Reply]
    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    most: int = 0
    under_way: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def chat_server(answer: Callable[[dict[str, Any], int], Reply]) -> Iterator[ChatServer]:
    state = ChatServer(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": []})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                number = len(state.seen)
                state.seen.append(request)
                state.times.append(time.monotonic())
                state.under_way += 1
                state.most = max(state.most, state.under_way)
            try:
                self._reply(state.answer(request, number))
            finally:
                with state.lock:
                    state.under_way -= 1

        def _reply(self, reply: Reply) -> None:
            time.sleep(reply.delay)
            if reply.status != 200:
                self._send(reply.status, {"error": {"message": reply.message, "type": "error"}}, reply.headers)
                return
            choices = [{"index": n, "finish_reason": reply.finish, "message": {"role": "assistant", "content": t}} for n, t in enumerate(reply.texts)]
            body: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 0, "model": "toy", "choices": choices}
            if reply.usage is not None:
                prompt, each = reply.usage
                body["usage"] = {"prompt_tokens": prompt, "completion_tokens": each * len(choices), "total_tokens": prompt + each * len(choices)}
            self._send(200, body, reply.headers, reply.cut)

        def _send(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None, cut: int | None = None) -> None:
            data = json.dumps(body).encode()
            try:
                if cut == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data[:cut])
                self.close_connection = cut is not None
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client gave up

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
