"""The methods of apache.rocketmq.v2.MessagingService, by path, and what the connections of a broker share."""

from __future__ import annotations

from typing import Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.grpc.call import Method
from triomq.broker.grpc.consuming import Consuming
from triomq.broker.grpc.held import Held
from triomq.broker.grpc.producing import Producing
from triomq.broker.grpc.routes import Routes
from triomq.broker.grpc.telemetry import Registering
from triomq.broker.grpc.traces import Traces
from triomq.grpc_front import schema

_PATH: Final = f"/{schema.PACKAGE}.MessagingService/"


class Methods:
    """See the module's docstring. `port` is that of remoting."""

    def __init__(self, serving: Serving) -> None:
        tables = serving.tables
        self.port = serving.host.port
        self.max_message_bytes = tables.configuration.server.max_frame_bytes
        self.listeners = tables.listeners
        self._pop = serving.pop
        registering = Registering(serving)
        routes = Routes(serving)
        traces = Traces(serving)
        producing = Producing(serving, traces)
        consuming = Consuming(serving, routes, traces)
        urgent = [
            Method("Heartbeat", schema.HeartbeatRequest, schema.HeartbeatResponse, registering.heartbeat, True),
            Method("Telemetry", schema.TelemetryCommand, schema.TelemetryCommand, registering.told, True, True),
        ]
        others = [
            ("QueryRoute", routes.query),
            ("SendMessage", producing.send),
            ("EndTransaction", producing.end_transaction),
            ("QueryAssignment", consuming.query_assignment),
            ("ReceiveMessage", consuming.receive),
            ("AckMessage", consuming.acknowledge),
            ("ChangeInvisibleDuration", consuming.change_invisible_duration),
            ("ForwardMessageToDeadLetterQueue", consuming.forward_to_dead_letters),
            ("NotifyClientTermination", registering.terminate),
        ]
        methods = [
            Method(name, getattr(schema, f"{name}Request"), getattr(schema, f"{name}Response"), function)
            for name, function in others
        ]
        self._methods = {f"{_PATH}{method.name}".encode(): method for method in [*urgent, *methods]}

    def at(self, path: bytes) -> Method | None:
        """Return the method of a path; None if this broker has none there."""
        return self._methods.get(path)

    def held(self) -> Held:
        """Return what a new client has received: nothing."""
        return Held(self._pop)
