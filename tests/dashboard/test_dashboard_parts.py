"""The parts of pages: lists, charts, history, texts, and the port before anybody has come."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing
from free_ports import free_port
from hypothesis import given
from hypothesis import strategies as st

from triomq.dashboard import charts, history, render
from triomq.dashboard.door import Door
from triomq.dashboard.history import History, Ring, Series
from triomq.dashboard.listing import MOST_FIELDS, ROWS, STEP_NAMES, STEP_ROWS, Page, fields_of, listed, number_of
from triomq.dashboard.one_time_token import TokenHolder
from triomq.dashboard.render import bytes_text, duration_text, moment_text, number_text, rate_text
from triomq.dashboard.sessions import Viewer
from triomq.dashboard.texts import CHINESE
from triomq.dashboard.views import Ask, Program, View
from triomq.dashboard.visit import Visit
from triomq.monitoring.http_server import Request

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]


def run(steps: Generator[None, None, T]) -> tuple[T, int]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def rows_of(names: list[str], made: list[str] | None = None, **query: str) -> tuple[Page, int]:
    def make(name: str) -> tuple[str, int] | None:
        if made is not None:
            made.append(name)
        return None if name == "gone" else (name, len(name))

    keys: dict[str, Any] = {"name": lambda row: row[0], "length": lambda row: row[1]}
    return run(listed(names, query, make, keys, default="name"))


def test_a_list_by_name_makes_only_the_rows_of_its_page() -> None:
    names = [f"t{number:05}" for number in range(5000)]
    made: list[str] = []
    page, _ = rows_of(names, made, page="2")
    assert [row[0] for row in page.rows] == names[ROWS : 2 * ROWS] == made
    assert (page.total, page.number, page.pages) == (5000, 2, 100)


def test_a_list_by_a_figure_is_made_in_steps() -> None:
    page, steps = rows_of([f"{'x' * (number % 7)}{number}" for number in range(1000)], sort="length")
    assert steps == 1000 // STEP_ROWS
    lengths = [row[1] for row in page.rows]
    assert lengths == sorted(lengths, reverse=True)


def test_a_page_is_made_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and charts are steps of their own: between two of them requests of clients run."""
    monkeypatch.setattr(render, "_STEP_SECONDS", 0.0)
    series = [Series(f"S{number}", "", lambda: 1, is_counter=False) for number in range(20)]
    view = View("/", "Overview", "clusters.html", lambda _: iter(()))
    renderer = render.Renderer(Program("NameServer", "9876", "1.0", [view], History(series)))
    broker = {"cluster": "c", "name": "n", "id": 0, "address": "a", "heard_seconds": 1.5}
    data = {"brokers": [broker] * 50, "topics": 1, "routes": 2}
    steps = renderer.page(view, data, Visit(Request("/"), "en"))
    page, count = run(steps)
    assert count >= 50 + 2 * 20
    assert (page.count("<figure"), page.count('<tr><th scope="row">n<')) == (40, 50)


def test_a_search_looks_at_names_in_steps() -> None:
    _, steps = rows_of([f"t{number}" for number in range(4 * STEP_NAMES)], q="nothing has this")
    assert steps == 4


def test_a_list_searches_leaves_out_what_is_gone_and_never_leaves_its_pages() -> None:
    page, _ = rows_of(["Orders", "orders-2", "gone", "other"], q=" ORD ", page="99", dir="desc")
    assert [row[0] for row in page.rows] == ["orders-2", "Orders"]
    assert (page.number, page.pages, page.total) == (1, 1, 2)
    assert rows_of(["gone"])[0].rows == []
    assert rows_of(["a"], sort="nonsense", page="-5")[0].order == "name"


def test_a_query_is_bounded() -> None:
    assert fields_of("a=1&a=2&b=%3Cx%3E&c=") == {"a": "2", "b": "<x>", "c": ""}
    assert fields_of("&".join(f"f{number}=1" for number in range(MOST_FIELDS + 1))) == {}
    assert fields_of("a=" + "x" * 513) == {}


