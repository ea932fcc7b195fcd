"""A session that replays the responses of RocketMQ 4.9.7 to its own mqadmin for the same command."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

from golden_data import golden_lines

from triomq.admin.command import find_command
from triomq.admin.commands import function_of
from triomq.admin.errors import AdminError
from triomq.admin.output import TEXT, Output
from triomq.admin.run import Run
from triomq.admin.session import Session
from triomq.protocol.json_frame import Response, decode_response

NAME_SERVER = "127.0.0.2:21676"
ROUTE = 105


class Replay(Session):
    """The recorded responses of one scenario."""

    def __init__(self, scenario: str) -> None:
        super().__init__(NAME_SERVER)
        self.asked: list[tuple[int, dict[str, str]]] = []
        self._recorded: list[tuple[int, dict[str, str], Response]] = []
        requests: dict[tuple[Any, Any, Any], tuple[int, dict[str, str]]] = {}
        for frame in _frames(scenario):
            header = frame["header"]
            ends = frozenset((frame["from"], frame["to"]))
            key = (frame["conn"], ends, header["opaque"])
            if frame["type"] == "request":
                requests[key] = (frame["code"], header.get("extFields") or {})
            elif key in requests:
                code, fields = requests[key]
                self._recorded.append((code, fields, decode_response(bytes.fromhex(frame["frame_hex"])[4:])))

    def _response_about(self, topic: str) -> Response | None:
        found = [each for code, fields, each in self._recorded if code == ROUTE and fields.get("topic") == topic]
        return next((each for each in found if not each.code), None)

    def request(
        self,
        address: str,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        timeout_seconds: float | None = None,
        language: str = "PYTHON",
    ) -> Response:
        texts = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in (fields or {}).items()
            if value is not None
        }
        self.asked.append((code, texts))
        same_code = [entry for entry in self._recorded if entry[0] == code]
        if code == ROUTE and not same_code:
            return _route_of(texts["topic"])
        assert same_code, f"RocketMQ's mqadmin never sent request {code} to this end"
        matching = [entry for entry in same_code if _is_about(entry[1], texts)]
        if matching:
            if len(matching) > 1:
                self._recorded.remove(matching[0])
            return matching[0][2]
        if code == ROUTE:
            return _route_of(texts["topic"])
        # The recording omits frames equal to earlier ones; most of those are refusals.
        return next((response for _, _, response in same_code if response.code), same_code[-1][2])


def _is_about(recorded: dict[str, str], asked: dict[str, str]) -> bool:
    return all(recorded.get(key, text) == text for key, text in asked.items() if key in NAMING)


@cache
def _route_of(topic: str) -> Response:
    """Return the recorded route that Java's client had cached from an earlier command."""
    found = [
        Replay(scenario)._response_about(topic)
        for scenario in dict.fromkeys(frame.get("scenario") for frame in golden_lines("wire", "frames_admin_json"))
    ]
    known = [response for response in found if response is not None]
    return known[0] if known else _route_of("WireTwo")  # one queue at the one broker, as most topics have


# The fields that identify the subject of a request; the others hold times, ids and counters of the run.
NAMING = {
    "topic",
    "consumerGroup",
    "group",
    "groupName",
    "queueId",
    "key",
    "namespace",
    "clientId",
    "brokerName",
    "offset",
    "queueOffset",
    "statsName",
    "statsKey",
    "accessKey",
    "b",
    "producerGroup",
    "subscription",
}


def _frames(scenario: str) -> list[dict[str, Any]]:
    return [frame for frame in golden_lines("wire", "frames_admin_json") if frame.get("scenario") == scenario]


def recorded_runs() -> dict[str, dict[str, Any]]:
    """Return, by name, the runs of mqadmin whose frames were recorded."""
    scenarios = {frame.get("scenario") for frame in golden_lines("wire", "frames_admin_json")}
    return {run["name"]: run for run in golden_lines("mqadmin", "outputs") if f"admin:{run['name']}" in scenarios}


def replayed(name: str, words: list[str], form: str = TEXT) -> tuple[str, AdminError | None, Replay]:
    """Run our command on the recorded responses. Return its output, its error and its requests."""
    command = find_command(words[0])
    assert command is not None
    stream = io.StringIO()
    session = Replay(f"admin:{name}")
    out = Output(stream, form)
    run = Run(session, command.parse(words[1:]), out)
    failure: AdminError | None = None
    try:
        function_of(command.name)(run)
        out.finish()
        run.finish()
    except AdminError as error:
        failure = error
    return stream.getvalue(), failure, session
