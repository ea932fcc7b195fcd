"""Name servers and brokers on loopback whose responses a test scripts: one listener, one thread per connection."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from free_ports import free_port

from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.frame import FrameDecoder, encode_frame

Respond = Callable[[RemotingCommand], RemotingCommand | None]
"""The response to one request, or None to close the connection."""


class ScriptedServer:
    """`script`: request code -> its response; other codes get SYSTEM_ERROR. `requests`: all requests received, in
    order. The connections' threads append to it; tests read it once the responses have arrived.
    """

    def __init__(self, listener: socket.socket, script: dict[int, Respond]) -> None:
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.script = script
        self.requests: list[RemotingCommand] = []
        self._listener = listener

    def count(self, code: int) -> int:
        return sum(request.code == code for request in self.requests)

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                for request in decoder.feed(data):
                    self.requests.append(request)
                    respond = self.script.get(request.code)
                    response = new_response(request, ResponseCode.SYSTEM_ERROR, "not in the script")
                    if respond is not None:
                        scripted = respond(request)
                        if scripted is None:
                            return
                        response = scripted
                    connection.sendall(encode_frame(response))


@contextmanager
def scripted_server(script: dict[int, Respond] | None = None) -> Iterator[ScriptedServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ScriptedServer(listener, {} if script is None else script)
        threading.Thread(target=server.accept, daemon=True).start()
        yield server
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def closed_address() -> str:
    """Return an address where nothing listens."""
    return f"127.0.0.1:{free_port()}"


class Registry:
    """The content of a scripted name server. `brokers`: broker name -> addresses by broker id; `topics`: topic ->
    broker name -> (read queues, write queues, permission).
    """

    def __init__(self) -> None:
        self.brokers: dict[str, dict[int, str]] = {}
        self.topics: dict[str, dict[str, tuple[int, int, int]]] = {}

    def script(self) -> dict[int, Respond]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topic_list,
        }

    def route(self, request: RemotingCommand) -> RemotingCommand:
        queues = self.topics.get((request.ext_fields or {})["topic"])
        if queues is None:
            return new_response(request, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        datas = [
            {"brokerName": name, "readQueueNums": reads, "writeQueueNums": writes, "perm": perm, "topicSynFlag": 0}
            for name, (reads, writes, perm) in queues.items()
        ]
        brokers = [
            {"brokerName": name, "brokerAddrs": self.brokers[name], "cluster": "c"}
            for name in queues
            if name in self.brokers
        ]
        return self._json(request, {"brokerDatas": brokers, "queueDatas": datas})

    def cluster(self, request: RemotingCommand) -> RemotingCommand:
        table = {
            name: {"brokerName": name, "brokerAddrs": addresses, "cluster": "c"}
            for name, addresses in self.brokers.items()
        }
        return self._json(request, {"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}})

    def topic_list(self, request: RemotingCommand) -> RemotingCommand:
        return self._json(request, {"topicList": list(self.topics)})

    @staticmethod
    def _json(request: RemotingCommand, value: object) -> RemotingCommand:
        return new_response(request, ResponseCode.SUCCESS, body=json.dumps(value).encode())
