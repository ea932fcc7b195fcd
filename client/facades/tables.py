"""What both facades have: class by class, the methods of the trio client that they pass on.

`aio` and `blocking` add how to open, how to wait, and how to hand out messages. A method that is missing here is
missing in both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

import trio

from triomq.client.administer.admin import Admin
from triomq.client.consume.lite_pull_consumer import LitePullConsumer
from triomq.client.consume.pull_consumer import PullConsumer
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.consume.simple_consumer import SimpleConsumer
from triomq.client.core.type_variables import T
from triomq.client.facades import sending
from triomq.client.facades.ahead import Ahead
from triomq.client.facades.elsewhere import ListenerCalls
from triomq.client.facades.methods import Facade, awaiting, constructs, direct, here, plain, waiting
from triomq.client.facades.portal import Portal
from triomq.client.instance.handlers import check_takes
from triomq.client.produce.producer import Producer
from triomq.client.produce.transaction_producer import Check, Execute, TransactionProducer
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue

if TYPE_CHECKING:
    from datetime import timedelta

    from triomq.protocol.message import Message


class ProducerFacade(Facade, Generic[T]):
    """`triomq.Producer`."""

    @constructs(Producer[T])
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(Producer(*args, **options))

    send = here(Producer.send, sending.send, sending.selects)
    send_oneway = here(Producer.send_oneway, sending.send_oneway, sending.selects)
    send_batch = here(Producer.send_batch, sending.send_batch)
    send_many = here(Producer.send_many, sending.send_many)
    request = waiting(Producer.request)
    queues = waiting(Producer.queues)

    # What mentions T is declared for type checkers, here and in both facades: pyright leaves T open in a table.
    if TYPE_CHECKING:

        def message(
            self,
            topic: str,
            value: T,
            *,
            tags: str | None = None,
            keys: str | Iterable[str] | None = None,
            properties: Mapping[str, str] | None = None,
            delay_level: int = 0,
            delay: timedelta | None = None,
        ) -> Message:
            """Return a message whose body the serializer makes of `value`, to be sent in any way: in a batch, in a
            transaction, later. Raises InvalidMessage for a value that it cannot write, or of another type than its own,
            and what `Message` raises."""

    else:
        message = direct(Producer.message)
        send_value = here(Producer.send_value, sending.send_value)
        request_value = waiting(Producer.request_value)
        reply_value = here(Producer.reply_value, sending.reply_value)


class TransactionProducerFacade(ProducerFacade[T]):
    """`triomq.TransactionProducer`."""

    @constructs(TransactionProducer[T])
    def __init__(self, group: str, execute: Execute, check: Check, **options: Any) -> None:
        check_takes(execute, "message", "argument")
        check_takes(check, "message")
        core = TransactionProducer(group, self._callback(execute), self._callback(check), **options)
        Facade.__init__(self, core)

    send_in_transaction = waiting(TransactionProducer.send_in_transaction)


class PushConsumerFacade(Facade, Generic[T]):
    """`triomq.PushConsumer`. Any task or thread may settle a message."""

    _core: PushConsumer[T]

    @constructs(PushConsumer[T])
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(PushConsumer(*args, **options))
        self._loop_here = self._new_loop()
        self._ahead: Ahead[T] = Ahead(self._core._unsettled)

    @abstractmethod
    def _new_loop(self) -> Any:
        """Return a loop over the messages."""

    subscribe = plain(PushConsumer.subscribe)
    unsubscribe = plain(PushConsumer.unsubscribe)
    resume = plain(PushConsumer.resume)
    wait_assigned = waiting(PushConsumer.wait_assigned)

    def listen(self, handler: Callable[[MessageExt[T]], Any]) -> None:
        """Have `handler(message)` called for every message: an `async def` in the asyncio loop that opened this
        consumer, a plain function in a thread. See `triomq.PushConsumer.listen`."""
        check_takes(handler, "message")
        self._call(self._core._listen, self._callback(handler), self._elsewhere(handler))

    def _elsewhere(self, handler: Callable[[MessageExt[T]], Any]) -> ListenerCalls | None:
        """Return how the handler is called in its own threads; None when it runs in the portal's."""
        away = self._away(handler)
        if away is None:
            return None
        return ListenerCalls(self._core, handler, home=self._put_home, away=away, awaiting=self._callback(awaiting))

    def listen_batch(self, handler: Callable[[Sequence[MessageExt[T]]], Any]) -> None:
        """Have `handler` called with up to `rules.batch_max_size` messages of one queue, which succeed or fail
        together; otherwise like `listen`."""
        check_takes(handler, "messages")
        self._call(self._core.listen_batch, self._callback(handler))

    def suspend(self) -> None:
        """Pull and consume nothing until `resume`; the queues stay with this member."""

        def suspend() -> None:
            self._core.suspend()
            self._ahead.give_back()

        self._call(suspend)

    def _opening(self, portal: Portal) -> None:
        super()._opening(portal)
        self._loop_here = self._new_loop()
        self._core._unsettled.post = portal.put

    def _closing(self) -> None:
        with suppress(trio.RunFinishedError):
            self._put_home(self._core._begin_to_close)
        self._ahead.clear()
        for left in self._core._unsettled.held():
            left.span.leave()

    def ack(self) -> None:
        """Settle the one message that was received and is not settled as consumed. A loop that asks for the next one
        does so with its last. Raises NotSettled when there is no such message, or more than one: then `message.ack()`
        says which."""
        self._core._unsettled.only().ack()

    def retry_later(self, delay_level: int = 0) -> None:
        """Have the one message that was received and is not settled delivered again later; see `RetryLater`. Raises
        what `ack` raises."""
        self._core._unsettled.only().retry_later(delay_level)

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues this member holds now, retry topics included; none while it is closed."""
        return [] if self._portal is None else self._portal.call(lambda: self._core.assigned_queues)


class PullConsumerFacade(Facade):
    """`triomq.PullConsumer`."""

    @constructs(PullConsumer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(PullConsumer(*args, **options))

    queues = waiting(PullConsumer.queues)
    pull = waiting(PullConsumer.pull)
    min_offset = waiting(PullConsumer.min_offset)
    max_offset = waiting(PullConsumer.max_offset)
    search_offset = waiting(PullConsumer.search_offset)
    earliest_store_time_ms = waiting(PullConsumer.earliest_store_time_ms)
    committed_offset = waiting(PullConsumer.committed_offset)
    update_offset = plain(PullConsumer.update_offset)
    commit = waiting(PullConsumer.commit)
    send_back = waiting(PullConsumer.send_back)


class LitePullConsumerFacade(Facade, Generic[T]):
    """`triomq.LitePullConsumer`."""

    _core: LitePullConsumer[T]

    @constructs(LitePullConsumer[T])
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(LitePullConsumer(*args, **options))

    subscribe = plain(LitePullConsumer.subscribe)
    unsubscribe = plain(LitePullConsumer.unsubscribe)
    assign = waiting(LitePullConsumer.assign)
    queues = waiting(LitePullConsumer.queues)
    pause = plain(LitePullConsumer.pause)
    resume = plain(LitePullConsumer.resume)
    seek = waiting(LitePullConsumer.seek)
    seek_to_begin = waiting(LitePullConsumer.seek_to_begin)
    seek_to_end = waiting(LitePullConsumer.seek_to_end)
    offset_for_time = waiting(LitePullConsumer.offset_for_time)
    position = waiting(LitePullConsumer.position)
    committed = waiting(LitePullConsumer.committed)
    commit = waiting(LitePullConsumer.commit)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues read now."""
        return self._call(lambda: self._core.assignment)


