"""The client for asyncio programs: the classes of `triomq`, awaited in an asyncio event loop."""

from triomq.client import values
from triomq.client.app.application import TrioMQ
from triomq.client.app.router import Router
from triomq.client.facades.aio import (
    Admin,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from triomq.client.values import *  # noqa: F403 - values.py lists them

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "Router",
    "SimpleConsumer",
    "TransactionProducer",
    "TrioMQ",
]
__all__ += values.__all__
