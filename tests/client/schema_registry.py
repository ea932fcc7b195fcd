"""A schema registry in a thread of this process, as far as Avro bodies need one."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class FakeRegistry:
    """`schemas` by their ids. `asked`: the paths of all requests. `broken`: respond with 503."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.authorizations: set[str | None] = set()
        self.broken = False
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._respond(*registry.look_up(self.path, self.headers["Authorization"]))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._respond(*registry.add(self.path, body["schema"]))

            def _respond(self, status: int, answer: object) -> None:
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def look_up(self, path: str, authorization: str | None) -> tuple[int, object]:
        self.asked.append(path)
        self.authorizations.add(authorization)
        if self.broken:
            return 503, {"message": "busy"}
        number = int(path.rpartition("/")[2])
        if not 0 < number <= len(self.schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, {"schema": self.schemas[number - 1]}

    def add(self, path: str, schema: str) -> tuple[int, object]:
        self.asked.append(path)
        if self.broken:
            return 503, {"message": "busy"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        self.subjects.setdefault(path.split("/")[2], []).append(number)
        return 200, {"id": number}
