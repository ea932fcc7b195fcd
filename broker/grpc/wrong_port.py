"""What a client of another protocol gets on grpcServerPort: an answer that names the right port."""

from __future__ import annotations

from typing import Final

from triomq.http2.frames import PREFACE
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import new_response
from triomq.protocol.errors import FrameError
from triomq.protocol.frame import FrameDecoder, encode_frame

_HTTP_1: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"CONN")


def remoting_refusal(first: bytes, remoting_port: int) -> tuple[bytes, str] | None:
    """Return what to send to a client whose first bytes these are, and what to log; None for HTTP/2, and for bytes that
    may still become it."""
    if PREFACE.startswith(first[: len(PREFACE)]):
        return None
    if first[:4] in _HTTP_1:
        text = "this port is for gRPC (HTTP/2): the client speaks HTTP/1"
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: {len(text) + 1}\r\n"
        return f"{head}connection: close\r\n\r\n{text}\n".encode(), text
    reason = (
        "this port (grpcServerPort) is for the gRPC clients of RocketMQ 5: clients of RocketMQ 4 connect to the "
        f"broker's port {remoting_port}, which they learn from the NameServer"
    )
    try:
        requests = FrameDecoder().feed(first)
    except FrameError:
        requests = []
    responses = [new_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, reason) for request in requests]
    return b"".join(map(encode_frame, responses)), reason
