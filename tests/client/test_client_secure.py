"""Access control and TLS, against real Apache brokers."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from apache_peer import find_peer
from client_cluster import LIMIT_SECONDS, Cluster, Daemon, fresh
from free_ports import free_port

from triomq.client.administer.admin import Admin
from triomq.client.api import (
    BrokerRefused,
    Credentials,
    Message,
    NameServersUnreachable,
    Producer,
    PushConsumer,
    SendFailed,
    SendStatus,
)

ACCOUNTS = """
accounts:
- accessKey: adminKey
  secretKey: 12345678
  admin: true
- accessKey: senderKey
  secretKey: abcdefgh
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - Allowed=PUB
"""


@pytest.fixture(scope="module")
def apache_acl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start Apache RocketMQ with access control; it has its own home and uses the shared jars."""
    script = find_peer()
    if script is None or shutil.which("java") is None:
        pytest.skip("Apache's daemons: no Java or no Maven")
    jars = subprocess.run([str(script), "fetch"], capture_output=True, text=True, check=True).stdout.strip()
    directory = tmp_path_factory.mktemp("acl")
    home = Path(shutil.copytree(Path(jars).parent / "home", directory / "home"))
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    name_server, port = f"127.0.0.1:{free_port()}", free_port()
    environment = {**os.environ, "PEER_HOME": str(home)}
    namesrv = Daemon(str(script), "namesrv", str(directory / "ns"), name_server.rpartition(":")[2])
    try:
        broker = Daemon(
            str(script),
            "broker",
            str(directory / "b"),
            str(port),
            name_server,
            "aclEnable=true",
            environment=environment,
        )
        try:
            yield Cluster(name_server, f"127.0.0.1:{port}")
        finally:
            broker.stop()
    finally:
        namesrv.stop()


@pytest.mark.interop
async def test_accounts_may_do_what_they_may(apache_acl: Cluster) -> None:
    name_server = apache_acl.name_server
    administrator = Credentials("adminKey", "12345678")
    with trio.fail_after(LIMIT_SECONDS):
        async with Admin(name_server=name_server, credentials=administrator) as admin:
            await admin.create_topic("Allowed")
            await admin.create_topic("Denied")
            accounts = (await admin.acl_config(apache_acl.broker)).plain_access_configs or []
            assert sorted(account.access_key or "" for account in accounts) == ["adminKey", "senderKey"]
            assert (await admin.acl_versions(apache_acl.broker)).broker_name == "broker-a"
        sender = Credentials("senderKey", "abcdefgh")
        async with Producer(fresh("P"), name_server=name_server, credentials=sender, retries=0) as producer:
            large = Message("Allowed", b"x" * 10_000, tags="\N{SNOWMAN}", keys="k")
            assert (await producer.send(large)).status is SendStatus.SEND_OK
            assert await producer.send_batch([Message("Allowed", b"1"), Message("Allowed", b"2")])
            with pytest.raises((BrokerRefused, SendFailed), match="AclException"):
                await producer.send(Message("Denied", b"m"))
        for wrong in (Credentials("senderKey", "wrong-secret"), Credentials("nobody", "abcdefgh"), None):
            options = {} if wrong is None else {"credentials": wrong}
            async with Producer(fresh("P"), name_server=name_server, retries=0, **options) as producer:  # type: ignore[arg-type]
                with pytest.raises((BrokerRefused, SendFailed), match="AclException"):
                    await producer.send(Message("Allowed", b"m"))
        async with PushConsumer(fresh("G"), name_server=name_server, credentials=administrator) as consumer:
            consumer.subscribe("Allowed")
            bodies = {(await consumer.__anext__()).body for _ in range(3)}
            assert bodies == {b"x" * 10_000, b"1", b"2"}


@pytest.mark.interop
async def test_everything_over_tls(apache: Cluster) -> None:
    topic = fresh()
    with trio.fail_after(LIMIT_SECONDS):
        async with Producer(fresh("P"), name_server=apache.name_server, tls=True) as producer:
            assert (await producer.send(Message(topic, b"x" * 100_000))).status is SendStatus.SEND_OK
        async with PushConsumer(fresh("G"), name_server=apache.name_server, tls=True) as consumer:
            consumer.subscribe(topic)
            assert (await consumer.__anext__()).body == b"x" * 100_000
        # The server's certificate is self-signed, so a context that checks certificates must refuse it.
        strict = ssl.create_default_context()
        # A send waits so long for a name server that it can use.
        async with Producer(
            fresh("P"), name_server=apache.name_server, tls=strict, send_timeout_seconds=3.0
        ) as producer:
            with pytest.raises(NameServersUnreachable):
                await producer.send(Message(topic, b"m"))
