"""Compression of message bodies by clients: ZLIB, LZ4 frame, Zstandard (sysFlag: COMPRESSED and COMPRESSION_MASK).

ZLIB is always available. LZ4 and ZSTD need the packages `lz4` and `zstandard` (extra `compression`).
"""

from __future__ import annotations

import zlib

from triomq.protocol import sys_flag as bits
from triomq.protocol.errors import BodyError
from triomq.protocol.extras import install_hint

MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024

# Decompress in small steps, so that the bound above is checked before a hostile body expands much further.
_ZSTD_STEP_BYTES = 4096
# What a frame may ask for before its first byte is there; levels up to 19 stay within.
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024


def compress(body: bytes, compression: int = bits.COMPRESSION_ZLIB, level: int = 5) -> bytes:
    """Compress `body`; `compression` is one of sys_flag.COMPRESSION_*.

    Raise BodyError for an unknown type, or if the package for it is not installed.
    """
    if compression == bits.COMPRESSION_ZLIB:
        return zlib.compress(body, level)
    if compression == bits.COMPRESSION_LZ4:
        try:
            import lz4.frame
        except ImportError:
            raise _missing("LZ4", "lz4") from None
        packed: bytes = lz4.frame.compress(body, compression_level=0)
        return packed
    if compression == bits.COMPRESSION_ZSTD:
        try:
            import zstandard
        except ImportError:
            raise _missing("ZSTD", "zstandard") from None
        return bytes(zstandard.ZstdCompressor(level=level).compress(body))
    raise BodyError(f"unknown compression type {compression:#x}")


def decompress(body: bytes, compression: int = bits.COMPRESSION_ZLIB) -> bytes:
    """Decompress `body`; `compression` is one of sys_flag.COMPRESSION_*.

    Raise BodyError if the data is damaged, if it expands to more than MAX_DECOMPRESSED_BYTES, if the type is unknown,
    or if the package for it is not installed.
    """
    if compression == bits.COMPRESSION_ZLIB:
        inflater = zlib.decompressobj()
        try:
            inflated = inflater.decompress(body, MAX_DECOMPRESSED_BYTES + 1)
        except zlib.error as error:
            raise BodyError(f"damaged ZLIB body: {error}") from None
        return _whole(inflated, inflater.eof, "ZLIB")
    if compression == bits.COMPRESSION_LZ4:
        try:
            import lz4.frame
        except ImportError:
            raise _missing("LZ4", "lz4") from None
        try:
            unpacker = lz4.frame.LZ4FrameDecompressor()
            plain: bytes = unpacker.decompress(body, max_length=MAX_DECOMPRESSED_BYTES + 1)
        except RuntimeError as error:
            raise BodyError(f"damaged LZ4 body: {error}") from None
        return _whole(plain, unpacker.eof, "LZ4")
    if compression == bits.COMPRESSION_ZSTD:
        try:
            import zstandard
        except ImportError:
            raise _missing("ZSTD", "zstandard") from None
        try:
            stream = zstandard.ZstdDecompressor().decompressobj()
            parts = bytearray()
            for at in range(0, len(body), _ZSTD_STEP_BYTES):
                parts += stream.decompress(body[at : at + _ZSTD_STEP_BYTES])
                if stream.eof or len(parts) > MAX_DECOMPRESSED_BYTES:
                    break
        except zstandard.ZstdError as error:
            raise BodyError(f"damaged ZSTD body: {error}") from None
        return _whole(bytes(parts), stream.eof, "ZSTD")
    raise BodyError(f"unknown compression type {compression:#x}")


def decompress_begin(body: bytes, compression: int, most_bytes: int) -> bytes:
    """Return at most the first `most_bytes` of what `body` decompresses to, without the memory for the rest. An end
    that is missing does not matter. Raise BodyError as `decompress` does."""
    if compression == bits.COMPRESSION_ZLIB:
        try:
            return zlib.decompressobj().decompress(body, most_bytes)
        except zlib.error as error:
            raise BodyError(f"damaged ZLIB body: {error}") from None
    if compression == bits.COMPRESSION_LZ4:
        try:
            import lz4.frame
        except ImportError:
            raise _missing("LZ4", "lz4") from None
        try:
            begin: bytes = lz4.frame.LZ4FrameDecompressor().decompress(body, max_length=most_bytes)
        except RuntimeError as error:
            raise BodyError(f"damaged LZ4 body: {error}") from None
        return begin
    if compression == bits.COMPRESSION_ZSTD:
        try:
            import zstandard
        except ImportError:
            raise _missing("ZSTD", "zstandard") from None
        try:
            unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
            return bytes(unpacker.stream_reader(body).read(most_bytes))
        except zstandard.ZstdError as error:
            raise BodyError(f"damaged ZSTD body: {error}") from None
    raise BodyError(f"unknown compression type {compression:#x}")


def _whole(plain: bytes, complete: bool, name: str) -> bytes:
    if len(plain) > MAX_DECOMPRESSED_BYTES:
        raise BodyError(f"a {name} body decompresses to more than {MAX_DECOMPRESSED_BYTES} bytes")
    if not complete:
        raise BodyError(f"damaged {name} body: it ends too early")
    return plain


def _missing(name: str, package: str) -> BodyError:
    return BodyError(f"{name} bodies need the package {package!r}: {install_hint('compression')}")
