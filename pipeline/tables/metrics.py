"""Figures of a running table for Prometheus: GET /metrics on a port of this machine's loopback address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from triomq.monitoring.exposition import Family, Page, counter, gauge, labels, one, wants_openmetrics
from triomq.spark.jobs.session import JobFailed

if TYPE_CHECKING:
    from triomq.pipeline.tables.keeper import Keeper

HOST: Final = "127.0.0.1"
SILENT_SECONDS: Final = 10.0


class Figures:
    """What a run has done. Written by the thread of the run, read by those of the server."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.rows = 0
        self.dead_rows = 0
        self.commits = 0
        self.waiting = 0
        self.failures = 0

    def follow(self, keeper: Keeper, waiting: int) -> None:
        """Take over what a keeper has done."""
        self.rows, self.dead_rows, self.commits = keeper.committed, keeper.dead_rows, keeper.commits
        self.waiting = waiting

    def families(self) -> list[Family]:
        name = labels(topic=self._topic)
        return [
            counter("triomq_table_rows_total", "Rows committed by this run.", [(name, self.rows)]),
            counter(
                "triomq_table_dead_rows_total", "Messages put into the table of dead rows.", [(name, self.dead_rows)]
            ),
            counter("triomq_table_commits_total", "Commits of this run.", [(name, self.commits)]),
            gauge("triomq_table_lag", "Messages that are not in the table yet.", [(name, self.waiting)]),
            counter("triomq_table_failures_total", "Attempts that failed at the cluster.", [(name, self.failures)]),
            gauge("triomq_table_up", "1 while the job runs.", one(1)),
        ]

    def page(self, accept: str) -> tuple[str, bytes]:
        """Return content type and text."""
        page = Page(is_openmetrics=wants_openmetrics(accept), on_failure=lambda name, error: None)
        return page.content_type, "".join(page.text(self.families())).encode()


@contextmanager
def served(figures: Figures, port: int) -> Iterator[None]:
    """Serve /metrics at a port; 0: not at all. Raises JobFailed for a port that is taken."""
    if port == 0:
        yield
        return
    try:
        server = ThreadingHTTPServer((HOST, port), _handler(figures.page))
    except OSError as error:
        raise JobFailed(f"--metrics-port {port}: {error.strerror}") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(page: Callable[[str], tuple[str, bytes]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENT_SECONDS

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            kind, body = page(self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Scrapes are not said."""

    return Handler
