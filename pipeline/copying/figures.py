"""What a copy has done, as Prometheus reads it, on a small HTTP server in a thread of its own.

The loop writes `Figures` between rounds; the server's thread only reads, and a text that is made while the loop writes
has figures of either round, which is as good.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from triomq.pipeline.copying.state import Counts, QueueCopy
from triomq.spark.jobs.session import JobFailed


class Figures:
    """Counts since the start, by source topic. A table is replaced, never changed, since another thread reads it."""

    def __init__(self) -> None:
        self.copied: dict[str, int] = {}
        self.lag: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.returned: dict[str, int] = {}
        self.translated_groups = 0
        self.failures = 0

    def note_round(self, copies: Iterable[QueueCopy]) -> None:
        """Take the counts of the queues, which start at 0 again."""
        lag: dict[str, int] = {}
        copied, lost, returned = dict(self.copied), dict(self.lost), dict(self.returned)
        for copy in copies:
            topic, counts = copy.source.topic, copy.counts
            copy.counts = Counts()
            lag[topic] = lag.get(topic, 0) + copy.lag
            copied[topic] = copied.get(topic, 0) + counts.copied
            lost[topic] = lost.get(topic, 0) + counts.lost
            returned[topic] = returned.get(topic, 0) + counts.returned
        self.lag, self.copied, self.lost, self.returned = lag, copied, lost, returned

    def text(self) -> str:
        """Return the page."""
        lines: list[str] = []
        for name, kind, meaning, table in (
            ("copied_messages_total", "counter", "Messages that the target has confirmed.", self.copied),
            ("lag_messages", "gauge", "Messages at the source that are not copied yet.", self.lag),
            ("lost_messages_total", "counter", "Messages deleted before they were copied.", self.lost),
            ("returned_messages_total", "counter", "Messages that came from the target.", self.returned),
        ):
            lines += [f"# HELP triomq_copy_{name} {meaning}", f"# TYPE triomq_copy_{name} {kind}"]
            lines += [f'triomq_copy_{name}{{topic="{topic}"}} {value}' for topic, value in sorted(table.items())]
        for name, kind, meaning, value in (
            ("translated_groups", "gauge", "Groups whose offsets follow.", self.translated_groups),
            ("failures_total", "counter", "Rounds in which a request failed.", self.failures),
        ):
            lines += [f"# HELP triomq_copy_{name} {meaning}", f"# TYPE triomq_copy_{name} {kind}"]
            lines.append(f"triomq_copy_{name} {value}")
        return "\n".join(lines) + "\n"


class FiguresServer:
    """Serves /metrics on 127.0.0.1 while the context lasts; port 0 serves nothing. Raises JobFailed."""

    def __init__(self, figures: Figures, port: int) -> None:
        self._figures = figures
        self._port = port
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> FiguresServer:
        if not self._port:
            return self
        figures = self._figures

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                is_known = self.path.split("?")[0] == "/metrics"
                body = figures.text().encode() if is_known else b"look at /metrics\n"
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        except OSError as error:
            raise JobFailed(f"--metrics-port {self._port}: {error.strerror or error}") from None
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="figures", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
