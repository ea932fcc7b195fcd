"""The parts of bin/dev/soak-chaos, a fault of each kind that its checks find, and a short run."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chaos_checks import Numbers, OrderedGroup, Stored, Told, body_of, find_losses, missing, read_body
from chaos_cluster import NAME_SERVERS, ROLES, build_clock
from chaos_network import way_in
from chaos_plan import KINDS, MAX_AT_ONCE, SECONDS, WAYS, Fault, draw
from interop_processes import wait_until

PROJECT = Path(__file__).resolve().parents[2]
CLOCK = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"


def plan(seed: int, seconds: float = 600, kinds: tuple[str, ...] = KINDS) -> list[Fault]:
    return draw(seed, tuple(ROLES), NAME_SERVERS, seconds, kinds)


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_a_seed_means_the_same_faults_each_time() -> None:
    assert plan(5) == plan(5)
    assert plan(5) != plan(6)


@pytest.mark.parametrize("seed", range(20))
def test_a_member_has_one_fault_at_a_time_and_at_most_two_members_have_one(seed: int) -> None:
    faults = plan(seed)
    for fault in faults:
        under = [each.member for each in faults if each.at <= fault.at < each.end]
        assert len(under) == len(set(under)) <= MAX_AT_ONCE


@pytest.mark.parametrize("seed", range(20))
def test_faults_begin_in_order_end_in_time_and_come_from_all_kinds(seed: int) -> None:
    faults = plan(seed)
    assert faults == sorted(faults, key=lambda fault: fault.at)
    assert all(fault.end <= 600 for fault in faults)
    assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
    assert {fault.member for fault in faults} == {*ROLES, *NAME_SERVERS}
    for fault in faults:
        low, high = SECONDS[fault.kind]
        assert low <= fault.seconds <= high
        assert (fault.step_seconds != 0) == (fault.kind == "clock")
        assert bool(fault.way) == (fault.kind == "partition")
        assert fault.way in ("", *WAYS, *ROLES, *NAME_SERVERS) and fault.way != fault.member
        assert fault.kind != "disk" or fault.member in ROLES


def test_only_the_kinds_that_were_asked_for_happen() -> None:
    assert {fault.kind for fault in plan(1, kinds=("kill", "clock"))} == {"kill", "clock"}


# -- the checks --------------------------------------------------------------------------------------------------------


def stored(*rows: tuple[str, int, int, str, int]) -> list[Stored]:
    return [Stored(broker, queue, offset, body_of(kind, number)) for broker, queue, offset, kind, number in rows]


WHOLE = stored(("a", 0, 0, "go", 0), ("a", 0, 1, "go", 2), ("b", 1, 0, "go", 1), ("b", 1, 1, "cpp", 0))
TOLD = {"go": [Told(0, 0, "a", 0), Told(1, 0, "b", 1), Told(2, 1, "a", 0)], "cpp": [Told(0, 1)]}


def test_what_is_whole_has_no_problems() -> None:
    assert find_losses(TOLD, WHOLE) == []


def test_a_copy_of_a_message_is_no_problem() -> None:
    assert find_losses(TOLD, [*WHOLE, *stored(("a", 0, 2, "go", 1))]) == []


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"go": [Told(3, 0, "a", 0)]}, "1 of 1 acknowledged messages lost"),
        ({"go": [Told(0, 1, "a", 0)]}, "1 of 1 acknowledged messages lost"),
        ({"go": [Told(0, 0, "b", 0)]}, "1 of 1 acknowledged messages lost"),
        ({"go": [Told(0, 0, "a", 1)]}, "1 of 1 acknowledged messages lost"),
        ({"cpp": [Told(0, 0)]}, "1 of 1 acknowledged messages lost"),
    ],
    ids=["not there", "at another offset", "at another broker", "in another queue", "of a client that knows no queue"],
)
def test_an_acknowledged_message_that_is_not_where_it_was_said_is_found(
    told: dict[str, list[Told]], expected: str
) -> None:
    [problem] = find_losses(told, WHOLE)
    assert expected in problem


def test_a_gap_and_an_offset_that_is_there_twice_are_found() -> None:
    for wrong in (stored(("a", 0, 1, "go", 0)), stored(("a", 0, 0, "go", 0), ("a", 0, 0, "go", 1))):
        [problem] = find_losses({}, wrong)
        assert "not each offset once" in problem


def test_a_message_that_nobody_sent_is_found() -> None:
    [problem] = find_losses({}, [Stored("a", 0, 0, body_of("go", 1)[:-1])])
    assert "nobody sent" in problem


def test_messages_of_one_sender_in_another_order_are_found() -> None:
    told = {"go": [Told(0, 1, "a", 0), Told(2, 0, "a", 0)]}
    [problem] = find_losses(told, stored(("a", 0, 0, "go", 2), ("a", 0, 1, "go", 0)))
    assert "1 messages out of order" in problem


def test_what_a_group_did_not_get_is_found() -> None:
    numbers = Numbers()
    numbers.add(0)
    assert missing(TOLD, {"go": numbers}) == {"go": [1, 2], "cpp": [0]}
    numbers.add(1)
    numbers.add(2)
    assert missing(TOLD, {"go": numbers, "cpp": numbers}) == {}


def test_a_set_of_numbers_has_what_was_added_and_nothing_else() -> None:
    numbers = Numbers()
    for number in (0, 7, 8, 100_000, 8):
        numbers.add(number)
    assert [number for number in range(100_010) if number in numbers] == [0, 7, 8, 100_000]
    assert numbers.count == 4


def test_an_ordered_group_may_get_an_offset_again_but_none_too_early() -> None:
    group = OrderedGroup()
    for offset in (0, 1, 0, 1, 2):
        group.got(("a", 0), offset)
    assert group.problems == []
    group.got(("a", 0), 4)
    assert group.problems == ["ordered group: ('a', 0) at 4 before 3"]


def test_a_body_tells_its_sender_and_number_and_a_changed_one_nothing() -> None:
    for number in (0, 1, 13, 999_999):
        body = body_of("java4", number)
        assert read_body(body) == ("java4", number)
        assert body.endswith(b"\n") and body.count(b"\n") == 1
        assert read_body(body + b"x") is None
    assert read_body(b"\xff") is read_body(b"one two") is read_body(b"one two three") is None


# -- the clock ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 3600, -86_400])
def test_the_wall_clock_of_a_process_steps_and_the_clock_for_waits_does_not(tmp_path: Path, step: int) -> None:
    try:
        library = build_clock(tmp_path)
    except OSError as error:
        pytest.skip(f"a C compiler: {error}")
    shift = tmp_path / "clock"
    shift.write_bytes((step * 1_000_000_000).to_bytes(8, sys.byteorder, signed=True))
    environment = {**os.environ, "LD_PRELOAD": str(library), "TRIOMQ_CLOCK_SHIFT": str(shift)}
    wall, monotonic = time.time(), time.monotonic()
    done = subprocess.run([sys.executable, "-c", CLOCK], env=environment, capture_output=True, text=True, check=True)
    seconds = [float(word) for word in done.stdout.split()]
    for found, before in zip(seconds, (wall + step, wall + step, monotonic), strict=True):
        assert before - 1 <= found <= before + 120


# -- the network -------------------------------------------------------------------------------------------------------

CABLES = """
import subprocess, sys
from chaos_network import Host, enter
enter()
one, two, three = (Host(name, number) for number, name in enumerate(("one", "two", "three"), start=2))

