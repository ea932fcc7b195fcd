"""Doctor: each fault is made, found, and comes with what mends it; a healthy cluster has none."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster, by_queue, fake_cluster
from verb_calls import check

from triomq.admin.__main__ import main
from triomq.admin.diagnosis import CRITICAL, INFORMATION, WARNING, groups
from triomq.admin.verbs import doctor
from triomq.protocol.findings import build_of, builds_differ, versions_differ
from triomq.testing import LocalCluster

Capture = pytest.CaptureFixture[str]


class Patient(FakeCluster):
    """A cluster without a fault, until a test changes a body. `members` are what each member reports."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: dict[int, Any] = {}
        self.settings = b"brokerRole=ASYNC_MASTER\n"
        self.members: dict[str, dict[str, Any]] = {}

    def prepare(self) -> None:
        """Begin as a healthy cluster at the address that is known by now."""
        self.bodies = json.loads(json.dumps(self._bodies()), object_hook=lambda table: table)
        self.bodies = {int(code): body for code, body in self.bodies.items()}
        self.bodies[208]["offsetTable"] = by_queue({"brokerOffset": 5, "consumerOffset": 5, "lastTimestamp": 1})
        self.member("1@m")

    def member(self, name: str, tags: str = "*", queues: tuple[int, ...] = (0, 1)) -> None:
        table = {key: {} for key in by_queue({}) if json.loads(key)["queueId"] in queues}
        subscription = {"topic": "T", "subString": tags}
        self.members[name] = {"mqTable": table, "properties": {}, "statusTable": {}, "subscriptionSet": [subscription]}
        self.bodies[203]["connectionSet"] = [{"clientId": each} for each in self.members]

    def answer(self, code: int, fields: dict[str, str], body: bytes) -> tuple[int, str, dict[str, str], bytes]:
        if code == 26:
            return 0, "", {}, self.settings
        if code == 203 and not self.members:
            return 206, "nobody", {}, b""
        if code == 307:
            return 0, "", {}, json.dumps(self.members[fields["clientId"]]).encode()
        if code in self.bodies and code not in self.refusals:
            return 0, "", {}, json.dumps(self.bodies[code]).encode()
        return super().answer(code, fields, body)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Patient]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with fake_cluster(Patient()) as found:
        assert isinstance(found, Patient)
        found.prepare()
        yield found


def findings(name_servers: str, capsys: Capture, status: int) -> list[dict[str, Any]]:
    assert main(["doctor", "-n", name_servers, "--output", "json"]) == status
    return check("doctor", capsys.readouterr().out)


def test_a_healthy_cluster_has_no_finding(patient: Patient, capsys: Capture) -> None:
    assert findings(patient.address, capsys, 0) == []
    assert main(["doctor", "-n", patient.address]) == 0
    assert capsys.readouterr().out == "Nothing is wrong.\n"


@pytest.mark.usefixtures("patient")
def test_a_real_cluster_has_nothing_critical(capsys: Capture) -> None:
    with LocalCluster() as cluster:
        capsys.readouterr()
        assert main(["doctor", "-n", cluster.name_server, "--output", "json"]) in (0, 1)
        found = check("doctor", capsys.readouterr().out)
    serious = {finding["code"] for finding in found if finding["severity"] != INFORMATION}
    assert serious <= {"slow-syncs", "loop-lag"}, "a busy machine may cause these two"


def clock(patient: Patient) -> None:
    began = time.time_ns() // 1_000_000 - 3_600_000 + 60_000
    patient.bodies[28]["table"] |= {
        "bootTimestamp": str(began),
        "runtime": "[ 0 days, 1 hours, 0 minutes, 0 seconds ]",
    }


def disk(patient: Patient) -> None:
    patient.bodies[28]["table"]["commitLogDiskRatio"] = "0.8"


def full(patient: Patient) -> None:
    patient.bodies[28]["table"]["commitLogDiskRatio"] = "0.95"


def waiting(patient: Patient) -> None:
    patient.bodies[28]["table"]["sendThreadPoolQueueHeadWaitTimeMills"] = "900"


def slow(patient: Patient) -> None:
    patient.bodies[28]["table"]["pageCacheLockTimeMills"] = "1500"


def slow_writes(patient: Patient) -> None:
    patient.bodies[28]["table"]["putMessageDistributeTime"] = (
        "[<=0ms]:900 [0~10ms]:80 [10~50ms]:0 [50~100ms]:0 [100~200ms]:10 [200~500ms]:8 [500ms~1s]:2 [1~2s]:0 "
    )


