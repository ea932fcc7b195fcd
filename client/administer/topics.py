"""Topics: create, delete, list, look into (mqadmin: updateTopic, deleteTopic, topicList, topicStatus, ...)."""

from __future__ import annotations

import trio

from triomq.client.administer.base import AdminBase
from triomq.client.core.errors import NoRoute
from triomq.client.core.routes import parse_order_conf
from triomq.protocol import permission
from triomq.protocol.bodies.consume_stats import TopicStatsTable
from triomq.protocol.bodies.kv_table import ORDER_TOPIC_CONFIG, KVTable
from triomq.protocol.bodies.name_list import GroupList, TopicList
from triomq.protocol.bodies.topic_config import TopicConfig, TopicConfigSerializeWrapper
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
)
from triomq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC

LOOK_SECONDS = 0.02


class TopicAdmin(AdminBase):
    """Topics, as part of `Admin`."""

    async def create_topic(
        self,
        topic: str,
        *,
        read_queues: int = 8,
        write_queues: int = 8,
        perm: int = permission.READ_WRITE,
        ordered: bool = False,
        topic_sys_flag: int = 0,
        cluster: str | None = None,
        broker_address: str | None = None,
    ) -> list[str]:
        """Create or change a topic, at one broker, or at the masters of a cluster or of all clusters. `ordered` also
        stores an order configuration, which keeps the queues where they are while a broker is away. Return the
        addresses once a name server knows the topic there: brokers register it without waiting for a response. Raises
        BrokerRefused (bad name, system topic, a replica)."""
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=perm,
            topic_sys_flag=topic_sys_flag,
            order=ordered,
        )
        targets = await self._targets(cluster, broker_address)
        for address in targets:
            await self.put_topic_config(address, config)
        if ordered:
            names = {address: name for name, address in (await self.masters(cluster)).items()}
            conf = parse_order_conf(await self.order_conf(topic) or "") if broker_address else {}
            conf.update({names[address]: write_queues for address in targets if address in names})
            await self.put_order_conf(topic, ";".join(f"{name}:{count}" for name, count in conf.items()))
        with trio.move_on_after(self._timeout_seconds):
            while not await self._is_routed(config, targets):  # noqa: ASYNC110 (name servers tell nobody)
                await trio.sleep(LOOK_SECONDS)
        return targets

    async def _is_routed(self, config: TopicConfig, targets: list[str]) -> bool:
        """Return whether a name server knows the topic with these settings from all these brokers."""
        try:
            route = await self.route(config.topic_name or "")
        except NoRoute:
            return False
        names = {one.broker_name for one in route.broker_datas if set(targets) & set(one.broker_addrs.values())}
        counts = {queue.broker_name: (queue.read_queue_nums, queue.write_queue_nums) for queue in route.queue_datas}
        wanted = (config.read_queue_nums, config.write_queue_nums)
        return len(names) == len(targets) and all(counts.get(name) == wanted for name in names)

    async def put_topic_config(self, broker_address: str, config: TopicConfig) -> None:
        """Create or replace one topic at one broker."""
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
        )
        await self._broker(broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic at the masters of a cluster (of all clusters), and at all name servers."""
        for address in await self._targets(cluster, None):
            await self.delete_topic_at(address, topic)
        await self.delete_topic_at_name_servers(topic, cluster=cluster)
        await self.delete_order_conf(topic)

    async def delete_topic_at(self, broker_address: str, topic: str) -> None:
        """Delete a topic at one broker."""
        await self._broker(broker_address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))

    async def delete_topic_at_name_servers(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete the routes of a topic at all name servers, of one cluster or of all."""
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        await self._every_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def topics(self, *, cluster: str | None = None) -> list[str]:
        """Return all topics that the name server knows, or those of a cluster, sorted."""
        if cluster is None:
            response = await self._name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            response = await self._name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return sorted(TopicList.decode(response.body).topic_list) if response.body else []

    async def system_topics(self, broker_address: str | None = None) -> TopicList:
        """Return the system topics of a broker; without one, the cluster and broker names that the name server
        reserves."""
        if broker_address is not None:
            response = await self._broker(broker_address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        else:
            response = await self._name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        return TopicList.decode(response.body)

    async def unit_topics(self) -> list[str]:
        """Return the topics with a unit flag, sorted."""
        return await self._topic_list(RequestCode.GET_UNIT_TOPIC_LIST)

    async def unit_subscribed_topics(self) -> list[str]:
        """Return the topics that unit consumers subscribe to, sorted."""
        return await self._topic_list(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)

    async def unit_subscribed_non_unit_topics(self) -> list[str]:
        """Return the topics without a unit flag that unit consumers subscribe to, sorted."""
        return await self._topic_list(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)

    async def _topic_list(self, code: RequestCode) -> list[str]:
        response = await self._name_server(code)
        return sorted(TopicList.decode(response.body).topic_list) if response.body else []

    async def topic_clusters(self, topic: str) -> list[str]:
        """Return the clusters whose brokers have this topic."""
        return sorted({broker.cluster for broker in (await self.route(topic)).broker_datas if broker.cluster})

    async def topic_configs(self, broker_address: str) -> TopicConfigSerializeWrapper:
        """Return all topics of one broker with their settings."""
        response = await self._broker(broker_address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigSerializeWrapper.decode(response.body)

    async def topic_config(self, broker_address: str, topic: str) -> TopicConfig | None:
        """Return the settings of one topic at one broker; None when the broker does not have it."""
        return (await self.topic_configs(broker_address)).topic_config_table.get(topic)

    async def topic_stats(self, topic: str) -> TopicStatsTable:
        """Return the bounds of all queues of a topic, at all its brokers. Raises NoRoute."""
        table = {}
        for address in (await self._masters_of_topic(topic)).values():
            table.update((await self.topic_stats_at(address, topic)).offset_table)
        return TopicStatsTable(offset_table=table)

    async def topic_stats_at(self, broker_address: str, topic: str) -> TopicStatsTable:
        """Return the bounds of a topic's queues at one broker."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        response = await self._broker(broker_address, RequestCode.GET_TOPIC_STATS_INFO, header)
        return TopicStatsTable.decode(response.body)

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, sorted. Raises NoRoute."""
        await self._client.update_route(topic)
        return list((await self._client.route(topic)).subscribe)

    async def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or have an offset in it."""
        groups: set[str] = set()
        for address in (await self._masters_of_topic(topic)).values():
            header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
            response = await self._broker(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            groups.update(GroupList.decode(response.body).group_list if response.body else ())
        return sorted(groups)

    async def clean_unused_topics(self, broker_address: str) -> None:
        """Delete the consume queues of topics that the broker no longer has."""
        await self._broker(broker_address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def clean_expired_consume_queues(self, broker_address: str) -> None:
        """Delete the consume queues whose messages are all gone."""
        await self._broker(broker_address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    # Order configurations, and the name servers' key-value table below them.

    async def order_conf(self, topic: str) -> str | None:
        """Return the order configuration of a topic ("broker-a:4;broker-b:4"); None when it has none."""
        return await self.get_kv(ORDER_TOPIC_CONFIG, topic)

    async def put_order_conf(self, topic: str, conf: str) -> None:
        """Store the order configuration of a topic, "broker-a:4;broker-b:4", at all name servers. Raises ValueError
        when `conf` has another form."""
        parse_order_conf(conf)
        await self.put_kv(ORDER_TOPIC_CONFIG, topic, conf)

    async def delete_order_conf(self, topic: str) -> None:
        """Delete the order configuration of a topic at all name servers."""
        await self.delete_kv(ORDER_TOPIC_CONFIG, topic)

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """Return a value that the name servers keep; None when there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        response = await self._name_server(RequestCode.GET_KV_CONFIG, header, accept=accept)
        if response.code != ResponseCode.SUCCESS:
            return None
        return response.header(GetKVConfigResponseHeader).value

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a value at all name servers."""
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self._every_name_server(RequestCode.PUT_KV_CONFIG, header)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a value at all name servers."""
        header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        await self._every_name_server(RequestCode.DELETE_KV_CONFIG, header)

    async def kv_table(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty when it does not exist."""
        from triomq.protocol.headers.namesrv import GetKVListByNamespaceRequestHeader

        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        response = await self._name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, header, accept=accept)
        return KVTable.decode(response.body).table if response.code == ResponseCode.SUCCESS and response.body else {}
