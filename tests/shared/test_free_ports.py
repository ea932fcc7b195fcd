"""The ports that tests give to daemons."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path

import free_ports
import pytest
from free_ports import BLOCK_PORTS, BLOCKS, FIRST_PORT, LAST_PORT, free_port

HERE = Path(__file__).parent
DRAW_ONE = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import free_ports
print(free_ports._claim(int(sys.argv[1])), flush=True)
sys.stdin.read()
"""


class Dice(random.Random):
    """Returns these numbers in turn."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.numbers = list(numbers)

    def randrange(self, *_: object) -> int:
        return self.numbers.pop(0)


def unused_blocks(count: int) -> list[int]:
    """Find free blocks by drawing them. They belong to this process until they are given back."""
    blocks = [(free_port() - FIRST_PORT) // BLOCK_PORTS for _ in range(count)]
    free_ports._own_blocks.difference_update(blocks)
    return blocks


def test_a_port_is_in_the_middle_of_a_block_of_its_own() -> None:
    ports = [free_port() for _ in range(20)]
    assert len({(port - FIRST_PORT) // BLOCK_PORTS for port in ports}) == 20
    assert {(port - FIRST_PORT) % BLOCK_PORTS for port in ports} == {2}
    assert all(FIRST_PORT <= port < LAST_PORT for port in ports)


def test_a_block_is_not_handed_out_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = unused_blocks(2)
    monkeypatch.setattr(free_ports, "random", Dice(one, one, other))
    assert free_port() == FIRST_PORT + one * BLOCK_PORTS + 2
    assert free_port() == FIRST_PORT + other * BLOCK_PORTS + 2


@pytest.mark.parametrize("place", range(BLOCK_PORTS))
def test_a_block_in_which_somebody_listens_is_drawn_again(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    one, other = unused_blocks(2)
    monkeypatch.setattr(free_ports, "random", Dice(one, other))
    with socket.create_server(("127.0.0.1", FIRST_PORT + one * BLOCK_PORTS + place)):
        assert free_port() == FIRST_PORT + other * BLOCK_PORTS + 2


def test_a_block_of_another_process_is_not_handed_out_until_that_ends() -> None:
    [block] = unused_blocks(1)
    assert claim_elsewhere(block) == "False", "this process holds its lock"
    free = next(candidate for candidate in range(BLOCKS) if claim_elsewhere(candidate) == "True")
    words = [sys.executable, "-c", DRAW_ONE, str(free)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "True"
        assert not free_ports._claim(free)
        holder.kill()
        holder.wait(30)
    assert free_ports._claim(free)


def claim_elsewhere(block: int) -> str:
    """Return what a new process sees that claims the block and ends."""
    words = [sys.executable, "-c", DRAW_ONE, str(block)]
    return subprocess.run(words, input="", capture_output=True, text=True, timeout=30, check=True).stdout.strip()
