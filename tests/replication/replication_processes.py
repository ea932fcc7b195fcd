"""Masters and slaves as processes, TrioMQ's or Apache's, with a NameServer, and a small client on plain sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

import interop_wire as wire
from apache_peer import find_peer
from free_ports import PortTaken, free_port
from interop_cluster import PROJECT, Daemon
from interop_processes import wait_until

SEND_MESSAGE_V2 = 310
PULL_MESSAGE = 11
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
GET_ALL_TOPIC_CONFIG = 21
GET_MAX_OFFSET = 30
LOG_FILE_BYTES = 1 << 20
IN_FLIGHT = 50
STARTS = 3
SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "haSendHeartbeatInterval": "1000",
    "haHousekeepingInterval": "5000",
    # Sends that wait for a slow machine are not refused.
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}


class Broker:
    """One broker with its own directory and port; its settings may change between runs."""

    def __init__(self, kind: str, directory: Path, namesrv: str, settings: dict[str, str]) -> None:
        self.kind = kind
        self.directory = directory
        self.namesrv = namesrv
        self.host = "127.0.0.1"
        self.port = free_port()
        self.settings = {**SETTINGS, **settings}
        self.store = directory / "store"
        self.command_prefix: list[str] = []
        self.program = [str(PROJECT / "bin" / "mqbroker")]  # of TrioMQ
        self.daemon: Daemon | None = None
        directory.mkdir(parents=True)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def ha_address(self) -> str:
        return f"{self.host}:{self.port + 1}"

    def start(self, **changes: str) -> None:
        """Start with these settings, which stay changed. On its first start the broker uses another port if its own has
        been taken; later the others know its address.
        """
        self.settings.update(changes)
        is_first = self.daemon is None
        for starts_left in reversed(range(STARTS)):
            try:
                self.start_here()
                return
            except PortTaken:
                if not is_first or not starts_left:
                    raise
                self.port = free_port()

    def start_here(self) -> None:
        """Start on its present port. Raises PortTaken."""
        self.daemon = Daemon([*self.command_prefix, *self._command()], self.directory, self.address)
        self.daemon.start()

    def _command(self) -> list[str]:
        if self.kind == "apache":
            peer = find_peer()
            assert peer is not None
            changed = [f"{key}={value}" for key, value in self.settings.items()]
            return [str(peer), "broker", str(self.directory), str(self.port), self.namesrv, *changed]
        pairs = {
            "listenPort": str(self.port),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            **self.settings,
        }
        path = self.directory / "broker.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
        return [*self.program, "-c", str(path)]

    @property
    def pid(self) -> int:
        assert self.daemon is not None
        assert self.daemon.child is not None
        return self.daemon.child.pid

    def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.stop()

    def kill(self) -> None:
        """Kill the daemon. Apache's creates a file of the log in advance, and then gives it its size. Killed between
        the two, it does not start again ("length not matched"), so this waits for the size."""
        files = self.store / "commitlog"
        wait_until(lambda: all(path.stat().st_size for path in files.glob("[0-9]*")), 30, "the log's files have a size")
        if self.daemon is not None:
            self.daemon.kill()

    def log(self) -> bytes:
        """Return the written part of the commit log; zeros stand for files that a slave does not have."""
        parts = bytearray()
        for path in sorted((self.store / "commitlog").glob("[0-9]*")):
            parts += bytes(int(path.name) - len(parts))
            parts += path.read_bytes()
        return bytes(parts).rstrip(b"\0")

    def newest_file(self) -> tuple[str, bytes]:
        """Return name and bytes of the newest file that has any."""
        for path in sorted((self.store / "commitlog").glob("[0-9]*"), reverse=True):
            if data := path.read_bytes().rstrip(b"\0"):
                return path.name, data
        return "", b""

    def log_begin(self) -> int:
        return min(int(path.name) for path in (self.store / "commitlog").glob("[0-9]*"))


def equal_logs(one: Broker, other: Broker) -> bool:
    """Return whether both logs have the same length, and the same bytes where both have any. Tests poll this, so it
    reads the newest files first.
    """
    try:
        if one.newest_file() != other.newest_file():
            return False
        begin = max(one.log_begin(), other.log_begin())
        return one.log()[begin:] == other.log()[begin:]
    except (ValueError, FileNotFoundError):  # no files yet, or one is being deleted
        return False


def is_prefix(slave: Broker, master: Broker) -> bool:
    """Return whether the slave's bytes equal the master's at the same offsets."""
    begin = slave.log_begin()
    mine = slave.log()[begin:]
    return master.log()[begin : begin + len(mine)] == mine


class NameServer(Daemon):
    def __init__(self, kind: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        port = free_port()
        if kind == "apache":
            command = [str(find_peer()), "namesrv", str(directory), str(port)]
        else:
            path = directory / "namesrv.conf"
            path.write_text(f"listenPort={port}\nkvConfigPath={directory / 'kvConfig.json'}\n")
            command = [str(PROJECT / "bin" / "mqnamesrv"), "-c", str(path)]
        super().__init__(command, directory, f"127.0.0.1:{port}")

    def brokers(self, name: str = "broker-a") -> dict[str, str]:
        """Return broker id -> address."""
        answer = wire.ask(self.address, wire.GET_BROKER_CLUSTER_INFO)
        table = wire.lenient_json(answer.body)["brokerAddrTable"] if answer.code == 0 else {}
        return dict(table.get(name, {}).get("brokerAddrs", {}))


def create_topic(broker: Broker, topic: str, queues: int = 4) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    answer = wire.ask(broker.address, wire.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == 0, answer


def send_fields(topic: str, queue_id: int = 0, properties: str = "") -> dict[str, Any]:
    return {
        "a": "PID_test",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": properties,
        "j": 0,
        "k": "false",
        "m": "false",
    }


def send(connection: wire.Wire, topic: str, body: bytes, queue_id: int = 0) -> wire.Answer:
    return connection.call(SEND_MESSAGE_V2, send_fields(topic, queue_id), body)


def send_many(broker: Broker, topic: str, count: int, body: bytes = b"x" * 500) -> list[int]:
    """Send messages, several at a time. Return the response codes in the order of the sends."""
    codes: dict[int, int] = {}
    with wire.Wire(broker.address) as connection:
        for begin in range(0, count, IN_FLIGHT):
            numbers = range(begin, min(begin + IN_FLIGHT, count))
            frames = [wire.request(SEND_MESSAGE_V2, send_fields(topic, n % 4), b"%d " % n + body) for n in numbers]
            connection.send(b"".join(frames))
            for _ in numbers:
                answer = connection.receive()
                assert answer is not None, "the connection was closed instead of answering a send"
                codes[answer.opaque] = answer.code
    return [code for _, code in sorted(codes.items())]


def pull(broker: Broker, topic: str, queue_id: int, queue_offset: int, group: str = "CID_test") -> wire.Answer:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 1000,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return wire.ask(broker.address, PULL_MESSAGE, fields)


class Traffic:
    """A producer thread that keeps sending, whatever the responses, and records acknowledged messages (code 0)."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.acknowledged: set[bytes] = set()
        self.codes: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        connection: wire.Wire | None = None
        while not self._stop.is_set():
            try:
                if connection is None:
                    connection = wire.Wire(self.broker.address, 5)
                body = b"traffic-%08d-" % number + b"z" * 300
                number += 1
                answer = send(connection, self.topic, body, number % 4)
                self.codes[answer.code] = self.codes.get(answer.code, 0) + 1
                if answer.code == 0:
                    self.acknowledged.add(body)
            except (OSError, AssertionError):
                if connection is not None:
                    connection.socket.close()
                connection = None
                self._stop.wait(0.05)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)


