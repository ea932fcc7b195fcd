"""The mutation driver: the changes that it finds, and its verdicts on a small project of two modules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from areas import AREAS, Area, matches
from mutants import Mutant, find_mutants
from mutate import KILLED, SURVIVED, TIMEOUT, UNREACHED, Laboratory, drawn, is_own_test, judge, summary
from trial import Trial

PROJECT = Path(__file__).resolve().parents[2]
SOURCE = '''"""A text with 1 < 2 and 3."""
LIMIT: int = 1000


def clamp(x: int, log: object) -> int:
    """Return x + 1."""
    if 0 <= x < LIMIT and not x & 1:
        x += 2
        log.info("x is", 7)
    if x > 8:
        log.warning("x is large", x=x)
    note(x, strict=True)
    return min(x, LIMIT)
'''


def changes(source: str) -> list[tuple[int, str, str, str]]:
    return sorted((mutant.line, mutant.kind, mutant.before, mutant.after) for mutant in find_mutants("m.py", source))


def test_every_kind_of_change_is_found_and_texts_and_logging_are_left_alone() -> None:
    assert changes(SOURCE) == [
        (2, "constant", "1000", "0"),
        (7, "arithmetic", "&", "|"),
        (7, "boolean", "and", "or"),
        (7, "boolean.2", "not ", ""),
        (7, "compare", "<=", "<"),
        (7, "compare.2", "<", "<="),
        (7, "constant", "0", "1"),
        (7, "constant.2", "1", "2"),
        (8, "arithmetic", "+=", "-="),
        (8, "constant", "2", "3"),
        (8, "drop", "x += 2", "pass"),
        (12, "drop", "note(x, strict=True)", "pass"),
        (13, "extreme", "min", "max"),
        (13, "return", "return min(x, LIMIT)", "return None"),
    ]


def test_a_change_replaces_one_place_of_one_line() -> None:
    [mutant] = [mutant for mutant in find_mutants("m.py", SOURCE) if mutant.name == "m.py:7:compare.2"]
    before, after = SOURCE.splitlines(), mutant.applied(SOURCE).splitlines()
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [
        ("    if 0 <= x < LIMIT and not x & 1:", "    if 0 <= x <= LIMIT and not x & 1:")
    ]


def test_columns_are_counted_in_characters() -> None:
    source = 'def f(x): return "äöü" if x == 1 else "ß"\n'
    assert "x != 1" in next(m for m in find_mutants("m.py", source) if m.kind == "compare").applied(source)


def test_a_mutant_knows_the_line_python_gives_its_function() -> None:
    source = "import functools\n\n\n@functools.cache\ndef f(x):\n    return x == 1\n"
    namespace: dict[str, object] = {}
    exec(compile(source, "m.py", "exec"), namespace)
    function = namespace["f"]
    lines = {mutant.function_line for mutant in find_mutants("m.py", source)}
    assert lines == {function.__wrapped__.__code__.co_firstlineno}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", AREAS)
def test_every_area_has_sources_and_tests(name: str) -> None:
    assert AREAS[name].source_files(PROJECT)
    assert AREAS[name].test_files(PROJECT)


def test_every_room_has_an_area_with_all_its_files_that_have_mutants() -> None:
    covered = {path for area in AREAS.values() for path in area.source_files(PROJECT)}
    left_out = {path for area in AREAS.values() for path in matches(PROJECT, area.without)}
    rooms = sorted(room.name for room in (PROJECT / "src" / "triomq").iterdir() if (room / "__init__.py").exists())
    assert {"store", "client", "admin"} < set(rooms)
    for room in rooms:
        for file in sorted((PROJECT / room).rglob("*.py")):
            path = str(file.relative_to(PROJECT))
            assert path in covered or path in left_out or not find_mutants(path, file.read_text("utf-8")), path


def test_a_pattern_of_an_area_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"nowhere/\*\.py matches no file"):
        Area(("nowhere/*.py",), ("tests/store/test_*.py",)).source_files(PROJECT)


def test_the_same_seed_draws_the_same_mutants() -> None:
    one, again, other = (drawn(PROJECT, ["frames", "acl"], 20, seed) for seed in (1, 1, 2))
    assert one == again != other
    assert [area for area, _ in one] == ["frames"] * 10 + ["acl"] * 10


def test_the_verdict_follows_from_what_the_tests_did() -> None:
    assert judge(Trial(failed=["t"], exit_code=1)) == (KILLED, "t")
    assert judge(Trial(failed=["t"], is_timeout=True)) == (KILLED, "t")
    assert judge(Trial(is_timeout=True)) == (TIMEOUT, "")
    assert judge(Trial(exit_code=0)) == (SURVIVED, "")
    assert judge(Trial(exit_code=-11))[0] == KILLED
    assert judge(Trial(exit_code=3))[0] == "no verdict"


def test_the_share_counts_what_no_test_reaches_as_survived() -> None:
    counts = {("a", KILLED): 5, ("a", TIMEOUT): 1, ("b", SURVIVED): 1, ("b", UNREACHED): 1, ("b", "no verdict"): 1}
    assert summary(Counter(counts), 7, 3.0).splitlines()[-1] == "seed 7: 75.0% of 8 killed, 3 s"


def test_a_test_is_own_when_its_file_shares_a_word_with_the_source_that_is_not_the_room() -> None:
    path = "store/queues/consume_queue.py"
    assert is_own_test("tests/store/test_store_consume_queue.py::test_a", path)
    assert is_own_test("tests/broker/test_broker_queue_entries.py::test_consume", path)
    assert not is_own_test("tests/store/test_store_flush.py::test_a_consume_queue", path)
    assert not is_own_test("tests/store/test_store_flush.py::test_a", "store/message_store.py")


DURATIONS = {
    "tests/store/test_store_delay.py::own": 5.0,
    "tests/store/test_store_delay.py::elsewhere": 0.2,
    "tests/store/test_store_index.py::focused": 3.0,
    "tests/store/test_store_index.py::quick": 0.1,
    "tests/store/test_store_index.py::slower": 0.2,
    "tests/store/test_store_flush.py::long": 8.0,
}
OTHERS = [("store/index.py", line) for line in range(9)]
ENTERED = {
    "tests/store/test_store_delay.py::own": [("store/delay.py", 9), *OTHERS],
    "tests/store/test_store_delay.py::elsewhere": OTHERS,
    "tests/store/test_store_index.py::focused": [("store/delay.py", 9), ("store/delay.py", 30)],
    "tests/store/test_store_index.py::quick": [("store/delay.py", 9), *OTHERS],
    "tests/store/test_store_index.py::slower": [("store/delay.py", 9), *OTHERS],
    "tests/store/test_store_flush.py::long": [("store/delay.py", 9), *OTHERS],
}


@pytest.mark.parametrize("function_line", [9, 0])
def test_own_tests_come_first_then_those_that_are_about_the_file_up_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function_line: int
) -> None:
    monkeypatch.setattr(Laboratory, "baseline", lambda self, name: Trial(DURATIONS, entered=ENTERED))
    chosen = Laboratory(tmp_path).tests_for("store", Mutant("store/delay.py", 12, "drop", 0, 1, "", "", function_line))
    assert [test.partition("::")[2] for test in chosen] == [
        *(["own"] if function_line else ["own", "elsewhere"]),
        "focused",
        "quick",
        "slower",
    ]


def test_a_table_without_functions_meets_the_shortest_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Laboratory, "baseline", lambda self, name: Trial(DURATIONS, entered=ENTERED))
    chosen = Laboratory(tmp_path).tests_for("store", Mutant("store/table.py", 12, "drop", 0, 1, "", "", 0))
    assert [test.partition("::")[2] for test in chosen] == ["quick", "elsewhere", "slower", "focused", "own"]
    assert Laboratory(tmp_path).tests_for("store", Mutant("store/table.py", 12, "drop", 0, 1, "", "", 9)) == []


SMALL_RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
import mutate
import trial
from areas import AREAS, Area, matches
mutate.GRACE_SECONDS = 1.0
trial.IDLE_SECONDS = 2.0
project = Path({project!r})
AREAS.clear()
AREAS["small"] = Area(("room/*.py",), ("tests/test_*.py",))
laboratory = mutate.Laboratory(project)
for name in {names!r}:
    area, mutant = mutate.named(project, name)
    print(laboratory.try_mutant(area, mutant).verdict, flush=True)
"""


