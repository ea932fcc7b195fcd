"""Hostile HTTP/2 beside a healthy client, which notices nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
import trio
from grpc_lab import LIMIT_SECONDS, Client, Code, Lab, acknowledging

from triomq.grpc_front import schema
from triomq.http2 import frames
from triomq.http2.frames import PREFACE, encode_frame
from triomq.http2.hpack import encode_fields

ATTACKERS = 4
FIELDS = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", f"/{schema.PACKAGE}.MessagingService/SendMessage".encode()),
    (b":authority", b"broker.example:18081"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"x-mq-client-id", b"attacker"),
]
BLOCK = encode_fields(FIELDS)
INDEXED = b"\x40\x01a" + b"\x7f\x81\x1e" + bytes(4000)
"""A field of 4,000 bytes, which the table of headers keeps; 0xBE repeats it."""
Frames = Iterator[bytes]


def opened(stream_id: int, block: bytes = BLOCK, flags: int = frames.END_HEADERS) -> bytes:
    return encode_frame(frames.HEADERS, flags, stream_id, block)


def rapid_reset() -> Frames:
    for stream_id in range(1, 20_001, 2):
        yield opened(stream_id) + encode_frame(frames.RST_STREAM, 0, stream_id, struct.pack(">I", 8))


def endless_headers() -> Frames:
    yield opened(1, flags=0)
    for _ in range(10_000):
        yield encode_frame(frames.CONTINUATION, 0, 1, b"\x40\x01a\x01b" * 100)


def settings() -> Frames:
    for number in range(10_000):
        yield encode_frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 4, number % 2))


def pings() -> Frames:
    for _ in range(10_000):
        yield encode_frame(frames.PING, 0, 0, bytes(8))


def windows() -> Frames:
    yield opened(1)
    for _ in range(10_000):
        yield encode_frame(frames.WINDOW_UPDATE, 0, 1, struct.pack(">I", 1))


def overflowing_window() -> Frames:
    yield encode_frame(frames.WINDOW_UPDATE, 0, 0, struct.pack(">I", frames.MAX_WINDOW))
    yield encode_frame(frames.PING, 0, 0, bytes(8))


def long_headers() -> Frames:
    yield opened(1, flags=0)
    for _ in range(20):
        yield encode_frame(frames.CONTINUATION, 0, 1, bytes(16_000))


def header_bomb() -> Frames:
    yield opened(1, BLOCK + INDEXED)
    for stream_id in range(3, 2003, 2):
        yield opened(stream_id, BLOCK + b"\xbe" * 16_000)


def empty_data() -> Frames:
    yield opened(1)
    for _ in range(10_000):
        yield encode_frame(frames.DATA, 0, 1)


def long_frame() -> Frames:
    yield frames.frame_head(1 << 20, frames.DATA, 0, 1) + bytes(1 << 20)


def many_streams() -> Frames:
    """Ten thousand calls that never end: those beyond the most of a connection are refused, until that is a flood."""
    for stream_id in range(1, 20_001, 2):
        yield opened(stream_id)


STRUCK_DOWN: dict[str, Callable[[], Frames]] = {
    each.__name__: each
    for each in (
        *(rapid_reset, endless_headers, settings, pings, windows, overflowing_window, long_headers, header_bomb),
        *(empty_data, long_frame, many_streams),
    )
}


def slow_bodies() -> Frames:
    """Messages that are announced, and of which nearly nothing comes."""
    for stream_id in range(1, 201, 2):
        yield opened(stream_id) + encode_frame(frames.DATA, 0, stream_id, b"\x00" + struct.pack(">I", 1 << 20) + b"x")


BOUNDED: dict[str, Callable[[], Frames]] = {each.__name__: each for each in (slow_bodies,)}


async def attack(broker: Lab, make: Callable[[], Frames], started: trio.Event) -> bool:
    """Send what there is, as fast as it goes. Return whether the broker has closed the connection."""
    stream = await trio.open_tcp_stream("127.0.0.1", broker.port)
    async with stream:
        try:
            await stream.send_all(PREFACE + encode_frame(frames.SETTINGS, 0, 0))
            for frame in make():
                started.set()
                await stream.send_all(frame)
            with trio.move_on_after(0.5):
                while await stream.receive_some(65536):
                    pass
                return True
        except trio.BrokenResourceError:
            return True
        finally:
            started.set()
    return False


async def healthy(client: Client, rounds: int) -> None:
    """Do what a client does, each call within its time."""
    beat = schema.HeartbeatRequest(client_type=schema.ClientType.SIMPLE_CONSUMER)
    for number in range(rounds):
        assert (await client.send_message(b"%d" % number)).status == Code.OK
        assert (await client.call("Heartbeat", beat)).status == Code.OK
        for message in await client.receive("g", grpc_timeout="1S"):
            assert (await client.call("AckMessage", acknowledging("g", message))).status == Code.OK


@pytest.mark.parametrize("name", [*STRUCK_DOWN, *BOUNDED])
async def test_a_healthy_client_notices_nothing_of_an_attack(broker: Lab, name: str) -> None:
    client = await broker.client("healthy")
    await client.subscribed("g")
    await healthy(client, 1)
    ends: list[bool] = []
    started = trio.Event()

    async def attack_once() -> None:
        ends.append(await attack(broker, {**STRUCK_DOWN, **BOUNDED}[name], started))

    with trio.fail_after(3 * LIMIT_SECONDS):
        async with trio.open_nursery() as nursery:
            for _ in range(ATTACKERS):
                nursery.start_soon(attack_once)
            await started.wait()
            await healthy(client, 5)
    assert ends == [name in STRUCK_DOWN] * ATTACKERS
    await healthy(client, 2)
