"""TLS and access control with real clients and the real mqadmin. Both are settings of Apache's virtual machine and home
directory, which its script does not accept, so these tests run against TrioMQ only.
"""

from __future__ import annotations

import re
import shutil
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import interop_wire as wire
import pytest
import yaml
from interop_cluster import CLUSTER_NAME, Cluster, running_cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver
from interop_guard import certificate, write_accounts
from interop_mqadmin import JavaAdmin
from interop_processes import wait_until
from interop_texts import assert_bodies, lines_of, numbered

from triomq.protocol import signature

ADMIN = ("adminOfAll", "secretOfTheAdmin")
SHOP = ("shopService", "secretOfTheShop")
LATER = ("laterService", "secretOfTheLater")
SHOP_TOPICS = {"Shop_Orders": "PUB|SUB", "Shop_ReadOnly": "SUB"}
SHOP_GROUPS = {f"Shop_{kind}": "SUB" for kind in ("java4", "java5", "go", "node")}
GET_BROKER_RUNTIME_INFO = 28


@pytest.fixture(autouse=True)
def only_triomq(target: str) -> None:
    if target != "triomq":
        pytest.skip("TLS and ACL of Apache's daemons are not settable through their script")


def transfer(cluster: Cluster, sender: Driver, receiver: Driver, directory: Path, name: str) -> None:
    """Send twenty lines from one client to another, each once and unchanged."""
    topic = cluster.create_topic(name)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(directory, 20)
    received = receiver.receive(**common, group=f"{topic}_group")
    # The first handshake waits for a certificate to be generated, on a slow machine for longer than this client waits.
    sending = sender.begin("send-lines", **common, file=file, keep_going=True)
    sending.wait_done()
    assert [event["status"] for event in sending.of("sent")] == ["SEND_OK"] * 20
    received.wait_messages(20)
    received.stop()
    assert_bodies(lines_of(file), received.messages)


def assert_told_to_nobody(directory: Path, *secrets: str) -> None:
    """Check that no log of the daemons in this directory, and no output of theirs, contains one of these."""
    logs = {path: path.read_text() for path in directory.rglob("*.log*")}
    assert logs
    for path, text in logs.items():
        for secret in secrets:
            assert secret not in text, f"{path} tells {secret}"


# -- TLS ---------------------------------------------------------------------------------------------------------------


def shown_certificate(address: str) -> str:
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=10)


def client_port(admin: JavaAdmin, cluster: Cluster, group: str) -> str:
    """Return the port of the group's only member, as the broker sees it."""
    found: list[str] = []

    def is_connected() -> bool:
        output = admin.run("consumerConnection", "-g", group, "-n", cluster.namesrv_address)
        found[:] = re.findall(r"127\.0\.0\.1:(\d+)", output)
        return bool(found)

    wait_until(is_connected, 20, f"{group} is connected")
    [port] = found
    return port


def test_permissive_takes_both_kinds_at_one_port(cluster: Cluster, drivers: DriverSet, tmp_path: Path) -> None:
    plain, secure = drivers("java4"), drivers("java4-tls")
    transfer(cluster, secure, plain, tmp_path, "SecureToPlain")
    transfer(cluster, plain, secure, tmp_path, "PlainToSecure")