class TcpProxy:
    """Stands in for a master's HA port: it can refuse, break and delay connections, and drop bytes."""

    def __init__(self, master: Broker) -> None:
        self.master = master
        self.mode = "pass"
        self.delay_seconds = 0.0
        self.connections = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.break_all()

    def break_all(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            host, port = self.master.ha_address.split(":")
            try:
                if self.mode == "refuse":
                    raise OSError
                server = socket.create_connection((host, int(port)), 2)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            self._sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if self.delay_seconds:
                    time.sleep(self.delay_seconds)
                if self.mode != "swallow":
                    sink.sendall(data)
        except OSError:
            pass
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class Cluster:
    """A NameServer, a master and a slave."""

    def __init__(self, directory: Path, master: str = "triomq", slave: str = "triomq", **settings: str) -> None:
        self.namesrv = NameServer("triomq", directory / "namesrv")
        address = self.namesrv.address
        self.master = Broker(
            master, directory / "master", address, {"brokerRole": "SYNC_MASTER", "brokerId": "0", **settings}
        )
        self.slave = Broker(slave, directory / "slave", address, {"brokerRole": "SLAVE", "brokerId": "1", **settings})
        self.proxies: list[TcpProxy] = []

    def proxy(self) -> TcpProxy:
        """Connect the slave to its master through a proxy."""
        proxy = TcpProxy(self.master)
        self.proxies.append(proxy)
        self.slave.settings["haMasterAddress"] = proxy.address
        return proxy

    def start(self) -> None:
        self.namesrv.start()
        self.master.start()
        self.slave.start()
        wait_until(lambda: len(self.namesrv.brokers()) == 2, 40, "both brokers are registered")

    def wait_equal(self, seconds: float = 60) -> None:
        wait_until(lambda: equal_logs(self.master, self.slave), seconds, "the slave has the master's log")

    def wait_equal_queues(self, topic: str, queues: int = 4, seconds: float = 60) -> None:
        """Wait until both have the same queue entries: a broker adds them a moment after the record is in its log."""

        def is_equal() -> bool:
            return self.queue_ends(self.master, topic, queues) == self.queue_ends(self.slave, topic, queues)

        wait_until(is_equal, seconds, "the slave has the master's queue entries")

    @staticmethod
    def queue_ends(broker: Broker, topic: str, queues: int = 4) -> list[str | None]:
        """Return the maximum offset of each queue."""
        fields = [{"topic": topic, "queueId": queue_id} for queue_id in range(queues)]
        return [wire.ask(broker.address, GET_MAX_OFFSET, each).fields.get("offset") for each in fields]

    def wait_replicating(self, topic: str, seconds: float = 40) -> None:
        """Wait until the slave, too, acknowledges a send."""

        def is_acknowledged() -> bool:
            with wire.Wire(self.master.address) as connection:
                return send(connection, topic, b"are you there").code == 0

        wait_until(is_acknowledged, seconds, "sends are acknowledged by the slave")

    def end(self) -> None:
        for daemon in (self.slave, self.master, self.namesrv):
            daemon.kill()
        for proxy in self.proxies:
            proxy.close()