def slow_syncs(patient: Patient) -> None:
    patient.bodies[28]["table"] |= {"syncTimes": "10", "syncLatency99": "200.10"}


def late(patient: Patient) -> None:
    patient.bodies[28]["table"]["eventLoopLagMax"] = "500.10"


def advertised(patient: Patient) -> None:
    patient.bodies[106]["brokerAddrTable"]["c"] = {
        "brokerName": "c",
        "cluster": "C",
        "brokerAddrs": {"0": "127.0.0.1:1"},
    }


def unwilling(patient: Patient) -> None:
    patient.refusals[28] = (
        1,
        "org.apache.rocketmq.acl.common.AclException: no account, org.apache.rocketmq.A.b(A.java:3)",
    )


def not_ready(patient: Patient) -> None:
    patient.bodies[28]["table"] |= {"notReady_registration": "another broker", "notReady_disk": "full"}


def slave_too_far(patient: Patient) -> None:
    """RocketMQ's finding of a SYNC_MASTER without a slave would say the same once more."""
    no_slave(patient)
    patient.bodies[28]["table"]["notReady_replication"] = "no slave within 256 bytes"


def departed(patient: Patient) -> None:
    """RocketMQ's NameServers do not say it."""
    left = {
        "brokerAddr": "h:1",
        "brokerId": 0,
        "brokerName": "c",
        "cluster": "C",
        "orderly": False,
        "seenMsAgo": 60_000,
    }
    back = {**left, "brokerAddr": patient.address}
    patient.bodies[30_004] = {"brokers": [{**left, "topics": ["Gone"]}, back]}


def two_masters(patient: Patient) -> None:
    other = patient.address.replace("127.0.0.1", "localhost")
    patient.settings += b"brokerName=b\nbrokerId=0\n"
    contest = {"brokerAddrs": [patient.address, other], "brokerId": 0, "brokerName": "b"}
    patient.bodies[30_004] = {"brokers": [], "contested": [contest]}


def accounts(patient: Patient) -> None:
    patient.bodies[28]["table"]["aclFilesRejected"] = "conf/plain_acl.yml, line 3: not YAML (since 2026)"


def no_broker(patient: Patient) -> None:
    patient.bodies[106] = {"brokerAddrTable": {}, "clusterAddrTable": {}}


def no_master(patient: Patient) -> None:
    patient.bodies[106]["brokerAddrTable"]["c"] = {
        "brokerName": "c",
        "cluster": "C",
        "brokerAddrs": {"1": patient.address},
    }


def no_slave(patient: Patient) -> None:
    patient.settings = b"brokerRole=SYNC_MASTER\n"


def member(patient: Patient, name: str = "n0", peers: str = "n0-h:1;n1-h:2;n2-h:3") -> None:
    """Let the broker be a member of a group."""
    role = "leader" if name == "n0" else "follower"
    values = {"Group": "G", "SelfId": name, "Peers": peers, "Role": role, "Leader": "n0", "Term": "1", "EndIndex": "9"}
    patient.bodies[28]["table"] |= {f"dledger{key}": value for key, value in values.items()}


def no_majority(patient: Patient) -> None:
    member(patient)


def no_leader(patient: Patient) -> None:
    member(patient, "n1", "n1-h:2")
    addresses = patient.bodies[106]["brokerAddrTable"]["b"]["brokerAddrs"]
    addresses["2"] = addresses.pop("0")


def queue_counts(patient: Patient) -> None:
    other = {**patient.bodies[105]["queueDatas"][0], "brokerName": "c", "readQueueNums": 4, "writeQueueNums": 4}
    patient.bodies[105]["queueDatas"].append(other)
    patient.bodies[105]["brokerDatas"].append({**patient.bodies[105]["brokerDatas"][0], "brokerName": "c"})


def unread(patient: Patient) -> None:
    patient.bodies[105]["queueDatas"][0]["writeQueueNums"] = 8


def wiped(patient: Patient) -> None:
    patient.bodies[105]["queueDatas"][0]["perm"] = 4


def read_only(patient: Patient) -> None:
    wiped(patient)
    patient.bodies[21]["topicConfigTable"]["T"]["perm"] = 4


def dead_letters(patient: Patient) -> None:
    patient.bodies[206]["topicList"].append("%DLQ%G")
    now = time.time_ns() // 1_000_000
    patient.bodies[202]["offsetTable"] = by_queue({"minOffset": 0, "maxOffset": 3, "lastUpdateTimestamp": now})


def nobody(patient: Patient) -> None:
    patient.members.clear()
    patient.bodies[208]["offsetTable"] = by_queue({"brokerOffset": 9, "consumerOffset": 5, "lastTimestamp": 1})