def test_what_is_ticked_in_a_form_is_one_text() -> None:
    assert fields_of("a=1&box=x&b=2&box=y", list_field="box") == {"a": "1", "b": "2", "box": "x y"}


def test_a_list_begins_with_its_first_page_and_may_go_down() -> None:
    names = [f"t{number:03}" for number in range(3 * ROWS)]
    assert rows_of(names)[0].number == 1
    page, _ = rows_of(names, dir="desc")
    assert [row[0] for row in page.rows] == names[: -ROWS - 1 : -1]


@given(st.text(max_size=30))
def test_a_number_of_a_query_is_within_its_bounds(text: str) -> None:
    assert 1 <= number_of({"n": text}, "n", 5, 1, 9) <= 9


def test_a_number_of_a_query() -> None:
    found = [number_of({"n": text}, "n", 5, 1, 9) for text in ("3", "100", "-4", "x", "", "٣", "9" * 5000)]
    assert found == [3, 9, 1, 5, 5, 5, 5]


@given(st.lists(st.floats(0, 1e12), max_size=1500))
def test_a_chart_stays_in_its_frame_and_keeps_the_peak(points: list[float]) -> None:
    drawn = charts.line(points)
    places = [tuple(map(float, place.split(","))) for place in str(drawn["line"]).split()]
    assert len(places) <= charts.MOST_POINTS
    assert all(0 <= x <= charts.WIDTH and -0.1 <= y <= charts.HEIGHT for x, y in places)
    assert max(charts.thinned(points), default=0) == max(points, default=0)
    assert float(str(drawn["top"])) >= max(points, default=0) * 0.999999


def test_the_axis_ends_at_a_round_number() -> None:
    assert [charts.ceiling(top) for top in (0, 0.3, 1, 11, 49, 51)] == [1, 0.5, 1, 20, 50, 100]


def test_a_ring_has_the_newest_points_oldest_first() -> None:
    ring = Ring(3, 1)
    assert ring.column(0) == []
    for number in range(5):
        ring.add([number])
    assert ring.column(0) == [2, 3, 4]


