"""Syncs by the kernel: values, errors, cancellation, and when a store uses them."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from fake_clock import FakeClock
from file_faults import FaultyFiles
from store_support import message, small_settings

from triomq.store.config import FlushDiskType
from triomq.store.disk.files import Files, UnsyncedFiles
from triomq.store.disk.kernel_sync import _NUMBERS, KernelSync
from triomq.store.errors import StoreBroken
from triomq.store.message_store import DefaultMessageStore


@pytest.fixture
def kernel_sync() -> Iterator[KernelSync]:
    made = KernelSync.open()
    if made is None:
        pytest.skip("this kernel has no asynchronous fdatasync, or forbids it")
    yield made
    made.close()


@asynccontextmanager
async def running(root: Path, files: Files | None = None) -> AsyncIterator[DefaultMessageStore]:
    """A store as a broker creates it: with the default threads."""
    settings = small_settings(root, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store = DefaultMessageStore(settings, now_ms=FakeClock(step_ms=1), files=files)
    await store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()
    await store.close()


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "asm-generic/unistd.h"),
        ("riscv64", "asm-generic/unistd.h"),
    ],
)
def test_the_calls_have_the_numbers_of_the_kernels_headers(machine: str, header: str) -> None:
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip(f"{path} is not installed")
    numbers = dict(re.findall(r"^#define __NR_(\w+)\s+(\d+)", path.read_text(), re.MULTILINE))
    names = ("io_setup", "io_destroy", "io_submit", "io_getevents")
    assert _NUMBERS[machine] == tuple(int(numbers[name]) for name in names)


def test_a_kernel_that_can_is_asked() -> None:
    """Without this, a request that no kernel accepts would look like a kernel that cannot."""
    numbers = _NUMBERS.get(platform.machine())
    release = tuple(int(part) for part in platform.release().split(".")[:2] if part.isdigit())
    if sys.platform != "linux" or numbers is None or release < (4, 18):
        pytest.skip("asynchronous fdatasync came with Linux 4.18")
    context = ctypes.c_ulong(0)
    call = ctypes.CDLL(None).syscall
    if call(ctypes.c_long(numbers[0]), ctypes.c_uint(1), ctypes.byref(context)) != 0:
        pytest.skip("this system forbids asynchronous requests")
    call(ctypes.c_long(numbers[1]), context)
    made = KernelSync.open()
    assert made is not None
    made.close()


async def test_one_after_the_other(kernel_sync: KernelSync, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as file:
        for _ in range(20):
            file.write(b"x" * 5000)
            await kernel_sync(file.fileno())


async def test_the_descriptor_may_be_closed_meanwhile(kernel_sync: KernelSync, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x" * 100_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kernel_sync, fd)
        await trio.testing.wait_all_tasks_blocked()  # it has been asked for
        os.close(fd)


async def test_errors_are_those_of_the_call_and_do_no_harm(kernel_sync: KernelSync, tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        await kernel_sync(1 << 20)
    assert raised.value.errno == errno.EBADF
    reading, writing = os.pipe()
    with pytest.raises(OSError) as raised:
        await kernel_sync(writing)
    assert raised.value.errno == errno.EINVAL
    os.close(reading)
    os.close(writing)
    await test_one_after_the_other(kernel_sync, tmp_path)


async def test_a_cancelled_task_waits_for_what_it_began(kernel_sync: KernelSync, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as file, trio.CancelScope() as scope:
        file.write(b"x")
        scope.cancel()
        await kernel_sync(file.fileno())
        assert not scope.cancelled_caught
        await kernel_sync(file.fileno())


async def test_a_store_on_real_files_asks_the_kernel(
    kernel_sync: KernelSync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = KernelSync.__call__

    async def counted(self: KernelSync, fd: int) -> None:
        asked.append(fd)
        await ask(self, fd)

    monkeypatch.setattr(KernelSync, "__call__", counted)
    async with running(tmp_path) as store:
        for number in range(3):
            result = store.append(message(body=b"%d" % number))
            store.commit()
            await store.flushed.wait_beyond(result.last_offset)
    assert len(asked) >= 2  # the first one also syncs a directory, in a thread
    async with running(tmp_path) as store:
        assert store.reading.max_offset("T", 0) == 3


async def test_files_with_a_sync_of_their_own_keep_it(tmp_path: Path) -> None:
    assert UnsyncedFiles().kernel_sync() is None
    files = FaultyFiles()
    async with running(tmp_path, files) as store:
        result = store.append(message())
        store.commit()
        await store.flushed.wait_beyond(result.last_offset)
        assert files.noted("datasync")


async def test_a_sync_that_fails_breaks_the_store(
    kernel_sync: KernelSync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: KernelSync, fd: int) -> None:
        raise OSError(errno.EIO, "as asked")

    async with running(tmp_path) as store:
        first = store.append(message())
        store.commit()
        await store.flushed.wait_beyond(first.last_offset)
        monkeypatch.setattr(KernelSync, "__call__", fail)
        second = store.append(message())
        store.commit()
        with pytest.raises(StoreBroken, match="cannot be synced"):
            await store.flushed.wait_beyond(second.last_offset)
        assert store.is_broken