def differ(patient: Patient) -> None:
    patient.member("2@m", "red")


def no_owner(patient: Patient) -> None:
    patient.member("1@m", queues=(0,))


def beyond(patient: Patient) -> None:
    patient.bodies[208]["offsetTable"] = by_queue({"brokerOffset": 5, "consumerOffset": 6, "lastTimestamp": 1})


FAULTS: list[tuple[Callable[[Patient], None], str, str, str]] = [
    (clock, "clock", WARNING, "set-ntp true"),
    (disk, "disk", WARNING, "mqadmin deleteExpiredCommitLog -b "),
    (full, "disk", CRITICAL, "mqadmin deleteExpiredCommitLog -b "),
    (waiting, "send-wait", WARNING, "mqadmin brokerStatus -b "),
    (slow, "slow-disk", WARNING, "iostat"),
    (slow_writes, "slow-writes", WARNING, "mqadmin selftest DIR"),
    (slow_syncs, "slow-syncs", WARNING, "mqadmin selftest DIR"),
    (late, "loop-lag", WARNING, "other programs take the processor"),
    (advertised, "broker-unreachable", CRITICAL, "set brokerIP1 in broker.conf of c"),
    (unwilling, "broker-refuses", WARNING, "MQADMIN_ACCESS_KEY"),
    (not_ready, "not-ready", CRITICAL, "mqadmin config get --broker 127.0.0.1:"),
    (slave_too_far, "not-ready", CRITICAL, "start a slave that follows"),
    (departed, "broker-gone", CRITICAL, "start it at h: `mqbroker -c FILE`"),
    (two_masters, "contested", CRITICAL, ", `mqadmin config get --broker localhost:"),
    (accounts, "accounts-rejected", CRITICAL, "mqbroker -c FILE --check"),
    (no_broker, "no-broker", CRITICAL, "mqbroker -n "),
    (no_master, "no-master", CRITICAL, "start the master of c"),
    (no_slave, "no-slave", CRITICAL, "-k brokerRole -v ASYNC_MASTER"),
    (no_majority, "dledger-member-away", CRITICAL, "start their brokers; `mqadmin dledger members G`"),
    (no_leader, "dledger-no-leader", CRITICAL, "mqadmin dledger members G"),
    (queue_counts, "queue-counts", WARNING, "mqadmin updateTopic -c C -t T -r 4 -w 4"),
    (unread, "unread-queues", WARNING, "mqadmin updateTopic -c C -t T -r 8 -w 8"),
    (wiped, "wiped", WARNING, "mqadmin addWritePerm -b b"),
    (read_only, "permission", INFORMATION, "mqadmin updateTopicPerm -t T -p 6 -c C"),
    (dead_letters, "dead-letters", WARNING, "mqadmin dlq resend G --all"),
    (nobody, "nobody-reads", WARNING, "mqadmin deleteSubGroup -g G -c C -r true"),
    (beyond, "offset-beyond-end", WARNING, "mqadmin offsets reset G T --to last"),
    (differ, "subscriptions-differ", CRITICAL, "mqadmin consumerConnection -g G"),
    (no_owner, "no-owner", WARNING, "mqadmin consumerStatus -g G"),
]


@pytest.mark.parametrize(("make", "code", "severity", "mend"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS])
def test_each_fault_is_found_with_what_mends_it(
    make: Callable[[Patient], None], code: str, severity: str, mend: str, patient: Patient, capsys: Capture
) -> None:
    make(patient)
    status = {CRITICAL: 2, WARNING: 1, INFORMATION: 0}[severity]
    assert main(["doctor", "-n", patient.address, "--output", "json"]) in (status, 2)
    found = [item for item in check("doctor", capsys.readouterr().out) if item["code"] == code]
    assert [item["severity"] for item in found] == [severity]
    assert mend in found[0]["mend"]
    assert found[0]["why"]


def test_versions_that_differ_are_a_finding_until_the_upgrade_is_done() -> None:
    [found] = versions_differ({"V4_9_7": ["b:1", "c:1"], "V4_9_4": ["a:1"], "": ["d:1"]})
    assert (found.code, found.severity) == ("versions-differ", WARNING)
    assert "V4_9_4 at a:1; V4_9_7 at b:1, c:1" in found.what
    assert "mqadmin brokerStatus -b a:1" in found.mend
    assert list(versions_differ({"V4_9_7": ["b:1"], "": ["d:1"]})) == []