def test_a_small_project_gets_the_right_verdicts(tmp_path: Path) -> None:
    """Each verdict occurs, and the source is unchanged afterwards. No plugin is loaded, which takes longer than these
    tests.
    """
    source = (
        "def held(x):\n    return x < 3\n\n\n"
        "def loose(x):\n    return x < 3\n\n\n"
        "def unused(x):\n    return x < 3\n\n\n"
        "def endless(items):\n    while items:\n        items.pop()\n\n\n"
        "def idle(event):\n    event.set()\n\n\n"
        "def elsewhere(found):\n    found.append(1)\n"
    )
    package = tmp_path / "src" / "triomq"
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "__init__.py").touch()
    (tmp_path / "room" / "rules.py").write_text(source)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "room").symlink_to("../../room")
    (tmp_path / ".tmp").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_rules.py").write_text(
        "import threading\n\n"
        "from triomq.room.rules import elsewhere, endless, held, idle, loose\n\n\n"
        "def test_held():\n    assert [held(2), held(3)] == [True, False]\n\n\n"
        "def test_loose():\n    assert loose(2) or not loose(2)\n\n\n"
        "def test_endless():\n    endless([3])\n\n\n"
        "def test_idle():\n    event = threading.Event()\n    idle(event)\n    event.wait()\n\n\n"
        "def test_elsewhere():\n    found = []\n    thread = threading.Thread(target=elsewhere, args=(found,))\n"
        "    thread.start()\n    thread.join()\n    assert found\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    interop\n    spark\n")
    expected = {
        "room/rules.py:2:compare": KILLED,
        "room/rules.py:2:constant": KILLED,
        "room/rules.py:6:compare": SURVIVED,
        "room/rules.py:10:compare": UNREACHED,
        "room/rules.py:15:drop": TIMEOUT,  # it uses all its CPU time
        "room/rules.py:19:drop": TIMEOUT,  # it uses none
        "room/rules.py:23:drop": KILLED,  # in another thread
    }
    script = SMALL_RUN.format(here=str(Path(__file__).parent), project=str(tmp_path), names=list(expected))
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    verdicts = [line for line in done.stdout.splitlines() if not line.startswith("small: ")]
    assert dict(zip(expected, verdicts, strict=True)) == expected
    assert (tmp_path / "room" / "rules.py").read_text() == source


def test_names_that_are_not_there_are_refused() -> None:
    words = [sys.executable, str(Path(__file__).parent / "mutate.py")]
    for more in (["nowhere"], ["--replay", "store/upkeep/flush.py:1:compare"]):
        done = subprocess.run([*words, *more], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert "no such area" in done.stderr or "no mutant" in done.stderr


def test_a_mutant_is_named_by_file_line_and_kind() -> None:
    assert Mutant("a/b.py", 3, "drop", 0, 1, "", "", 0).name == "a/b.py:3:drop"
