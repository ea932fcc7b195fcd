"""What is not the store's, in its directories: left alone, named in one line, in the way of nothing."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog.testing
from file_faults import FaultyFiles
from store_support import message, open_store, small_settings

from triomq.store.__main__ import main
from triomq.store.disk import layout
from triomq.store.disk.files import Files
from triomq.store.disk.json_config import JsonFile
from triomq.store.disk.layout import Layout
from triomq.store.disk.ledgers import ledgers_in, members_in
from triomq.store.disk.listing import is_queue_directory, is_topic_directory
from triomq.store.errors import StoreRefused
from triomq.store.log.salvage import Salvage
from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep.offline import verify

LINE = "files not of the store left alone"
DIGITS = f"{4096 * 1000:020d}"


def write(*path: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        root.joinpath(*path).parent.mkdir(parents=True, exist_ok=True)
        root.joinpath(*path).write_text("not yours")

    return make


def directory(*path: str) -> Callable[[Path], None]:
    return write(*path, "inside")


def dangling(path: str) -> Callable[[Path], None]:
    return lambda root: (root / path).symlink_to("/nowhere/at/all")


def copied(source: str, target: str) -> Callable[[Path], None]:
    return lambda root: void(shutil.copytree(root / source, root / target))


def void(_: object) -> None:
    return


FOREIGN = {
    "commitlog": [
        directory("commitlog/lost+found"),
        directory(f"commitlog/{DIGITS}"),
        write("commitlog/.nfs000000000000001"),
        write(f"commitlog/{DIGITS}.bak"),
        dangling(f"commitlog/{DIGITS}"),
    ],
    "consumequeue": [
        write("consumequeue/notes.txt"),
        write("consumequeue/U"),
        directory("consumequeue/lost+found/0"),
        directory("consumequeue/.snapshot/0"),
        copied("consumequeue/T", "consumequeue/T.bak"),
        dangling("consumequeue/V"),
    ],
    "consumequeue/T": [
        write("consumequeue/T/7"),
        directory("consumequeue/T/lost+found"),
        copied("consumequeue/T/0", "consumequeue/T/00"),
        copied("consumequeue/T/0", "consumequeue/T/0.bak"),
    ],
    "consumequeue/T/0": [
        write("consumequeue/T/0/.nfs0001"),
        directory(f"consumequeue/T/0/{200 * 1000:020d}"),
        dangling(f"consumequeue/T/0/{200 * 1000:020d}"),
    ],
    "index": [
        directory("index/lost+found"),
        directory("index/20260101000000000"),
        write("index/20269999000000000"),
        write("index/20260101000000000~"),
        dangling("index/20260101000000000"),
    ],
}
EACH = [(place, make) for place, makes in FOREIGN.items() for make in makes]


async def filled(root: Path) -> DefaultMessageStore:
    store = await open_store(root)
    for number in range(30):
        store.append(message(queue_id=number % 2, body=bytes(100), keys=f"k{number}"))
        store.commit()
    return store


def picture(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return what is there, with the times at which files were written."""
    return {
        str(path.relative_to(root)): (
            (path.stat().st_mtime_ns, path.read_bytes()) if path.is_file() else (0, bytes(path.is_symlink()))
        )
        for path in sorted(root.rglob("*"))
    }


def added(root: Path, make: Callable[[Path], None]) -> dict[str, tuple[int, bytes]]:
    before = picture(root)
    make(root)
    return {path: what for path, what in picture(root).items() if path not in before}


