"""The self-test of a directory: it finds each missing property of a disk, and respects its limits."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path

import pytest
from fake_clock import FakeSeconds
from file_faults import BROKEN, FaultyFiles
from store_support import inline

from triomq.store.__main__ import main
from triomq.store.config import FlushDiskType
from triomq.store.disk.files import Data, Files
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore
from triomq.store.selftest import writing
from triomq.store.selftest.disk_checks import check_disk, file_system_of, judge_file_system
from triomq.store.selftest.report import Finding, Kills, Outcome, Report, Speed, percentile
from triomq.store.selftest.run import Limits, run

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:20 / /run rw,nosuid - tmpfs tmpfs rw
24 22 0:21 / /data rw - ext4 /dev/sdb1 rw
25 24 0:22 / /data/far\\040away rw - nfs4 server:/export rw
26 22 0:23 / /da rw - xfs /dev/sdc1 rw
a line of another kind
"""


def outcomes(files: Files, directory: Path, step_seconds: float = 0.001) -> dict[str, Finding]:
    return {found.check: found for found in check_disk(files, directory, 0.05, FakeSeconds(step=step_seconds))}


def test_a_good_disk_has_every_property(tmp_path: Path) -> None:
    found = outcomes(Files(), tmp_path)
    assert found.keys() == {
        "file system",
        "sparse files",
        "mapped reads",
        "preallocation",
        "rename",
        "lock",
        "sync",
        "kernel sync",
    }
    assert all(found[name].outcome is Outcome.OK for name in ("sparse files", "mapped reads", "rename", "lock", "sync"))
    assert "fdatasync p50 1.000 ms, p99 1.000 ms" in found["sync"].detail


def test_a_mapping_that_does_not_show_writes_is_a_failure(tmp_path: Path) -> None:
    class Stale(Files):
        def map_read(self, fd: int, size_bytes: int) -> mmap.mmap:
            return mmap.mmap(-1, size_bytes)

    assert outcomes(Stale(), tmp_path)["mapped reads"].outcome is Outcome.FAILED


def test_bytes_that_were_never_written_must_be_zero(tmp_path: Path) -> None:
    class Dirty(Files):
        def create(self, path: str, size_bytes: int) -> int:
            fd = super().create(path, size_bytes)
            super().pwrite(fd, b"left over" * 1000, 0)
            return fd

    found = outcomes(Dirty(), tmp_path)
    assert found["sparse files"].outcome is Outcome.FAILED
    assert found["mapped reads"].outcome is Outcome.FAILED


def test_files_that_take_their_full_size_are_a_warning(tmp_path: Path) -> None:
    class Full(Files):
        def allocated_bytes(self, path: str) -> int:
            return self.path_size(path)

    assert outcomes(Full(), tmp_path)["sparse files"].outcome is Outcome.WARNING


def test_missing_preallocation_is_a_warning(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail(errno.EOPNOTSUPP, "allocate")
    assert outcomes(files, tmp_path)["preallocation"].outcome is Outcome.WARNING


def test_a_rename_that_copies_nothing_is_a_failure(tmp_path: Path) -> None:
    class Forgetful(Files):
        def rename(self, source: str, target: str) -> None:
            self.unlink(source)

    assert outcomes(Forgetful(), tmp_path)["rename"].outcome is Outcome.FAILED


@pytest.mark.parametrize("answers", [(True, True), (False, False)])
def test_a_lock_that_does_not_lock_is_a_failure(answers: tuple[bool, bool], tmp_path: Path) -> None:
    left = list(answers)

    class Open(Files):
        def lock(self, fd: int) -> bool:
            return left.pop()

    assert outcomes(Open(), tmp_path)["lock"].outcome is Outcome.FAILED


def test_a_sync_that_fails_is_a_failure_and_the_other_checks_go_on(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail(BROKEN, "datasync")
    found = outcomes(files, tmp_path)
    assert found["sync"].outcome is found["rename"].outcome is Outcome.FAILED
    assert "Input/output error" in found["sync"].detail
    assert found["kernel sync"].outcome is Outcome.WARNING  # a replaced seam has none
    assert found["lock"].outcome is Outcome.OK


@pytest.mark.parametrize(("step_seconds", "outcome"), [(9e-6, Outcome.WARNING), (11e-6, Outcome.OK)])
def test_syncs_faster_than_any_drive_are_a_warning(step_seconds: float, outcome: Outcome, tmp_path: Path) -> None:
    assert outcomes(Files(), tmp_path, step_seconds)["sync"].outcome is outcome


def test_syncs_are_bounded_by_time_and_by_count(tmp_path: Path) -> None:
    slow, fast = FaultyFiles(does_sync=False), FaultyFiles(does_sync=False)
    outcomes(slow, tmp_path, step_seconds=1.0)
    assert len(slow.noted("datasync")) == 2 + 1  # two of the rename, and at least one is measured
    outcomes(fast, tmp_path, step_seconds=1e-9)
    assert len(fast.noted("datasync")) == 2 + 2000


def test_the_checks_write_within_their_files(tmp_path: Path) -> None:
    class Bounded(Files):
        def pwrite(self, fd: int, data: Data, at: int) -> None:
            assert at + len(data) <= self.size(fd)
            super().pwrite(fd, data, at)

    assert outcomes(Bounded(), tmp_path, step_seconds=1e-9)["sync"].outcome is Outcome.WARNING


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/home/store", "ext4"),
        ("/run/store", "tmpfs"),
        ("/data/store", "ext4"),
        ("/data/far away/store", "nfs4"),
        ("/da/store", "xfs"),
        ("/database", "ext4"),
    ],
)
def test_the_longest_mount_point_holds_a_directory(directory: str, kind: str) -> None:
    assert file_system_of(Path(directory), MOUNTS) == kind


