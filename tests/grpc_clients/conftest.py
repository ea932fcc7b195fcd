"""Fixtures of the tests of grpcServerPort."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from grpc_lab import Lab, lab


@pytest.fixture
async def broker() -> AsyncIterator[Lab]:
    """A broker with the topic T of two queues."""
    async with lab() as it:
        yield it
