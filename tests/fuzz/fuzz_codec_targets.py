"""The fuzz targets over codecs in Python: headers, bodies, properties, and what slaves and masters send each other.

A target accepts any bytes and fails if a decoder raises anything but the error that it declares, or if a value that was
decoded does not survive its own encoder. Where there are many classes, the first byte of an input chooses one.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import struct
from collections.abc import Callable
from types import ModuleType

from registrations_read import compressed_registration, read_all

from triomq.broker.replication import frames
from triomq.broker.replication.frames import ReportDecoder, TransferDecoder
from triomq.dledger.member import sense
from triomq.dledger.wire import bodies as dledger_bodies
from triomq.http2 import events as http2_events
from triomq.http2 import frames as http2_frames
from triomq.http2 import header_block, hpack, huffman, sending, server_side
from triomq.http2.errors import HeaderFault
from triomq.http2.hpack import HeaderDecoder, encode_fields
from triomq.http2.server_side import Bounds, ServerSide
from triomq.protocol import address, bodies, compression, entries, java_properties, message_id, record
from triomq.protocol.address import HostPort
from triomq.protocol.bodies import base as body_base
from triomq.protocol.bodies import fastjson_reader, fastjson_writer, heartbeat, route, topic_config
from triomq.protocol.bodies.base import Body
from triomq.protocol.bodies.registration import read_old_registration, read_registration
from triomq.protocol.errors import BodyError, FrameError, HeaderFieldError, ProtocolError, RecordError
from triomq.protocol.headers import base, registry
from triomq.protocol.headers.base import Header

Target = Callable[[bytes], None]

HEADERS: list[type[Header]] = sorted(
    {
        each
        for table in (registry.REQUEST_HEADERS, registry.RESPONSE_HEADERS)
        for each in table.values()
        if each is not None
    },
    key=lambda each: each.__name__,
)
HEARD_BYTES = 1 << 16


def _body_classes() -> list[type[Body]]:
    """Return all records of protocol/bodies, by name."""
    for module in pkgutil.iter_modules(bodies.__path__):
        importlib.import_module(f"{bodies.__name__}.{module.name}")
    return sorted(Body.__subclasses__(), key=lambda each: each.__name__)


BODIES = _body_classes()


def header_fields(data: bytes) -> None:
    """Number of the class @0 | 0: entries, else JSON @1 | the fields @2."""
    if len(data) < 2:
        return
    cls, rest = HEADERS[data[0] % len(HEADERS)], data[2:]
    try:
        if data[1]:
            header = base.decode_header_json(cls, rest)
        else:
            header = base.decode_header(cls, entries.decode_entries(rest, 0, len(rest)))
    except (HeaderFieldError, FrameError):
        return
    except UnicodeDecodeError:
        assert not data[1]  # of entries, which a connection answers as an invalid frame
        return
    assert base.decode_header(cls, base.encode_header(header)) == header


def json_bodies(data: bytes) -> None:
    """Number of the class @0 | text @1."""
    if not data:
        return
    cls = BODIES[data[0] % len(BODIES)]
    try:
        body = cls.decode(data[1:])
    except BodyError:
        return
    text = body.encode()
    assert cls.decode(text).encode() == text


def member_requests(data: bytes) -> None:
    """Number of the request @0 | body @1. What a member takes can be written again, and its numbers have
    room in files."""
    if not data:
        return
    kind = list(dledger_bodies.REQUESTS.values())[data[0] % len(dledger_bodies.REQUESTS)]
    try:
        request = kind.decode_request(data[1:])
    except BodyError:
        return
    if sense.fault(request) is not None:
        return
    assert -1 <= request.term <= sense.LARGEST
    if isinstance(request, dledger_bodies.PushRequest):
        assert all(0 <= entry.index * 32 < 1 << 62 and 0 <= entry.pos < 1 << 62 for entry in request.entries)
    text = request.encode()
    assert kind.decode_request(text).encode() == text


def registration_body(data: bytes) -> None:
    """The registration of a broker: plain, and before and after its compression."""
    for read in (read_registration, read_old_registration):
        with contextlib.suppress(BodyError):
            read_all(read(data))
    with contextlib.suppress(BodyError):
        compressed_registration(data)
    with contextlib.suppress(BodyError):
        found = compressed_registration(compression.compress(data))
        text = found.encode_compressed()
        assert compressed_registration(text).encode_compressed() == text


def properties_text(data: bytes) -> None:
    try:
        values = java_properties.parse(data.decode("utf-8", "replace"))
    except java_properties.PropertiesError:
        return
    assert java_properties.parse(java_properties.format(values)) == values


def replication_stream(data: bytes) -> None:
    """Size of the pieces in which the bytes arrive @0 | bytes @1. How they are cut changes nothing."""
    if not data:
        return
    size, rest = data[0] or 1, data[1:]
    for fresh in (_reports, _transfers):
        whole = fresh(rest, len(rest) or 1)
        assert fresh(rest, size)[: len(whole)] == whole or whole == []


def _reports(data: bytes, size: int) -> list[int]:
    decoder, found = ReportDecoder(), []
    with contextlib.suppress(FrameError):
        for at in range(0, len(data), size):
            found += decoder.feed(data[at : at + size])
    return found


def _transfers(data: bytes, size: int) -> list[tuple[int, int]]:
    """Return offset and byte of each log byte, and (offset, -1) for a heartbeat."""
    decoder = TransferDecoder()
    found: list[tuple[int, int]] = []
    with contextlib.suppress(FrameError):
        for at in range(0, len(data), size):
            for offset, log in decoder.feed(data[at : at + size]):
                found += enumerate(log, offset) if log else [(offset, -1)]
    return found


def whole_record(data: bytes) -> None:
    """A record as a client or an administrator's tool reads it, its body inflated."""
    with contextlib.suppress(RecordError):
        found = record.decode_record(data)
        assert len(found.body) <= HEARD_BYTES * 1024


