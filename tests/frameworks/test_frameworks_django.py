"""Django: views and transactions with a blocking producer, async views with one of asyncio, and rows of the ORM."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from framework_checks import BODIES, LIMIT_SECONDS, Traffic, in_time

from triomq import aio, blocking
from triomq.blocking import Message

pytest.importorskip("django", reason="Django is not installed: the extra frameworks has it")

from django import setup
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path

urlpatterns: list[Any] = []
"""Those of the test that runs."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Make a project in this process, with a table of orders."""
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path_factory.mktemp("django") / "shop.sqlite3")}
    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["testserver"],
        ROOT_URLCONF=__name__,
        DATABASES={"default": database},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGGING_CONFIG=None,
    )
    setup()
    from django.db import connection, models
    from django.test import AsyncClient, Client

    class Order(models.Model):
        body = models.TextField()

        class Meta:
            app_label = "shop"

    with connection.schema_editor() as editor:
        editor.create_model(Order)
    yield SimpleNamespace(Order=Order, Client=Client, AsyncClient=AsyncClient)
    connection.close()


def serve(view: Any) -> None:
    """Have the project serve this view alone, at /orders/BODY."""
    from django.urls import clear_url_caches

    urlpatterns[:] = [path("orders/<str:body>", view)]
    clear_url_caches()


def test_a_view_sends_when_its_transaction_commits(traffic: Traffic, shop: SimpleNamespace) -> None:
    from django.db import transaction

    producer = blocking.Producer[bytes]("shop", **traffic.producing)

    def order(_: HttpRequest, body: str) -> HttpResponse:
        with transaction.atomic():
            made = shop.Order.objects.create(body=body)
            message = Message(traffic.topic, made.body.encode(), keys=str(made.pk))
            transaction.on_commit(lambda: producer.send(message))
            if int(body) % 2:
                raise ConnectionError("the payment was refused")
        return HttpResponse(status=201)

    serve(order)
    shop.Order.objects.all().delete()
    with in_time(), producer:
        for body in BODIES:
            with suppress(ConnectionError):
                assert shop.Client().post(f"/orders/{body.decode()}").status_code == 201
    assert traffic.left() == BODIES[::2]
    assert [row.body.encode() for row in shop.Order.objects.order_by("pk")] == BODIES[::2]


def test_a_transaction_is_not_undone_by_a_send_that_fails_after_it(traffic: Traffic, shop: SimpleNamespace) -> None:
    from django.db import transaction

    shop.Order.objects.all().delete()
    with blocking.Producer[bytes]("shop", **traffic.producing) as producer:
        with pytest.raises(blocking.InvalidMessage), transaction.atomic():
            shop.Order.objects.create(body="17")
            transaction.on_commit(lambda: producer.send(Message(traffic.topic, b"")))
        assert shop.Order.objects.count() == 1


def test_async_views_send_and_receive_with_clients_of_the_loop(traffic: Traffic, shop: SimpleNamespace) -> None:
    async def program() -> list[bytes]:
        async with (
            aio.Producer[bytes]("shop", **traffic.producing) as producer,
            aio.PushConsumer[bytes](traffic.group, **traffic.consuming) as consumer,
        ):
            consumer.subscribe(traffic.topic)

            async def order(_: HttpRequest, body: str) -> HttpResponse:
                made = await shop.Order.objects.acreate(body=body)
                await producer.send(Message(traffic.topic, made.body.encode()))
                return HttpResponse(status=201)

            serve(order)
            client = shop.AsyncClient()
            found = []
            for body in BODIES:
                assert (await client.post(f"/orders/{body.decode()}")).status_code == 201
                message = await consumer.receive()
                message.ack()
                found.append(message.body)
            return found

    with in_time():
        assert asyncio.run(program()) == BODIES
    assert traffic.left() == []


def test_a_plain_view_under_asgi_sends_with_a_blocking_producer(traffic: Traffic, shop: SimpleNamespace) -> None:
    """Django runs it in a thread beside the loop, where the producer may be opened, too."""
    opened: list[blocking.Producer[bytes]] = []

    def order(_: HttpRequest, body: str) -> HttpResponse:
        if not opened:
            opened.append(blocking.Producer[bytes]("shop", **traffic.producing).start())
        return HttpResponse(opened[0].send(Message(traffic.topic, body.encode())).message_id, status=201)

    async def program() -> list[int]:
        client = shop.AsyncClient()
        return [(await client.post(f"/orders/{body.decode()}")).status_code for body in BODIES]

    serve(order)
    assert asyncio.run(program()) == [201] * len(BODIES)
    with in_time():
        opened[0].close()
    assert traffic.left() == BODIES


def test_rows_of_a_query_are_sent_in_its_order(traffic: Traffic, shop: SimpleNamespace) -> None:
    """Inside of a transaction only its own connection, that of the calling thread, sees the rows."""
    from django.db import transaction

    def message(order: Any) -> Message:
        return Message(traffic.topic, order.body.encode(), keys=str(order.pk))

    shop.Order.objects.all().delete()
    with blocking.Producer[bytes]("shop", **traffic.producing) as producer, transaction.atomic():
        shop.Order.objects.bulk_create([shop.Order(body=body.decode()) for body in BODIES])
        orders = shop.Order.objects.order_by("pk").iterator()
        results = producer.send_many(map(message, orders), in_flight=1)
    assert [result.queue_offset for result in results] == list(range(len(BODIES)))
    assert traffic.left() == BODIES


def test_a_listener_uses_the_database_in_its_threads(traffic: Traffic, shop: SimpleNamespace) -> None:
    from django.db import connection

    shop.Order.objects.all().delete()
    stored: SimpleQueue[bytes] = SimpleQueue()

    def listen(message: blocking.MessageExt[bytes]) -> None:
        shop.Order.objects.create(body=message.body.decode())
        connection.close()
        stored.put(message.body)

    traffic.send(*BODIES)
    with in_time(), blocking.PushConsumer(traffic.group, **traffic.consuming) as consumer:
        consumer.subscribe(traffic.topic)
        consumer.listen(listen)
        assert Counter(stored.get(timeout=LIMIT_SECONDS) for _ in BODIES) == Counter(BODIES)
    assert Counter(row.body.encode() for row in shop.Order.objects.all()) == Counter(BODIES)
    assert traffic.left() == []