@pytest.fixture(scope="module")
def enforcing(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if target != "triomq":
        pytest.skip("TrioMQ only")
    settings = {"tls.server.mode": "enforcing", "autoCreateTopicEnable": "true"}
    with running_cluster(target, tmp_path_factory.mktemp("enforcing"), settings) as running:
        yield running


def test_enforcing_refuses_plain_clients_and_serves_the_others(
    enforcing: Cluster, drivers: DriverSet, peer: Path, tmp_path: Path
) -> None:
    secure = drivers("java4-tls")
    admin = JavaAdmin(peer, tmp_path / "admin", ["-Dtls.enable=true"])
    with closing(admin):
        made = admin.run("updateTopic", "-t", "Enforced", "-c", CLUSTER_NAME, "-n", enforcing.namesrv_address)
        assert f"create topic to {enforcing.broker_address} success." in made
        listed = admin.run("clusterList", "-n", enforcing.namesrv_address)
        assert enforcing.broker_address in listed
        wait_until(lambda: enforcing.route("Enforced"), 10, "the topic is registered")
        common = {"namesrv": enforcing.namesrv_address, "topic": "Enforced"}
        file = numbered(tmp_path, 20)
        received = secure.receive(**common, group="Enforced_group")
        assert len(secure.run("send-lines", **common, file=file)[:-1]) == 20
        received.wait_messages(20)
        received.stop()
        assert_bodies(lines_of(file), received.messages)
        status = admin.run("topicStatus", "-t", "Enforced", "-n", enforcing.namesrv_address)
        assert sum(int(line.split()[3]) for line in status.splitlines() if line.startswith("broker-a")) == 20
    refused = drivers("java4").begin("send-lines", **common, file=file, retries=0, timeout_ms=3000)
    wait_until(lambda: refused.is_over, 30, "the plain client gives up")
    assert refused.events[-1]["event"] == "failed"


def test_a_new_certificate_is_taken_without_dropping_anybody(
    target: str, drivers: DriverSet, admin: JavaAdmin, tmp_path: Path
) -> None:
    first_key, first = certificate(tmp_path, "first")
    second_key, second = certificate(tmp_path, "second")
    key, path = tmp_path / "server.key", tmp_path / "server.pem"
    shutil.copy(first_key, key)
    shutil.copy(first, path)
    settings = {
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "false",
        "tls.server.keyPath": str(key),
        "tls.server.certPath": str(path),
    }
    secure = drivers("java4-tls")
    with running_cluster(target, tmp_path / "cluster", settings) as cluster:
        topic = cluster.create_topic("Renewed")
        common = {"namesrv": cluster.namesrv_address, "topic": topic}
        received = secure.receive(**common, group=f"{topic}_group")
        file = numbered(tmp_path, 5)
        secure.run("send-lines", **common, file=file)
        received.wait_messages(5)
        assert shown_certificate(cluster.broker_address).split() == first.read_text().split()
        before = client_port(admin, cluster, f"{topic}_group")
        shutil.copy(second_key, key)
        shutil.copy(second, path)
        began = time.monotonic()
        wait_until(
            lambda: shown_certificate(cluster.broker_address).split() == second.read_text().split(),
            10,
            "new connections see the new certificate",
        )
        print(f"new certificate in use after {time.monotonic() - began:.2f} s")
        secure.run("send-lines", **common, file=file)
        received.wait_messages(10)
        assert client_port(admin, cluster, f"{topic}_group") == before, "the consumer kept its connection"
        received.stop()


KEY_PASSWORD = "secretOfTheServersKey"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Key and certificate of the server, of a client that it trusts and of one that it does not."""
    directory = tmp_path_factory.mktemp("certificates")
    made = {name: certificate(directory, name) for name in ("known", "stranger")}
    return {**made, "server": certificate(directory, "server", KEY_PASSWORD)}


@pytest.fixture(scope="module")
def mutual(
    target: str, certificates: dict[str, tuple[Path, Path]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A broker that requires TLS and a client certificate. The NameServer presents the same certificate and requires
    none.
    """
    if target != "triomq":
        pytest.skip("TrioMQ only")
    key, path = certificates["server"]
    shown = {
        "tls.test.mode.enable": "false",
        "tls.server.keyPath": str(key),
        "tls.server.keyPassword": KEY_PASSWORD,
        "tls.server.certPath": str(path),
    }
    wanted = {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": str(certificates["known"][1]),
    }
    directory = tmp_path_factory.mktemp("mutual")
    with running_cluster(target, directory, {**shown, **wanted, "autoCreateTopicEnable": "true"}, shown) as running:
        yield running
    assert_told_to_nobody(directory, KEY_PASSWORD)


def driver_with_certificate(
    drivers: DriverSet, kind: str, certificates: dict[str, tuple[Path, Path]], name: str, file: Path | None = None
) -> Driver:
    """Start a Java client that verifies the server and presents the named certificate. System properties configure it
    or, if `file` is given, such a tls.properties.
    """
    key, path = certificates[name]
    words = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(certificates["server"][1]),
        "tls.client.keyPath": str(key),
        "tls.client.certPath": str(path),
    }
    if file is not None:
        file.write_text("".join(f"{key}={value}\n" for key, value in words.items()))
        words = {"tls.config.file": str(file)}
    return drivers.start(kind, "-Dtls.enable=true", *(f"-D{key}={value}" for key, value in words.items()))