def ids_and_addresses(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ProtocolError, ValueError):
        host, offset = message_id.parse_offset_message_id(text)
        packed = struct.unpack(">q", struct.pack(">q", offset))
        assert packed == (offset,) and host.port >= 0
    with contextlib.suppress(ProtocolError, ValueError):
        assert HostPort.parse(text).port >= 0


def http2_server(data: bytes) -> None:
    """Size of the pieces in which the bytes arrive @0 | what follows the preface and SETTINGS @1. How they are cut
    changes nothing, and whatever the client does, the windows are counted right."""
    if not data:
        return
    whole = _heard(data[1:], len(data))
    assert _heard(data[1:], data[0] or 1) == whole


def _heard(data: bytes, size: int) -> list[http2_events.Event]:
    """Return what a server hears that answers each request with its own body."""
    server = ServerSide(Bounds(max_streams=4, stream_window_bytes=1000))
    server.receive(http2_frames.PREFACE + http2_frames.encode_frame(http2_frames.SETTINGS, 0, 0))
    found: list[http2_events.Event] = []
    for at in range(0, len(data), size):
        found += server.receive(data[at : at + size])
        server.take_output()
    assert len(server) <= 4
    for event in found:
        if isinstance(event, http2_events.DataArrived):
            server.consumed(event.stream_id, len(event.data))
        elif isinstance(event, http2_events.RequestStarted):
            server.respond(event.stream_id, b"\x88")
            server.send_data(event.stream_id, bytes(100))
            server.send_end(event.stream_id, b"\x88")
    assert 0 <= server.pending_bytes <= 400
    return found


def http2_header_block(data: bytes) -> None:
    """Two header blocks of one connection, cut @0."""
    if not data:
        return
    decoder = HeaderDecoder()
    with contextlib.suppress(HeaderFault):
        for block in (data[1 : data[0] + 1], data[data[0] + 1 :]):
            found = decoder.decode(block)
            assert HeaderDecoder().decode(encode_fields(found)) == found or any(not name for name, _ in found)


def codec_targets() -> dict[str, tuple[Target, tuple[ModuleType, ...]]]:
    """Return name -> target, and the modules whose lines count."""
    huffman.decode_huffman(b"")  # which makes its table: no input is to pay for that
    text = (body_base, fastjson_reader, fastjson_writer)
    return {
        "header_fields": (header_fields, (base, entries)),
        "json_bodies": (json_bodies, (*text, heartbeat, route, topic_config)),
        "member_requests": (member_requests, (*text, dledger_bodies, sense)),
        "registration_body": (registration_body, (*text, topic_config)),
        "http2_server": (http2_server, (server_side, http2_frames, sending, header_block)),
        "http2_header_block": (http2_header_block, (hpack, huffman)),
        "properties_text": (properties_text, (java_properties,)),
        "replication_stream": (replication_stream, (frames,)),
        "whole_record": (whole_record, (record, compression)),
        "ids_and_addresses": (ids_and_addresses, (message_id, address)),
    }
