"""The client for plain blocking code: the classes of `triomq`, without `async`."""

from triomq.client import values
from triomq.client.facades.blocking import (
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
    "SimpleConsumer",
    "TransactionProducer",
]
__all__ += values.__all__
