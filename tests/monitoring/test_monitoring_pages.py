"""The pages of a daemon: what the parts say, and what happens when one of them fails."""

from __future__ import annotations

import json
from collections.abc import Iterator

import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families as read_text

from triomq.monitoring import loop_lag
from triomq.monitoring.exposition import Family, gauge, one
from triomq.monitoring.health import Check
from triomq.monitoring.http_server import Request, Response
from triomq.monitoring.loop_lag import LoopLag
from triomq.monitoring.monitoring import Monitoring
from triomq.monitoring.process import open_descriptors


def page(monitoring: Monitoring, path: str) -> Response:
    return monitoring._answer(Request(path))


def text_of(response: Response) -> str:
    return (response.body if isinstance(response.body, bytes) else b"".join(response.body)).decode()


async def test_what_is_started_is_live_and_not_ready() -> None:
    monitoring = Monitoring("127.0.0.1", 0)
    assert page(monitoring, "/health/live").status == page(monitoring, "/healthz").status == 200
    ready = page(monitoring, "/health/ready")
    assert (ready.status, ready.content_type) == (503, "application/json")
    report = json.loads(text_of(ready))
    assert report["status"] == "not ready"
    assert {"name": "state", "ok": False, "detail": "the start is not finished"} in report["checks"]
    monitoring.state = None
    assert page(monitoring, "/readyz").status == 200
    assert page(monitoring, "/").status == 200
    assert page(monitoring, "/metrics/").status == 404


async def test_every_check_counts_and_one_that_fails_does_not_pass() -> None:
    monitoring = Monitoring("127.0.0.1", 0)
    monitoring.state = None
    monitoring.add_check(lambda: Check("disk", True, "has room"))
    assert page(monitoring, "/health/ready").status == 200

    def broken() -> Check:
        raise ValueError("gone")

    monitoring.add_check(broken)
    ready = page(monitoring, "/health/ready")
    assert ready.status == 503
    assert json.loads(text_of(ready))["checks"][-1] == {
        "name": "broken",
        "ok": False,
        "detail": "the check itself failed: gone",
    }


async def test_a_source_that_fails_costs_its_own_families_only() -> None:
    monitoring = Monitoring("127.0.0.1", 0)

    def broken() -> Iterator[Family]:
        yield gauge("a", "Of a.", one(1))
        raise ValueError("gone")

    monitoring.add(broken)
    monitoring.add(lambda: [gauge("b", "Of b.", one(2))])
    names = {family.name for family in read_text(text_of(page(monitoring, "/metrics")))}
    assert {"a", "b", "process_cpu_seconds", "process_resident_memory_bytes", "python_info"} <= names


async def test_what_scrapes_leave_out_and_take_adds_up() -> None:
    monitoring = Monitoring("127.0.0.1", 0)
    monitoring.add(lambda: [gauge("a", "Of a.", iter([("x", 1), 7]))])
    for scrapes in (1, 2, 3):
        text = text_of(page(monitoring, "/metrics"))
        assert f'triomq_series_dropped_total{{family="a"}} {7 * scrapes}\n' in text
        assert f"triomq_scrapes_total {scrapes - 1}\n" in text


async def test_the_lag_of_the_loop_is_measured_and_decides_readiness(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lag, heard = LoopLag(), list[float]()
    lag.observe(heard.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lag.run)
        await trio.sleep(1.05)
        assert (lag.times.count, lag.check().is_ok) == (10, True)
        assert len(heard) == 10
        nursery.cancel_scope.cancel()
    lag.took(loop_lag.MOST_SECONDS + 0.1)
    assert not lag.check().is_ok
    for _ in range(loop_lag.RECENT):
        lag.took(0.001)
    assert lag.check().is_ok


async def test_the_port_is_open_inside_the_context_and_a_taken_one_is_no_failure() -> None:
    async with Monitoring("127.0.0.1", 0).serving() as first:
        async with Monitoring("127.0.0.1", first.port).serving():
            pass
        stream = await trio.open_tcp_stream("127.0.0.1", first.port)
        async with stream:
            await stream.send_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with trio.fail_after(30):
                assert (await stream.receive_some(15)).startswith(b"HTTP/1.1 200 ")


def test_open_descriptors_are_counted() -> None:
    before = open_descriptors()
    with open("/dev/null"):
        after = open_descriptors()
    assert before is not None
    assert after == before + 1
