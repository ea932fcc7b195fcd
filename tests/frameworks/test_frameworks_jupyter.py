"""Jupyter: cells with await at their top level, in a real kernel, whose loop runs all the time."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from framework_checks import BODIES, LIMIT_SECONDS, Traffic, in_time

pytest.importorskip("ipykernel", reason="ipykernel is not installed: the extra frameworks has it")

SOURCES = Path(__file__).resolve().parents[2] / "src"


class Notebook:
    """A kernel, and what its cells print."""

    def __init__(self, traffic: Traffic, directory: Path) -> None:
        from jupyter_client.manager import KernelManager

        # Over sockets of the file system: a kernel's ports would be chosen before it listens there.
        self.manager = KernelManager(transport="ipc", ip=str(directory / "kernel"))
        self.manager.start_kernel(cwd=str(directory), env={**os.environ, "PYTHONPATH": str(SOURCES)})
        self.client: Any = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT_SECONDS)
        self.run(
            f"""
            import asyncio
            from triomq.aio import ConsumeFromWhere, Message, Producer, PushConsumer
            BODIES = {BODIES!r}
            topic, group = {traffic.topic!r}, {traffic.group!r}
            patient = {{"name_server": {traffic.name_server!r}, "request_timeout_seconds": 60.0}}
            first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            """
        )

    def begin(self, cell: str) -> str:
        """Start a cell, and return its number."""
        return str(self.client.execute(textwrap.dedent(cell), allow_stdin=False))

    def heard(self, cell: str) -> Iterator[tuple[str, Any]]:
        """Return what the kernel publishes about a cell, until it has ended."""
        while True:
            message = self.client.get_iopub_msg(timeout=LIMIT_SECONDS)
            if message["parent_header"].get("msg_id") == cell:
                yield message["msg_type"], message["content"]
                if message["content"].get("execution_state") == "idle":
                    return

    def next_of(self, cell: str, kind: str) -> Any:
        return next(content for found, content in self.heard(cell) if found == kind)

    def end(self, cell: str) -> tuple[str, str]:
        """Wait until the cell has ended. Return what it printed, and the name of its error."""
        said, error = "", ""
        for kind, content in self.heard(cell):
            if kind == "stream":
                said += content["text"]
            elif kind == "error":
                error = content["ename"]
                said += "\n".join(content["traceback"])
        return said, error

    def run(self, cell: str) -> str:
        said, error = self.end(self.begin(cell))
        assert error == "" and "Warning" not in said, said
        return said

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel()
        self.manager.cleanup_resources()


@pytest.fixture
def notebook(traffic: Traffic) -> Iterator[Notebook]:
    # The names of sockets are short.
    with TemporaryDirectory() as directory:
        made = Notebook(traffic, Path(directory))
        try:
            yield made
        finally:
            with in_time():
                made.close()


def test_cells_await_clients_that_stay_open_between_them(traffic: Traffic, notebook: Notebook) -> None:
    notebook.run("producer = await Producer('notebook', send_timeout_seconds=60.0, **patient).__aenter__()")
    notebook.run("results = await producer.send_many([Message(topic, body) for body in BODIES], in_flight=1)")
    notebook.run(
        """
        consumer = PushConsumer(group, consume_from=first, **patient)
        consumer.subscribe(topic)
        await consumer.__aenter__()
        """
    )
    said = notebook.run(
        """
        found, tries = [], 0
        while len(found) < len(BODIES):
            tries += 1
            try:
                async with asyncio.timeout(0.0002 * (tries % 40) * (1 + tries // 40)):
                    message = await consumer.receive()
            except TimeoutError:
                await asyncio.sleep(0.001)
                continue
            message.ack()
            found.append(message.body)
        print(found)
        """
    )
    assert said.strip() == str(BODIES)
    # A cell that is interrupted has taken nothing, and the consumer can be used afterwards. The kernel cancels a cell
    # when its loop next does something, so something happens there.
    notebook.run(
        """
        async def tick():
            while True:
                await asyncio.sleep(0.02)
        ticking = asyncio.ensure_future(tick())
        """
    )
    waiting = notebook.begin("print('waits', flush=True); await consumer.receive()")
    assert notebook.next_of(waiting, "stream")["text"].strip() == "waits"
    notebook.manager.interrupt_kernel()
    assert notebook.end(waiting)[1] in ("KeyboardInterrupt", "CancelledError")
    traffic.send(b"later")
    assert notebook.run("message = await consumer.receive(); print(message.body)").strip() == "b'later'"
    notebook.run("await consumer.__aexit__(None, None, None); await producer.__aexit__(None, None, None)")
    names = "import threading; print([each.name for each in threading.enumerate() if each.name.startswith('triomq')])"
    assert notebook.run(names).strip() == "[]"
    assert traffic.left() == [b"later"]


def test_a_blocking_client_in_a_cell_works_and_says_what_is_better(traffic: Traffic, notebook: Notebook) -> None:
    cell = """
        import triomq.blocking
        with triomq.blocking.Producer('notebook', **patient) as producer:
            print(producer.send(Message(topic, b'from a cell')).status.name)
        """
    said, error = notebook.end(notebook.begin(cell))
    assert error == ""
    assert "SEND_OK" in said
    assert "use triomq.aio.Producer" in said
    assert traffic.left() == [b"from a cell"]


def test_a_kernel_that_is_shut_down_with_open_clients_ends_in_time(traffic: Traffic, notebook: Notebook) -> None:
    traffic.send(*BODIES)
    notebook.run(
        """
        consumer = PushConsumer(group, consume_from=first, **patient)
        consumer.subscribe(topic)
        await consumer.__aenter__()
        message = await consumer.receive()
        """
    )
    with in_time():
        notebook.client.shutdown()
        notebook.manager.finish_shutdown(waittime=LIMIT_SECONDS)
    assert not notebook.manager.is_alive()
    assert traffic.left() == BODIES