def test_builds_that_differ_are_a_finding_and_rocketmq_beside_them_is_none() -> None:
    one, other = ({"product": "TrioMQ", "productVersion": f"0.1.0.dev{number}+gabc"} for number in (1547, 1940))
    assert build_of({"brokerVersionDesc": "V4_9_7"}) == ""
    [found] = builds_differ({build_of(one): ["a:1"], build_of(other): ["b:1"], "": ["d:1"]})
    assert (found.code, found.severity) == ("builds-differ", WARNING)
    assert "TrioMQ 0.1.0.dev1547+gabc at a:1; TrioMQ 0.1.0.dev1940+gabc at b:1" in found.what
    assert "mqadmin version" in found.mend
    assert list(builds_differ({build_of(one): ["a:1"], "": ["d:1"]})) == []


def test_doctor_asks_all_brokers_for_their_build(patient: Patient, capsys: Capture) -> None:
    with fake_cluster(Patient()) as other:
        assert isinstance(other, Patient)
        other.prepare()
        for number, each in enumerate((patient, other)):
            each.bodies[28]["table"] |= {"product": "TrioMQ", "productVersion": f"0.1.0.dev{number}+gabc"}
        table = patient.bodies[106]["brokerAddrTable"]
        [data] = table.values()
        data["brokerAddrs"]["1"] = other.address
        assert "builds-differ" in {found["code"] for found in findings(patient.address, capsys, 1)}


def test_an_offset_at_the_end_of_its_queue_is_no_finding(patient: Patient, capsys: Capture) -> None:
    patient.bodies[208]["offsetTable"] = by_queue({"brokerOffset": 6, "consumerOffset": 6, "lastTimestamp": 1})
    assert findings(patient.address, capsys, 0) == []


def test_an_offset_beyond_the_end_hides_no_backlog(patient: Patient, capsys: Capture) -> None:
    one, two = by_queue({})
    patient.bodies[208]["offsetTable"] = {
        one: {"brokerOffset": 15, "consumerOffset": 5000, "lastTimestamp": 1},
        two: {"brokerOffset": 15, "consumerOffset": 0, "lastTimestamp": 1},
    }
    patient.members.clear()
    [beyond, waits] = findings(patient.address, capsys, 1)
    assert "1 queues of T: b/0 is at 5000 of 15" in beyond["what"]
    assert "15 messages wait" in waits["what"]
    for words in (["lag"], ["lag", "G"], ["offsets", "show", "G"], ["top", "--once"], ["check", "lag", "G"]):
        status = main([*words, "-n", patient.address, "--output", "json"])
        items = check(" ".join(words[:2]) if words[0] in ("offsets", "check") else words[0], capsys.readouterr().out)
        numbers = [item[key] for item in items for key in ("backlog", "value") if item.get(key) is not None]
        assert (status, max(numbers), min(numbers) >= 0) == (0, 15, True), words


@pytest.mark.parametrize(
    "times",
    [
        "[<=0ms]:991 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:9 ",
        "[<=0ms]:991 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:500 [200~500ms]:0 ",
        "[<=0ms]:9991 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:50 ",
        "",
        "null",
    ],
)
def test_a_few_slow_writes_are_no_finding(times: str, patient: Patient, capsys: Capture) -> None:
    patient.bodies[28]["table"]["putMessageDistributeTime"] = times
    assert findings(patient.address, capsys, 0) == []


@pytest.mark.parametrize(
    "values",
    [
        {"syncTimes": "9", "syncLatency99": "900.00"},
        {"syncLatency99": "900.00"},
        {"syncTimes": "10", "syncLatency99": "200.00"},
        {"eventLoopLagMax": "500.00"},
        {"syncTimes": "x", "syncLatency99": "900.00", "eventLoopLagMax": "x"},
        {"syncTimes": None, "eventLoopLagMax": None},
    ],
)
def test_few_or_quick_syncs_and_a_short_lag_are_no_finding(
    values: dict[str, str], patient: Patient, capsys: Capture
) -> None:
    patient.bodies[28]["table"] |= values
    assert findings(patient.address, capsys, 0) == []


def test_a_slave_that_is_behind(patient: Patient, capsys: Capture) -> None:
    patient.bodies[28]["table"]["commitLogMaxOffset"] = str(2**30)
    with fake_cluster(Patient()) as slave:
        assert isinstance(slave, Patient)
        slave.prepare()
        slave.bodies[28]["table"]["commitLogMaxOffset"] = "0"
        patient.bodies[106]["brokerAddrTable"]["b"]["brokerAddrs"]["1"] = slave.address
        [found] = findings(patient.address, capsys, 1)
    assert found["code"] == "slave-behind"
    assert "lacks 1024 MiB" in found["what"]


