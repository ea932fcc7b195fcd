"""The public names of the client, which `triomq` exports: what a program needs to send, consume and administer.

`triomq.aio` and `triomq.blocking` have the same classes for asyncio and for blocking programs, and the same values.
"""

from triomq.client import values
from triomq.client.administer.admin import Admin
from triomq.client.app.application import TrioMQ
from triomq.client.app.router import Router
from triomq.client.consume.delivery import Delivery
from triomq.client.consume.lite_pull_consumer import LitePullConsumer
from triomq.client.consume.pull_consumer import PullConsumer
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.consume.simple_consumer import SimpleConsumer
from triomq.client.instance.client import Client
from triomq.client.produce.producer import Producer
from triomq.client.produce.trace import TraceSender
from triomq.client.produce.transaction_producer import TransactionProducer
from triomq.client.values import *  # noqa: F403 - values.py lists them

__all__ = [
    "Admin",
    "Client",
    "Delivery",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "Router",
    "SimpleConsumer",
    "TraceSender",
    "TransactionProducer",
    "TrioMQ",
]
__all__ += values.__all__
