"""The scheduler, driven by scripts: scheduling/*.txt have what happens, and what the scheduler then says."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from triomq.remoting.scheduling.policy import BACKGROUND, BULK, INTERACTIVE
from triomq.remoting.scheduling.scheduler import Client, Pass, Scheduler

SCRIPTS = sorted((Path(__file__).parent / "scheduling").glob("*.txt"))
LINE = re.compile(r" +(?P<at>[\d.]+) +(?P<event>\S.*?)(?: +-> (?P<says>.*))?")


class Named:
    """A connection with requests that wait."""

    def __init__(self, name: str) -> None:
        self.name = name

    def work(self) -> bool:
        raise AssertionError("the script says what happens")


class Script:
    """Does the events of a script, one after another."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.scheduler.ask(lambda: self.is_asked)
        self.steps = Pass(self.scheduler)
        self.clients: defaultdict[str, Client] = defaultdict(Client)
        self.is_asked = False
        self.is_slice = False
        self.now = 0.0
        self.events: list[tuple[str, Callable[..., str | None]]] = [
            ("turn", self.turn),
            ("end", self.end),
            ("slice", self.slice),
            ("next", self.next),
            ("more", self.more),
            ("send", lambda: setattr(self.scheduler, "has_sent", True)),
            ("pull", self.pull),
            (r"answers (\d+) KiB", lambda size: self.scheduler.handled(int(size) * 1024)),
            ("bulk begins", lambda: self.scheduler.bulk_began(self.now)),
            ("bulk ends", lambda: self.scheduler.bulk_ended(self.now)),
            (r"may (\w+) be read", self.may_read),
            (r"(\w+) is read(?: (\d+) times)?", self.is_read),
            (r"(\w+) brings (\d+) requests", lambda name, count: self.read(name, int(count))),
            (r"(\w+) takes ([\d.]+) ms", lambda name, ms: self.read(name, seconds=float(ms) / 1000)),
            (r"(\w+) has more", lambda name: self.read(name, has_more=True)),
            (r"(\w+) asks", self.asks),
            (r"(\w+) waits", lambda name: self.scheduler.waits(Named(name))),
            (r"pass|(\d+) passes", self.next_pass),
            ("step", lambda: "yes" if self.steps.may_step(self.now) else "no"),
            ("called step", self.called_step),
        ]

    def do(self, milliseconds: str, event: str) -> str | None:
        """Return what the scheduler says."""
        self.now = float(milliseconds) / 1000
        for pattern, act in self.events:
            if found := re.fullmatch(pattern, event):
                return act(*found.groups())
        raise ValueError(f"no such event: {event}")

    def turn(self) -> None:
        self.scheduler.turn_began(self.now)

    def end(self) -> str:
        self.is_slice = False
        return f"lasted {1000 * self.scheduler.turn_ended(self.now, has_begun=True):.1f}"

    def slice(self) -> None:
        self.is_slice = True
        self.scheduler.slice_began(self.now)

    def next(self) -> str:
        following = self.scheduler.next_of_slice()
        return following.name if isinstance(following, Named) else "nobody"

    def more(self) -> str:
        ask = self.scheduler.slice_may_continue if self.is_slice else self.scheduler.may_continue
        return "yes" if ask(self.now) else "no"

    def pull(self) -> str:
        return "handled" if self.scheduler.may_handle_bulk(self.now) else "waits"

    def may_read(self, name: str) -> str:
        return "now" if self.scheduler.may_read(self.clients[name], self.now) else "later"

    def is_read(self, name: str, times: str | None) -> str:
        return [self.read(name) for _ in range(int(times or 1))][-1]

    def read(self, name: str, requests: int = 1, seconds: float = 0.0, *, has_more: bool = False) -> str:
        client = self.clients[name]
        client.was_read(requests, seconds, has_more=has_more)
        self.scheduler.was_read(client, self.now)
        self.is_asked = False
        return "interactive" if client.is_interactive else "bulk"

    def asks(self, name: str) -> None:
        assert self.clients[name].is_interactive
        self.is_asked = True

    def next_pass(self, count: str | None) -> str:
        calls = 0
        for _ in range(int(count or 1)):
            self.steps.ended()
            calls = self.steps.began()
        return f"calls {calls}"

    def called_step(self) -> str:
        if self.steps.may_step(self.now):
            self.steps.ran()
            return "yes"
        self.steps.sent_back()
        return "no"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_scheduler_does_what_its_scripts_say(path: Path) -> None:
    script, events = Script(), 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith(" "):
            continue
        found = LINE.fullmatch(line)
        assert found is not None, f"{path.name}:{number}: {line}"
        assert script.do(found["at"], found["event"]) == found["says"], f"{path.name}:{number}: {line}"
        events += 1
    assert events > 20


def test_the_classes_of_work_are_bounded_in_their_order() -> None:
    """A turn is longer than a slice, a slice longer than a pass; contention gives nobody more."""
    assert INTERACTIVE.quota_seconds > BULK.quota_seconds > BACKGROUND.quota_seconds
    assert INTERACTIVE.share > BULK.share > BACKGROUND.share
    for work in (INTERACTIVE, BULK, BACKGROUND):
        assert 0 <= work.least_seconds <= work.quota_seconds, work.name
        assert 0 <= work.contended_bytes <= work.quota_bytes, work.name