async def test_the_history_is_what_counters_grew_by_a_second(autojump_clock: trio.testing.MockClock) -> None:
    counted = 100.0
    past = History([Series("a", "/s", lambda: counted), Series("b", "", lambda: 7, is_counter=False)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(past.run)
        await trio.sleep(1)
        for _ in range(6):
            counted += 50
            await trio.sleep(history.SAMPLE_SECONDS)
        nursery.cancel_scope.cancel()
    assert past.hour.column(0) == [5.0] * 6
    assert (past.day.column(0), past.day.column(1)) == ([5.0], [7.0])
    counted = 0
    past.sample()
    assert past.hour.column(0)[-1] == 0.0


def test_a_point_of_the_day_is_what_its_own_minute_brought() -> None:
    counted = 0.0
    past = History([Series("a", "/s", lambda: counted)])
    for grown in (60, 600, 0):
        for _ in range(history.SAMPLES_OF_A_DAY_POINT):
            counted += grown / history.SAMPLES_OF_A_DAY_POINT
            past.sample()
    assert past.day.column(0) == pytest.approx([1.0, 10.0, 0.0])


def test_who_holds_the_token_sees_everything() -> None:
    holder = TokenHolder()
    assert (holder.is_admin, holder.may_read("Orders"), holder.may_read_group("Buyers")) == (True, True, True)


class Guest:
    """May read what begins with `own`."""

    name = "guest"
    stamp = ""
    is_admin = False

    def may_read(self, topic: str) -> bool:
        return topic.startswith("own")

    def may_read_group(self, group: str) -> bool:
        return group.startswith("own")


@pytest.mark.parametrize(("viewer", "is_bounded"), [(None, False), (TokenHolder(), False), (Guest(), True)])
def test_who_is_no_administrator_reads_what_the_account_permits(viewer: Viewer | None, is_bounded: bool) -> None:
    """Without accounts everybody reads everything."""
    ask = Ask(viewer=viewer)
    assert (ask.may_read("own"), ask.may_read_group("own")) == (True, True)
    assert (ask.sees_all, ask.may_read("other"), ask.may_read_group("other")) == (not is_bounded,) * 3


def test_figures_are_readable() -> None:
    assert [bytes_text(n) for n in (None, 0, 1023, 1536, 5 * 1024**4)] == ["–", "0 B", "1023 B", "1.5 KiB", "5.0 TiB"]  # noqa: RUF001
    assert bytes_text(3 * 1024**5) == "3.0 PiB"
    assert [rate_text(n) for n in (0, 0.254, 1.0, 3.14, 1500.4)] == ["0", "0.25", "1", "3.1", "1\u202f500"]
    assert [duration_text(n) for n in (0, 0.31, 61, 3600, 90061)] == ["0 s", "0.3 s", "1 min 1 s", "1 h", "1 d 1 h"]
    assert moment_text(1_600_000_000_123) == "2020-09-13 12:26:40.123"
    assert [moment_text(ms) for ms in (-1, 0, 10**30)] == ["–"] * 3  # noqa: RUF001
    assert number_text(-1234567) == "-1\u202f234\u202f567"


def test_every_text_of_a_page_is_there_in_chinese() -> None:
    templates = "".join(path.read_text() for path in sorted((ROOT / "dashboard/templates").glob("*.html")))
    used = {text for _, text in re.findall(r"""\bt\((["'])(.*?)\1\)""", templates)}
    for file in ("broker/views/program.py", "broker/views/dashboard.py", "namesrv/views.py"):
        source = (ROOT / file).read_text()
        used |= set(re.findall(r'View\("[^"]*", "([^"]+)"', source)) | set(re.findall(r'Series\("([^"]+)"', source))
    for path in sorted((ROOT / "broker/views").glob("*_actions.py")):
        source = path.read_text()
        for pattern in (r'(?:View|Action)\(\s*[\w"/-]+,\s*"([^"]+)"', r'(?:Fact|Row|Outcome)\("([^"]+)"'):
            used |= set(re.findall(pattern, source))
        used |= set(re.findall(r'^[A-Z_]+: Final = "([A-Z][^"]+\.)"', source, re.MULTILINE))
        used |= set(re.findall(r'warning="([^"]+)"', source)) | set(re.findall(r'": "([A-Z][a-z ]+)"', source))
    used |= set(
        re.findall(r'^[A-Z_]+: Final = "([A-Z][^"]+\.)"', (ROOT / "dashboard/acting.py").read_text(), re.MULTILINE)
    )
    assert len(used) > 80
    assert used - CHINESE.keys() == set()


async def test_nothing_of_the_pages_is_loaded_before_somebody_comes() -> None:
    program = (
        "import sys, triomq.dashboard.exposure, triomq.broker.views.dashboard, triomq.namesrv.views;"
        "print([n for n in ('jinja2', 'h11', 'triomq.dashboard.site') if n in sys.modules])"
    )
    result = await trio.run_process(
        [sys.executable, "-c", program], capture_stdout=True, env={"PYTHONPATH": str(ROOT / "src")}
    )
    assert result.stdout == b"[]\n"


async def test_a_dashboard_that_cannot_be_loaded_costs_its_port_only() -> None:
    def load(port: int) -> Any:
        raise ImportError("no templates here")

    door = Door("127.0.0.1", free_port(), load)
    assert door.open()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.run)
            await (await trio.open_tcp_stream("127.0.0.1", door.port)).aclose()


async def test_a_taken_port_is_no_failure() -> None:
    first = Door("127.0.0.1", free_port(), lambda port: lambda listening: None)  # type: ignore[arg-type,return-value]
    assert first.open()
    assert first._socket is not None
    with first._socket:
        assert not Door("127.0.0.1", first.port, first._load).open()
