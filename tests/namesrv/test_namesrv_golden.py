"""Replay every request that clients, brokers and tools sent to the real NameServer, and compare the responses.

The recordings omit repeated frames, so some topics have no recorded registration. Their queue data comes from the first
recorded route that shows them. Every topic whose registration was recorded must come from that registration.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from golden_data import golden_lines
from namesrv_fakes import FakeConnection, FakeNamesrv, ha_address

from triomq.namesrv.brokers import BrokerKey
from triomq.namesrv.config import NamesrvSettings
from triomq.protocol.bodies import fastjson
from triomq.protocol.bodies.kv_table import ORDER_TOPIC_CONFIG, KVTable
from triomq.protocol.bodies.route import TopicRouteData
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.frame import FrameDecoder

FILES = [
    "frames_acl_json",
    "frames_admin_json",
    "frames_admin_rocketmq",
    "frames_clients_json",
    "frames_clients_rocketmq",
    "frames_master_slave_json",
]
COUNTS = (RequestCode.WIPE_WRITE_PERM_OF_BROKER.name, RequestCode.ADD_WRITE_PERM_OF_BROKER.name)


def frames(name: str) -> list[dict[str, Any]]:
    return [frame for frame in golden_lines("wire", name) if "namesrv" in (frame["from"], frame["to"])]


def command(frame: dict[str, Any]) -> RemotingCommand:
    (decoded,) = FrameDecoder().feed(bytes.fromhex(frame["frame_hex"]))
    return decoded


def meaning(answer: RemotingCommand, answers: str) -> dict[str, Any]:
    """Return the content of a response, without the order of members that have none."""
    body: Any = None
    if answer.body and answers == RequestCode.GET_NAMESRV_CONFIG.name:
        body = {line.partition("=")[0] for line in answer.body.decode().splitlines()} - TRIOMQ_KEYS
    elif answer.body:
        body = fastjson.loads(answer.body)
        if "topicList" in body:
            body["topicList"] = sorted(body["topicList"])
        if "clusterAddrTable" in body:
            body["clusterAddrTable"] = {cluster: sorted(names) for cluster, names in body["clusterAddrTable"].items()}
    fields: Any = answer.ext_fields
    if answers == RequestCode.GET_NAMESRV_CONFIG.name:
        fields = {key: text for key, text in (fields or {}).items() if not key.startswith("product")} or None
    if answers in COUNTS:
        fields = sorted(fields or {})  # the number of topics depends on what the recording omits
    return {
        "code": answer.code,
        "flag": answer.flag,
        "opaque": answer.opaque,
        "remark": answer.remark,
        "serialize_type": answer.serialize_type,
        "fields": fields,
        "body": body,
    }


TRIOMQ_KEYS = {
    "bindAddress",
    "configUpdateWithoutAcl",
    "frameMaxLength",
    "metricsAddress",
    "dashboardAddress",
    "dashboardHosts",
    "dashboardPath",
    "dashboardProxies",
    "dashboardInsecure",
    "dashboardPort",
    "dashboardReadOnly",
    "dashboardTls",
    "metricsMaxSeries",
    "metricsPort",
    "maxBrokerAddresses",
    "maxKvBytes",
    "maxTopics",
    "protectRoutes",
    "serverMaxConnections",
    "serverMaxConnectionsPerAddress",
    "maxRequestBytes",
    "serverReservedDescriptors",
    "serverSilentSeconds",
    "tlsMode",
}


class Replay:
    """One recording against one NameServer."""

    def __init__(self, namesrv: FakeNamesrv) -> None:
        self.namesrv = namesrv
        self.connections: dict[int, FakeConnection] = {}
        self.waiting: dict[tuple[int, int], tuple[RemotingCommand, RemotingCommand]] = {}
        self.left_out: set[str] = set()
        # After a change of all permissions, any registration that the recording omits may have restored them.
        self.perms_changed = False
        self.added = 0
        self.compared = 0

    async def request(self, frame: dict[str, Any]) -> None:
        connection = self.connections.setdefault(frame["conn"], self.namesrv.connect())
        request = command(frame)
        self.perms_changed |= frame["code_name"] in COUNTS
        if request.is_oneway:
            self.namesrv.table.handle(connection, request)
            return
        answer = await self.namesrv.send(request, connection)
        self.waiting[frame["conn"], request.opaque] = request, answer

    async def answer(self, frame: dict[str, Any]) -> None:
        """Compare with the recorded response; if it differs, add what the recording omits and ask once more."""
        request, ours = self.waiting.pop((frame["conn"], frame["header"]["opaque"]))
        theirs = command(frame)
        if await self._add_left_out(request, theirs):
            ours = await self.namesrv.send(request, self.connections[frame["conn"]])
        place = f"{frame['scenario']} {frame['seq']}"
        assert meaning(ours, frame["answers"]) == meaning(theirs, frame["answers"]), place
        self.compared += 1

    async def _add_left_out(self, request: RemotingCommand, theirs: RemotingCommand) -> bool:
        if theirs.code != 0:
            return False
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            topic = (request.ext_fields or {})["topic"]
            theirs_route, ours_route = TopicRouteData.decode(theirs.body), self.namesrv.routes.route(topic)
            if ours_route is None:
                self.left_out.add(topic)
            elif ours_route.queue_datas == theirs_route.queue_datas or not (
                topic in self.left_out or self.perms_changed
            ):
                return False
            self._register_topic(topic, theirs_route)
            return True
        if request.code == RequestCode.REGISTER_BROKER and theirs.body:
            present = self.namesrv.kv_config.namespace(ORDER_TOPIC_CONFIG)
            if present is None:
                for key, value in KVTable.decode(theirs.body).table.items():
                    await self.namesrv.kv_config.put(ORDER_TOPIC_CONFIG, key, value)
                return True
        if request.code == RequestCode.GET_KV_CONFIG:
            fields = request.ext_fields or {}
            if self.namesrv.kv_config.get(fields["namespace"], fields["key"]) is None:
                value = (theirs.ext_fields or {})["value"]
                await self.namesrv.kv_config.put(fields["namespace"], fields["key"], value)
                return True
        return False

    def _register_topic(self, topic: str, route: TopicRouteData) -> None:
        (broker,) = route.broker_datas
        (queues,) = route.queue_datas
        config = TopicConfig(
            topic_name=topic,
            perm=queues.perm,
            read_queue_nums=queues.read_queue_nums,
            write_queue_nums=queues.write_queue_nums,
            topic_sys_flag=queues.topic_sys_flag,
        )
        address = broker.broker_addrs[0]
        self.added += 1
        self.namesrv.routes.register(
            BrokerKey(broker.cluster or "", broker.broker_name, 0, address),
            ha_address=ha_address(address),
            data_version=DataVersion(counter=-self.added),
            topics={topic: config},
            filter_servers=[],
            owner=self.namesrv.peer,
            now=trio.current_time(),
        )


@pytest.mark.parametrize("name", FILES)
async def test_the_recorded_questions_get_the_recorded_answers(nursery: trio.Nursery, name: str) -> None:
    replay = Replay(FakeNamesrv(nursery, settings=NamesrvSettings(config_update_without_acl=True)))
    for frame in frames(name):
        if frame["to"] == "namesrv":
            await replay.request(frame)
        else:
            await replay.answer(frame)
    unanswered = {request.code for request, _ in replay.waiting.values()}
    # The real one does not respond to code 9999; the others are frames whose responses the recording omits.
    assert unanswered <= {9999, RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.REGISTER_BROKER}
    assert replay.compared > 25
