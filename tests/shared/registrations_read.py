"""Registrations as the NameServer reads them, put together again."""

from __future__ import annotations

from triomq.protocol.bodies.registration import Parts, RestOfRegistration, Topics, read_compressed_registration
from triomq.protocol.bodies.topic_config import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper


def read_all(parts: Parts) -> tuple[Topics, RestOfRegistration]:
    """Return all topics and the rest."""
    topics: Topics = {}
    while True:
        try:
            topics.update(next(parts))
        except StopIteration as stop:
            return topics, stop.value


def compressed_registration(data: bytes) -> RegisterBrokerBody:
    """Return the record that a compressed registration was made of, if its topics have usual kinds of filters."""
    topics, rest = read_all(read_compressed_registration(data))
    table = {
        name: TopicConfig(
            topic_name=name,
            perm=queues.perm,
            read_queue_nums=queues.read_queue_nums,
            write_queue_nums=queues.write_queue_nums,
        )
        for name, queues in topics.items()
    }
    wrapper = TopicConfigSerializeWrapper(data_version=rest.data_version, topic_config_table=table)
    return RegisterBrokerBody(filter_server_list=rest.filter_servers, topic_config_serialize_wrapper=wrapper)