@pytest.mark.parametrize("kind", ["java4", "java5"])
def test_a_client_with_a_known_certificate_is_served(
    mutual: Cluster, certificates: dict[str, tuple[Path, Path]], drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    properties = tmp_path / "tls.properties" if kind == "java4" else None
    java = driver_with_certificate(drivers, kind, certificates, "known", properties)
    common = {"namesrv": mutual.namesrv_address, "topic": f"Mutual_{kind}"}
    file = numbered(tmp_path, 10)
    java.run("send-lines", **common, file=file, keep_going=True, timeout_ms=30_000)  # makes the topic
    received = java.receive(**common, group=f"Mutual_{kind}_group")
    received.wait_messages(10)
    received.stop()
    assert_bodies(lines_of(file), received.messages)
    java.end()


@pytest.mark.parametrize("name", [None, "stranger"])
def test_a_client_without_a_known_certificate_is_refused(
    mutual: Cluster,
    certificates: dict[str, tuple[Path, Path]],
    drivers: DriverSet,
    tmp_path: Path,
    name: str | None,
) -> None:
    if name is None:
        java, reason = drivers("java4-tls"), "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    else:
        java, reason = driver_with_certificate(drivers, "java4", certificates, name), "CERTIFICATE_VERIFY_FAILED"
    broker = mutual.broker.child
    assert broker is not None
    begin = len(broker.log_text())
    common = {"namesrv": mutual.namesrv_address, "topic": "TBW102", "file": numbered(tmp_path, 1)}
    refused = java.begin("send-lines", **common, retries=0, timeout_ms=3000)
    wait_until(lambda: refused.is_over, 60, "the producer gives up")
    assert not refused.of("sent")
    assert refused.events[-1]["event"] == "failed"
    wait_until(lambda: reason in broker.log_text()[begin:], 20, "the broker says why")


# -- access control ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RocketMQ's home with an account for the administrator and one for a shop."""
    home = tmp_path_factory.mktemp("home")
    write_accounts(home, ADMIN, SHOP, SHOP_TOPICS, SHOP_GROUPS)
    return home


@pytest.fixture(scope="module")
def guarded(target: str, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if target != "triomq":
        pytest.skip("TrioMQ only")
    settings = {"aclEnable": "true", "rocketmqHome": str(home)}
    directory = tmp_path_factory.mktemp("guarded")
    # A NameServer has no access control; this setting lets every client change its configuration.
    with running_cluster(target, directory, settings, {"configUpdateWithoutAcl": "true"}) as running:
        yield running
    assert_told_to_nobody(directory, ADMIN[1], SHOP[1], LATER[1], "anotherSecret", "secretOfTheHand")
    assert any("access refused" in path.read_text() for path in directory.rglob("*.log")), "refusals are logged"


@pytest.fixture(scope="module")
def guard(guarded: Cluster, admin: JavaAdmin) -> Iterator[JavaAdmin]:
    """mqadmin with the administrator's account, which has created the shop's topics."""
    with admin.account(*ADMIN):
        for topic in ("Shop_Orders", "Shop_ReadOnly", "Later_Orders"):
            made = admin.run("updateTopic", "-t", topic, "-c", CLUSTER_NAME, "-n", guarded.namesrv_address)
            assert "success." in made, made
            wait_until(lambda topic=topic: guarded.route(topic), 10, f"{topic} is registered")  # type: ignore[misc]
        yield admin


def as_account(account: tuple[str, str]) -> dict[str, str]:
    return {"access_key": account[0], "secret_key": account[1]}


def refusal(java: Driver, cluster: Cluster, topic: str, file: Path, **account: str) -> str:
    """Return the broker's remark for a send (the Java client wraps it, since it tries other brokers first)."""
    sending = java.begin("send-lines", namesrv=cluster.namesrv_address, topic=topic, file=file, retries=0, **account)
    wait_until(lambda: sending.is_over, 30, "the producer gives up")
    [failed] = sending.of("send_failed")
    cause: str = failed["cause"]
    assert "CODE: 1  DESC: org.apache.rocketmq.acl.common.AclException: " in cause
    return cause


@pytest.mark.parametrize("kind", ["java4", "java5", "go", "node"])
def test_clients_get_what_their_account_may(
    guarded: Cluster, guard: JavaAdmin, drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    common = {"namesrv": guarded.namesrv_address, "topic": "Shop_Orders", **as_account(SHOP)}
    file = numbered(tmp_path, 10)
    received = drivers(kind).receive(**common, group=f"Shop_{kind}", tags=kind)
    assert len(drivers(kind).run("send-lines", **common, file=file, tags=kind)[:-1]) == 10
    received.wait_messages(10)
    received.stop()
    assert_bodies(lines_of(file), received.messages)


@pytest.mark.parametrize("kind", ["java5", "go"])
def test_other_clients_are_told_why_they_may_not(
    guarded: Cluster, guard: JavaAdmin, drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    common = {"namesrv": guarded.namesrv_address, "topic": "Shop_Orders", "file": numbered(tmp_path, 1), "retries": 0}
    refused = drivers(kind).begin("send-lines", **common, **as_account((SHOP[0], "anotherSecret")))
    wait_until(lambda: refused.is_over, 30, "the producer gives up")
    assert refused.events[-1]["event"] == "failed"
    assert "Check signature failed for accessKey=shopService" in str(refused.events)


def test_java_clients_are_told_why_they_may_not(
    guarded: Cluster, guard: JavaAdmin, java4: Driver, tmp_path: Path
) -> None:
    file = numbered(tmp_path, 1)
    assert "No accessKey is configured" in refusal(java4, guarded, "Shop_Orders", file)
    wrong = as_account((SHOP[0], "anotherSecret"))
    assert "Check signature failed for accessKey=shopService" in refusal(java4, guarded, "Shop_Orders", file, **wrong)
    unknown = as_account(("nobodyAtAll", "secretOfNobody"))
    assert "No acl config for nobodyAtAll" in refusal(java4, guarded, "Shop_Orders", file, **unknown)
    remark = refusal(java4, guarded, "Shop_ReadOnly", file, **as_account(SHOP))
    assert "No default permission for topic:Shop_ReadOnly" in remark


def test_mqadmin_needs_an_administrator(guarded: Cluster, guard: JavaAdmin) -> None:
    command = ("updateTopic", "-t", "NotForTheShop", "-b", guarded.broker_address, "-n", guarded.namesrv_address)
    with guard.account(*SHOP):
        assert "Need admin permission for request code=17, but accessKey=shopService is not" in guard.run(*command)
    with guard.account("", ""):
        assert "No accessKey is configured" in guard.run(*command)
    assert guarded.route("NotForTheShop") is None


def listed(output: str, key: str) -> str:
    """Return the value of a key in the output of getBrokerConfig and getNamesrvConfig."""
    [value] = re.findall(rf"^{key} += +(\S+)$", output, re.MULTILINE)
    return str(value)


def test_mqadmin_changes_the_broker_s_configuration(guarded: Cluster, guard: JavaAdmin) -> None:
    here = ("-b", guarded.broker_address, "-n", guarded.namesrv_address)
    file = guarded.directory / "broker" / "broker.conf"
    change = ("updateBrokerConfig", "-k", "flushDelayOffsetInterval", "-v", "9999", *here)
    before = file.read_text()
    with guard.account(*SHOP):
        assert "Need admin permission for request code=25, but accessKey=shopService is not" in guard.run(*change)
    for key, value in (
        ("storePathRootDir", "/tmp/elsewhere"),
        ("rocketmqHome", "/tmp/elsewhere"),
        ("haMasterAddress", "10.1.2.3:10912"),
        ("brokerIP1", "10.1.2.3"),
        ("messageStorePlugIn", "somebody.Else"),
        ("extensions", "*"),
        ("aclEnable", "false"),
    ):
        assert f"CODE: 1  DESC: {key}: " in guard.run("updateBrokerConfig", "-k", key, "-v", value, *here)
    assert file.read_text() == before
    assert guard.run(*change) == f"update broker config success, {guarded.broker_address}"
    assert listed(guard.run("getBrokerConfig", *here), "flushDelayOffsetInterval") == "9999"
    assert file.read_text() == before + "flushDelayOffsetInterval=9999\n"


def test_mqadmin_changes_the_name_server_s_configuration(guarded: Cluster, guard: JavaAdmin) -> None:
    here = ("-n", guarded.namesrv_address)
    file = guarded.directory / "namesrv" / "namesrv.conf"
    before = file.read_text()
    for key in ("kvConfigPath", "configStorePath", "rocketmqHome", "namesrvAddr", "listenPort"):
        said = guard.run("updateNamesrvConfig", "-k", key, "-v", "7777", *here)
        assert re.search(r"CODE: 16?  DESC: (Can not update config path|\w+: cannot be changed while running)", said)
    assert file.read_text() == before
    assert "success" in guard.run("updateNamesrvConfig", "-k", "productEnvName", "-v", "center", *here)
    changed = guard.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true", *here)
    assert changed.splitlines() == [
        f"update name server config success![{guarded.namesrv_address}]",
        "orderMessageEnable : true",
    ]
    assert listed(guard.run("getNamesrvConfig", *here), "orderMessageEnable") == "true"
    lines = file.read_text().splitlines()
    assert "orderMessageEnable=true" in lines
    assert set(before.splitlines()) <= set(lines), "what stood in the file is still there"


def test_mqadmin_makes_changes_and_removes_accounts(
    guarded: Cluster, guard: JavaAdmin, home: Path, java4: Driver, tmp_path: Path
) -> None:
    here = ("-b", guarded.broker_address, "-n", guarded.namesrv_address)
    file = numbered(tmp_path, 1)
    common = {"namesrv": guarded.namesrv_address, "topic": "Later_Orders", "file": file, **as_account(LATER)}
    assert "No acl config for laterService" in refusal(java4, guarded, "Later_Orders", file, **as_account(LATER))
    before = guard.run("clusterAclConfigVersion", *here)
    words = ("-a", LATER[0], "-s", LATER[1], "-t", "Later_Orders=PUB", "-i", "DENY", "-u", "SUB", "-m", "false")
    made = guard.run("updateAclConfig", *words, *here)
    assert f"create or update plain access config to {guarded.broker_address} success" in made
    assert [event["status"] for event in java4.run("send-lines", **common)[:-1]] == ["SEND_OK"]
    assert "laterService" in (home / "conf" / "plain_acl.yml").read_text()
    assert guard.run("clusterAclConfigVersion", *here) != before
    shown = guard.run("getAclConfig", *here)
    assert "laterService" in shown
    assert SHOP[0] in shown
    guard.run("updateAclConfig", "-a", LATER[0], "-s", LATER[1], "-t", "Later_Orders=DENY", *here)
    assert "No default permission" in refusal(java4, guarded, "Later_Orders", file, **as_account(LATER))
    deleted = guard.run("deleteAclConfig", "-a", LATER[0], *here)
    assert f"delete plain access config account from {guarded.broker_address} success" in deleted
    assert "No acl config for laterService" in refusal(java4, guarded, "Later_Orders", file, **as_account(LATER))


def test_mqadmin_changes_the_white_list(guarded: Cluster, guard: JavaAdmin, java4: Driver, tmp_path: Path) -> None:
    here = ("-b", guarded.broker_address, "-n", guarded.namesrv_address)
    file = numbered(tmp_path, 1)
    assert "success" in guard.run("updateGlobalWhiteAddr", "-g", "127.0.0.*", *here)
    common = {"namesrv": guarded.namesrv_address, "topic": "Shop_Orders", "file": file}
    assert [event["status"] for event in java4.run("send-lines", **common)[:-1]] == ["SEND_OK"]
    assert "success" in guard.run("updateGlobalWhiteAddr", "-g", "10.1.2.3", *here)
    assert "No accessKey is configured" in refusal(java4, guarded, "Shop_Orders", file)


def test_an_edited_file_counts_at_once(guarded: Cluster, guard: JavaAdmin, home: Path) -> None:
    account = ("editedByHand", "secretOfTheHand")
    file = home / "conf" / "plain_acl.yml"
    times: list[float] = []

    def answer() -> int:
        fields = signature.sign_fields({}, b"", *account)
        return wire.ask(guarded.broker_address, GET_BROKER_RUNTIME_INFO, fields).code

    for _ in range(3):
        original = file.read_text()
        assert answer() == 1
        content = yaml.safe_load(original)
        content["accounts"].append({"accessKey": account[0], "secretKey": account[1], "admin": True})
        file.write_text(yaml.safe_dump(content))
        began = time.monotonic()
        wait_until(lambda: answer() == 0, 10, "the new account counts")
        times.append(time.monotonic() - began)
        file.write_text(original)
        began = time.monotonic()
        wait_until(lambda: answer() == 1, 10, "the account is gone")
        times.append(time.monotonic() - began)
    print("an edited ACL file counted after " + ", ".join(f"{seconds * 1000:.0f}" for seconds in times) + " ms")