def test_a_leader_without_other_members_in_its_group_is_no_master_without_a_slave(
    patient: Patient, capsys: Capture
) -> None:
    member(patient, peers="n0-h:1")
    no_slave(patient)
    assert findings(patient.address, capsys, 0) == []


@pytest.mark.parametrize("is_java", [False, True])
def test_a_member_that_is_away_and_lists_of_members_that_differ(
    is_java: bool, patient: Patient, capsys: Capture
) -> None:
    """RocketMQ's members say nothing about their group in their runtime information, but are there."""
    member(patient)
    with fake_cluster(Patient()) as follower:
        assert isinstance(follower, Patient)
        follower.prepare()
        patient.bodies[106]["brokerAddrTable"]["b"]["brokerAddrs"]["2"] = follower.address
        if not is_java:
            member(follower, "n1")
        [found] = findings(patient.address, capsys, 1)
        assert found["code"] == "dledger-member-away"
        assert found["what"].startswith("1 of the 3 members" if is_java else "n2 of the 3 members")
        if not is_java:
            member(follower, "n1", "n0-h:1;n1-h:2")
            assert [each["code"] for each in findings(patient.address, capsys, 1)] == [
                "dledger-member-away",
                "dledger-peers",
            ]


def test_a_member_that_lacks_the_tables_of_its_master(patient: Patient, capsys: Capture) -> None:
    member(patient, peers="n0-h:1")
    no_slave(patient)
    patient.bodies[28]["table"]["dledgerLacks"] = "the tables of the master were not copied"
    [found] = findings(patient.address, capsys, 1)
    assert found["code"] == "dledger-tables"
    assert "n0 of the group" in found["what"] and "were not copied" in found["what"]


def test_name_servers_that_disagree_or_are_down(patient: Patient, capsys: Capture) -> None:
    with fake_cluster(Patient()) as other:
        assert isinstance(other, Patient)
        other.prepare()
        other.bodies[106] = {"brokerAddrTable": {}, "clusterAddrTable": {}}
        [found] = findings(f"{patient.address};{other.address}", capsys, 2)
    assert found["code"] == "not-registered"
    assert other.address in found["mend"]
    [found] = findings(f"{patient.address};127.0.0.1:1", capsys, 2)
    assert found["code"] == "nameserver-down"
    assert found["mend"] == "start it: `mqnamesrv -c FILE`, with listenPort=1 in it"


@pytest.mark.parametrize("is_broker", [True, False])
def test_a_daemon_that_is_hung_is_told_from_one_that_is_away_and_asked_once(
    is_broker: bool, patient: Patient, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "PATIENCE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as stopped:  # as after SIGSTOP: the kernel accepts for it
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        name_servers = patient.address
        if is_broker:
            data = {"brokerName": "c", "cluster": "C", "brokerAddrs": {"0": address}}
            patient.bodies[106]["brokerAddrTable"]["c"] = data
        else:
            name_servers = f"{patient.address};{address}"
        [found] = [each for each in findings(name_servers, capsys, 2) if each["code"] == "hung"]
        assert (found["code"], found["subject"]) == ("hung", "c" if is_broker else address)
        assert "kill -CONT PID" in found["mend"]
        asked = 0
        stopped.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = stopped.accept()
                with connection:
                    connection.setblocking(False)
                    # The others look for HTTP, or for another daemon.
                    asked += b'"code":28' in (data := connection.recv(4096)) or b'"code":106' in data
    assert asked <= 2, "once, and once to see whether it is another kind of daemon"


def test_secrets_that_others_can_read(
    patient: Patient, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "conf").mkdir()
    tools = tmp_path / "conf" / "tools.yml"
    tools.write_text("accessKey: a-key-of-mine\nsecretKey: very-secret-1\n")
    tools.chmod(0o644)
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert main(["doctor", "-n", patient.address]) == 2
    printed = capsys.readouterr().out
    assert f"chmod 600 {tools}" in printed
    assert "very-secret-1" not in printed
    tools.chmod(0o600)
    assert findings(patient.address, capsys, 0) == []


def test_a_group_with_members_that_are_not_asked_is_not_said_to_lack_owners(
    patient: Patient, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them may own the other queue."""
    patient.member("1@m", queues=(0,))
    patient.member("2@m", queues=(1,))
    monkeypatch.setattr(groups, "MAX_MEMBERS_ASKED", 1)
    assert findings(patient.address, capsys, 0) == []


def test_what_cannot_be_examined_is_a_finding(patient: Patient, capsys: Capture) -> None:
    patient.refusals[206] = (1, "no")
    found = findings(patient.address, capsys, 2)
    assert {item["code"] for item in found} == {"topics-unknown", "groups-unknown"}