def reach():
    hosts = (one, two, three)
    pairs = [(host, other) for host in hosts for other in hosts if host is not other]
    return "".join("y" if is_open(host, other) else "n" for host, other in pairs)

def is_open(host, other):
    route = subprocess.run(["ip", "route", "get", other.address, "from", host.address, "iif", f"to-{host.name}"],
                           capture_output=True, text=True)
    return route.returncode == 0

print(reach())
one.cut("two", two)
print(reach())
two.cut("out")
print(reach())
two.mend()
print(reach())
three.cut("in")
one.mend()
print(reach())
three.mend()
three.cut("both")
print(reach())
three.mend()
print(reach())
one.cut_way_to(two)
print(reach())
one.mend()
print(reach())
"""


def test_each_partition_drops_its_own_packets_and_ends_alone() -> None:
    """From one to two, one to three, two to one, two to three, three to one, three to two."""
    try:
        words = way_in()
    except OSError as error:
        pytest.skip(str(error))
    paths = [PROJECT / "src", *(PROJECT / "tests" / name for name in ("shared", "interop", "chaos"))]
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}
    done = subprocess.run(
        [*words, "--", sys.executable, "-c", CABLES], env=environment, capture_output=True, text=True, timeout=60
    )
    expected = "yyyyyy nynyyy nynnyy nynyyy ynynyy ynynnn yyyyyy nyyyyy yyyyyy"
    assert done.stdout.split() == expected.split(), done.stderr


# -- a run -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.interop
def test_a_short_run_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    try:
        way_in()
    except OSError as error:
        pytest.skip(str(error))
    directory = tmp_path / "run"
    command = ["bin/dev/soak-chaos", "--minutes", "0.5", "--seed", "9", "--clients", "python,go", "--directory"]
    done = subprocess.run([*command, str(directory)], cwd=PROJECT, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "no problems" in done.stdout
    assert not directory.exists()
    [counts] = [line for line in done.stdout.splitlines() if "messages acknowledged" in line]
    assert all(re.search(rf"\b[1-9]\d* {kind}\b", counts) for kind in KINDS), counts
    assert re.search(r"\b[1-9]\d* messages acknowledged", counts)


@pytest.mark.slow
@pytest.mark.interop
def test_a_run_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    try:
        way_in()
    except OSError as error:
        pytest.skip(str(error))
    directory = tmp_path / "run"
    command = ["bin/dev/soak-chaos", "--minutes", "5", "--clients", "python", "--directory", str(directory)]
    with (tmp_path / "output").open("wb") as output:
        run = subprocess.Popen(command, cwd=PROJECT, stdout=output, stderr=output)
    try:
        wait_until(lambda: "s | faults" in (tmp_path / "output").read_text(), 120, "clients and daemons run")
        assert len(processes_about(directory)) > len(ROLES) + len(NAME_SERVERS)
    finally:
        run.kill()
        run.wait(30)
    wait_until(lambda: not processes_about(directory), 30, "all processes of the run have ended")


def processes_about(directory: Path) -> list[str]:
    """Return the command lines that name this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [text for text in found if str(directory) in text]


def test_a_run_that_is_not_permitted_says_why(tmp_path: Path) -> None:
    """Without `unshare` there are no namespaces."""
    directory = tmp_path / "run"
    modules = [PROJECT / "src", *(PROJECT / "tests" / name for name in ("shared", "interop", "chaos"))]
    environment = {"PATH": str(tmp_path), "PYTHONPATH": ":".join(map(str, modules)), "HOME": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "chaos_main", "--directory", str(directory)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "soak-chaos cannot run here: unshare (util-linux) is not installed\n"
    assert not directory.exists()