def left(root: Path, foreign: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    return {path: what for path, what in picture(root).items() if path in foreign}


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(("place", "make"), EACH)
async def test_a_start_leaves_it_alone_and_names_it_once(
    tmp_path: Path, place: str, make: Callable[[Path], None], is_killed: bool
) -> None:
    store = await filled(tmp_path)
    queues = store.contents.queues.count
    await store.close()
    if is_killed:
        (tmp_path / "abort").touch()
    foreign = added(tmp_path, make)
    with structlog.testing.capture_logs() as logs:
        store = await open_store(tmp_path)
    lines = [line for line in logs if line["event"] == LINE]
    assert [line["directory"] for line in lines] == [f"{tmp_path}/{place}"]
    assert (store.contents.queues.count, store.reading.max_offset("T", 0)) == (queues, 15)
    await store.close()
    assert left(tmp_path, foreign) == foreign


@pytest.mark.parametrize(("place", "make"), EACH)
async def test_removing_queues_and_expired_files_leaves_it(
    tmp_path: Path, place: str, make: Callable[[Path], None]
) -> None:
    store = await filled(tmp_path)
    foreign = added(tmp_path, make)
    assert store.upkeep.delete_unused_topics([]) == 2, place
    await store.close()
    assert left(tmp_path, foreign) == foreign
    assert verify(small_settings(tmp_path)).problems == []
    again = await open_store(tmp_path)
    assert again.reading.queues() == {}
    await again.close()


@pytest.mark.parametrize(("place", "make"), EACH)
async def test_verify_and_rebuild_leave_it(
    tmp_path: Path, place: str, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    await (await filled(tmp_path)).close()
    foreign = added(tmp_path, make)
    (tmp_path / "broker.conf").write_text(
        "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=50\nmaxIndexNum=60\n"
    )
    with structlog.testing.capture_logs() as logs:
        found = verify(small_settings(tmp_path))
    assert (found.problems, found.queues) == ([], 2)
    assert [line["directory"] for line in logs if line["event"] == LINE] == [f"{tmp_path}/{place}"]
    queue = (tmp_path / f"consumequeue/T/1/{0:020d}").read_bytes()
    assert await run_main("rebuild", str(tmp_path)) == 0, capsys.readouterr().err
    assert left(tmp_path, foreign) == foreign
    assert (tmp_path / f"consumequeue/T/1/{0:020d}").read_bytes() == queue
    assert (tmp_path / f"consumequeue.before-rebuild/T/1/{0:020d}").read_bytes() == queue
    assert verify(small_settings(tmp_path)).problems == []


async def run_main(*arguments: str) -> int:
    import trio

    return await trio.to_thread.run_sync(main, arguments)


async def test_saving_damaged_bytes_deletes_no_foreign_file(tmp_path: Path) -> None:
    kept = Salvage(Files(), Layout(small_settings(tmp_path)), ".bin", max_files=1, max_bytes=10)
    foreign = {
        **added(tmp_path, write("salvage/mine.bin")),
        **added(tmp_path, write("salvage/upload.part")),
        **added(tmp_path, directory(f"salvage/{7:020d}.bin")),
        **added(tmp_path, directory(f"salvage/{7:020d}.bin.part")),
    }
    write(f"salvage/{1:020d}.bin.part")(tmp_path)
    for number in (2, 3):
        kept.keep(f"{number:020d}", kept.begin(f"{number:020d}", 5))
    assert left(tmp_path, foreign) == foreign
    assert sorted(path.name for path in (tmp_path / "salvage").glob("*[23].bin")) == [f"{3:020d}.bin"]
    assert not (tmp_path / f"salvage/{1:020d}.bin.part").exists()


def test_a_copy_of_a_ledger_is_not_the_ledger_of_a_member(tmp_path: Path) -> None:
    for name in ("dledger-n0", "dledger-n0.bak", "dledger-old"):
        write(name, "data", f"{0:020d}")(tmp_path)
    directory("dledger-n1", "data", f"{0:020d}")(tmp_path)
    write("dledger-n2")(tmp_path)
    assert members_in(Files(), str(tmp_path)) == ["n0", "n1"]
    assert ledgers_in(Files(), str(tmp_path)) == ["n0"]


@pytest.mark.parametrize("place", ["commitlog", "consumequeue", "consumequeue/T", "consumequeue/T/0", "index"])
async def test_a_directory_that_cannot_be_read_is_named_with_the_cure(tmp_path: Path, place: str) -> None:
    await (await filled(tmp_path)).close()
    (tmp_path / "queuenote").unlink()
    files = FaultyFiles()
    files.fail(errno.EACCES, "list_kinds", where=f"{tmp_path}/{place}")
    with pytest.raises(StoreRefused, match=f"{tmp_path}/{place}: Permission denied: .*chown"):
        await open_store(tmp_path, files=files)
    store = await open_store(tmp_path)
    assert store.reading.max_offset("T", 0) == 15
    await store.close()


async def test_a_file_that_cannot_be_opened_is_named_with_the_cure(tmp_path: Path) -> None:
    await (await filled(tmp_path)).close()
    files = FaultyFiles()
    files.fail(errno.EACCES, "open", "create", where="/commitlog/")
    with pytest.raises(StoreRefused, match=f"{tmp_path}/commitlog/.*: Permission denied: .*chown"):
        await open_store(tmp_path, files=files)


def test_a_table_that_cannot_be_read_or_is_a_directory_says_so(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail(errno.EACCES, "read_file")
    table = f"{tmp_path}/topics.json"
    with pytest.raises(StoreRefused, match=f"{table}: Permission denied: .*chown"):
        JsonFile(files, table, bytes).load()
    (tmp_path / "topics.json").mkdir()
    with pytest.raises(StoreRefused, match=f"{table} is a directory, .* move it away"):
        JsonFile(Files(), table, bytes).load(takes_loss=True)


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [("TopicTest", True), ("%RETRY%my.group", True), ("%LMQ%a.b", True), ("lost+found", False), ("T.bak", False)],
)
def test_a_topic_has_a_directory_if_a_client_may_name_it_so(name: str, is_ours: bool) -> None:
    assert is_topic_directory(name) is is_ours


@pytest.mark.parametrize(
    ("name", "is_ours"), [("0", True), ("12", True), ("00", False), ("-1", False), ("1.bak", False), ("²", False)]
)
def test_a_queue_has_the_directory_that_the_store_makes_for_it(name: str, is_ours: bool) -> None:
    assert is_queue_directory(name) is is_ours


def test_an_index_file_has_a_time_as_its_name() -> None:
    assert layout.is_index_name("20240229235959999")
    assert not layout.is_index_name("20230229235959999")