class SimpleConsumerFacade(Facade):
    """`triomq.SimpleConsumer`."""

    @constructs(SimpleConsumer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(SimpleConsumer(*args, **options))

    subscribe = plain(SimpleConsumer.subscribe)
    unsubscribe = plain(SimpleConsumer.unsubscribe)
    receive = waiting(SimpleConsumer.receive)
    ack = waiting(SimpleConsumer.ack)
    extend = waiting(SimpleConsumer.extend)


class AdminFacade(Facade):
    """`triomq.Admin`."""

    @constructs(Admin)
    def __init__(self, **options: Any) -> None:
        super().__init__(Admin(**options))

    cluster_info = waiting(Admin.cluster_info)
    clusters = waiting(Admin.clusters)
    masters = waiting(Admin.masters)
    addresses = waiting(Admin.addresses)
    route = waiting(Admin.route)

    create_topic = waiting(Admin.create_topic)
    put_topic_config = waiting(Admin.put_topic_config)
    delete_topic = waiting(Admin.delete_topic)
    delete_topic_at = waiting(Admin.delete_topic_at)
    delete_topic_at_name_servers = waiting(Admin.delete_topic_at_name_servers)
    topics = waiting(Admin.topics)
    system_topics = waiting(Admin.system_topics)
    unit_topics = waiting(Admin.unit_topics)
    unit_subscribed_topics = waiting(Admin.unit_subscribed_topics)
    unit_subscribed_non_unit_topics = waiting(Admin.unit_subscribed_non_unit_topics)
    topic_clusters = waiting(Admin.topic_clusters)
    topic_configs = waiting(Admin.topic_configs)
    topic_config = waiting(Admin.topic_config)
    topic_stats = waiting(Admin.topic_stats)
    topic_stats_at = waiting(Admin.topic_stats_at)
    topic_queues = waiting(Admin.topic_queues)
    groups_of_topic = waiting(Admin.groups_of_topic)
    clean_unused_topics = waiting(Admin.clean_unused_topics)
    clean_expired_consume_queues = waiting(Admin.clean_expired_consume_queues)
    order_conf = waiting(Admin.order_conf)
    put_order_conf = waiting(Admin.put_order_conf)
    delete_order_conf = waiting(Admin.delete_order_conf)
    get_kv = waiting(Admin.get_kv)
    put_kv = waiting(Admin.put_kv)
    delete_kv = waiting(Admin.delete_kv)
    kv_table = waiting(Admin.kv_table)

    create_group = waiting(Admin.create_group)
    delete_group = waiting(Admin.delete_group)
    group_configs = waiting(Admin.group_configs)
    group_config = waiting(Admin.group_config)
    consume_stats = waiting(Admin.consume_stats)
    consume_stats_at = waiting(Admin.consume_stats_at)
    broker_consume_stats = waiting(Admin.broker_consume_stats)
    consume_time_span = waiting(Admin.consume_time_span)
    consumer_connection = waiting(Admin.consumer_connection)
    producer_connection = waiting(Admin.producer_connection)
    producers = waiting(Admin.producers)
    consumer_running_info = waiting(Admin.consumer_running_info)
    members = waiting(Admin.members)
    consume_message_directly = waiting(Admin.consume_message_directly)
    reset_offset = waiting(Admin.reset_offset)
    reset_offset_at = waiting(Admin.reset_offset_at)
    topic_queues_at = waiting(Admin.topic_queues_at)
    set_offset = waiting(Admin.set_offset)
    offset = waiting(Admin.offset)
    clone_offsets = waiting(Admin.clone_offsets)
    member_offsets = waiting(Admin.member_offsets)
    correction_offsets = waiting(Admin.correction_offsets)

    message_by_offset_id = waiting(Admin.message_by_offset_id)
    message_at = waiting(Admin.message_at)
    message_by_id = waiting(Admin.message_by_id)
    messages_by_key = waiting(Admin.messages_by_key)
    messages_by_unique_key = waiting(Admin.messages_by_unique_key)
    min_offset = waiting(Admin.min_offset)
    max_offset = waiting(Admin.max_offset)
    search_offset = waiting(Admin.search_offset)
    earliest_store_time_ms = waiting(Admin.earliest_store_time_ms)
    consume_queue = waiting(Admin.consume_queue)
    track = waiting(Admin.track)
    resume_half_message = waiting(Admin.resume_half_message)

    broker_runtime = waiting(Admin.broker_runtime)
    broker_config = waiting(Admin.broker_config)
    update_broker_config = waiting(Admin.update_broker_config)
    broker_stats = waiting(Admin.broker_stats)
    delete_expired_commit_log = waiting(Admin.delete_expired_commit_log)
    acl_versions = waiting(Admin.acl_versions)
    acl_config = waiting(Admin.acl_config)
    put_acl_account = waiting(Admin.put_acl_account)
    delete_acl_account = waiting(Admin.delete_acl_account)
    put_global_white_addresses = waiting(Admin.put_global_white_addresses)
    name_server_configs = waiting(Admin.name_server_configs)
    update_name_server_config = waiting(Admin.update_name_server_config)
    wipe_write_perm = waiting(Admin.wipe_write_perm)
    add_write_perm = waiting(Admin.add_write_perm)
