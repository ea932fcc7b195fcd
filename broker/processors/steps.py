"""Walks over the queues of a topic, of which there may be 65,536: other tasks run every few queues."""

from __future__ import annotations

from typing import Final

from triomq.remoting.step_line import next_step

QUEUES_IN_A_STEP: Final = 32


async def end_of_step(queue_id: int) -> None:
    """Let other tasks run if this queue is the last of a step."""
    if queue_id % QUEUES_IN_A_STEP == QUEUES_IN_A_STEP - 1:
        await next_step()