def test_a_directory_without_a_mount_point_is_unknown() -> None:
    assert file_system_of(Path("/data"), "") == "unknown"


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("ext4", "OK"), ("xfs", "OK"), ("tmpfs", "WARNING"), ("nfs4", "WARNING"), ("fuse.sshfs", "WARNING")],
)
def test_memory_and_remote_file_systems_are_warnings(kind: str, outcome: str) -> None:
    assert judge_file_system(kind).outcome is Outcome[outcome]


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, percent) for percent in (0, 1, 50, 99, 100)] == [1, 1, 50, 99, 100]
    assert percentile([7.0], 50) == 7.0


def test_a_report_says_which_promise_the_machine_keeps() -> None:
    good = Finding("sync", Outcome.OK, "fine")
    kills = Kills("SYNC_FLUSH", 3, 100, 0)
    whole = Report([good], [Speed("SYNC_FLUSH", 500, 0.5)], [kills])
    assert whole.is_ok
    assert "SYNC_FLUSH: 1,000 messages of 1 KiB a second, 64 for each commit" in whole.lines()
    assert "survive a killed broker and a power failure" in whole.promises()[0]
    doubtful = Report([Finding("sync", Outcome.WARNING, "too fast")], [], [kills])
    assert doubtful.is_ok
    assert "a power failure is in doubt (sync)" in doubtful.promises()[0]
    for broken in (
        Report([Finding("lock", Outcome.FAILED, "none")], [], [kills]),
        Report([good], [], [Kills("SYNC_FLUSH", 3, 100, 1)]),
        Report([good], [], [Kills("SYNC_FLUSH", 3, 100, 0, "message 5 is altered")]),
    ):
        assert not broken.is_ok
        assert broken.promises() == ["Do not keep a store here: see what failed above."]


async def open_written(root: Path) -> DefaultMessageStore:
    settings = writing.scratch_settings(root, FlushDiskType.ASYNC_FLUSH)
    store = DefaultMessageStore(settings, now_ms=writing.now_ms, offload=inline)
    await store.load()
    assert list(await writing.write_commit(store, 10)) == list(range(10, 74))
    return store


async def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    store = await open_written(tmp_path)
    assert writing.stored_numbers(store) == set(range(10, 74))
    await store.close()


async def test_an_altered_or_doubled_message_is_found(tmp_path: Path) -> None:
    store = await open_written(tmp_path)
    doubled = writing.message_of(10)
    assert store.append(doubled).is_ok
    store.commit()
    with pytest.raises(ValueError, match="message 10 is out of place"):
        writing.stored_numbers(store)
    await store.close()


async def test_a_changed_body_is_found(tmp_path: Path) -> None:
    store = await open_written(tmp_path)
    changed = writing.message_of(74)
    changed.body = writing.body_of(75)
    assert store.append(changed).is_ok
    store.commit()
    with pytest.raises(ValueError, match="message 74 is altered"):
        writing.stored_numbers(store)
    await store.close()


def test_the_command_kills_writers_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("kept")
    assert main(["selftest", str(tmp_path), "--seconds", "0.4", "--mib", "64"]) == 0
    shown = capsys.readouterr()
    for flush in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        assert f"{flush}: 1 processes killed while they wrote, " in shown.out
        assert f"speed with {flush}" in shown.err
    assert shown.out.count(" 0 lost") == 2
    assert ", 0 messages acknowledged" not in shown.out
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_directory_that_cannot_be_tested_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", str(tmp_path / "absent")]) == 2
    assert "is not a directory; create it first" in capsys.readouterr().err
    with pytest.raises(StoreError, match="needs 64 MiB"):
        run(tmp_path, Limits(1, 63), lambda line: None)
    with pytest.raises(StoreError, match="MiB free, and the self-test may use"):
        run(tmp_path, Limits(1, 1 << 40), lambda line: None)
    assert list(tmp_path.iterdir()) == []
