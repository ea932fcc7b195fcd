"""A folder of Parquet files with one manifest for each commit.

    DIR/date=<yyyy-mm-dd>/topic=<topic>/<commit>-<number>.parquet
    DIR/_manifest/<commit>.json        files, rows, removed files, positions after the commit, what the table is of
    DIR/_staging/                      files that are not committed; they have no final name, so no reader finds them

A commit writes its files to `_staging` and syncs them, then makes its manifest, whose name must be new: that is the
commit. Then the files get their names. Killed between the two, the next run gives them their names; killed earlier, it
removes them. So `DIR/date=*/topic=*/*.parquet` has no row that is not committed and none twice. One run at a time has
the lock of the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyarrow import compute, parquet

from triomq.pipeline.tables.rows import RAW_SCHEMA, kinds_of
from triomq.pipeline.tables.target import About, Conflict, failures_at
from triomq.pipeline.tables.upkeep import MERGED_BYTES, SMALL_BYTES
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.jobs.session import JobFailed
from triomq.spark.positions import Positions, from_tree, to_tree

MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"
_COMPRESSION: Final = "zstd"


class ParquetTarget:
    """See triomq.pipeline.tables.target.Target."""

    def __init__(self, url: str) -> None:
        if "://" in url and not url.startswith("file://"):
            raise JobFailed(f"--to {url}: Parquet needs a folder of this machine; delta and iceberg take URLs")
        self._root = Path(url.removeprefix("file://"))
        self._url = url
        self._number = -1
        self._last: dict[str, Any] = {}
        self._lock: Any = None

    def about(self) -> About | None:
        with failures_at(self._url):
            self._take_lock()
            names = sorted(path.name for path in (self._root / MANIFEST).glob("*.json"))
            if not names:
                strangers = [path.name for path in self._root.iterdir() if path.name not in (MANIFEST, STAGING)]
                if strangers:
                    raise JobFailed(f"--to {self._url}: not a table that this job has made (it has {strangers[0]!r})")
                return None
            self._number = int(names[-1].removesuffix(".json"))
            self._last = json.loads((self._root / MANIFEST / names[-1]).read_bytes())
            self._finish()
        return About(self._last["topic"], self._last["cluster"])

    def kinds(self) -> dict[str, str]:
        return dict(self._last["columns"])

    def positions(self, queues: Sequence[MessageQueue]) -> Positions:
        found = from_tree(self._last["positions"], f"{self._url}/{MANIFEST}")
        return {queue: found[queue] for queue in queues if queue in found}

    def create(self, about: About, schema: Any, positions: Positions) -> None:
        self._last = {"topic": about.topic, "cluster": about.cluster, "columns": kinds_of(schema), "positions": {}}
        self.commit(schema.empty_table(), positions)

    def add_columns(self, columns: dict[str, Any]) -> None:
        added = kinds_of(pa.schema(list(columns.items())))
        before = self._last
        self._last = {**before, "columns": {**before["columns"], **added}}
        try:
            self.commit(RAW_SCHEMA.empty_table(), {})
        except BaseException:
            self._last = before
            raise

    def commit(self, rows: Any, positions: Positions) -> None:
        with failures_at(self._url, pa.ArrowException):
            everything = from_tree(self._last["positions"]) | positions
            number = self._number + 1
            files = self._write(rows, number)
            entry = {**self._last, "positions": to_tree(everything), "files": files, "removed": []}
            self._keep(number, entry)

    def replace(self, rows: Any, key: str, positions: Positions) -> None:
        raise JobFailed("--format: rows of a folder of Parquet files cannot be replaced; use delta or iceberg")

    def compact(self) -> None:
        with failures_at(self._url, pa.ArrowException):
            number = self._number + 1
            added: list[dict[str, Any]] = []
            removed: list[str] = []
            for paths in self._scattered():
                merged = pa.concat_tables(
                    [parquet.ParquetFile(path).read() for path in paths], promote_options="default"
                )
                name = f"{number:012}-{len(added):04}.parquet"
                self._stage(merged, name)
                folder = paths[0].parent.relative_to(self._root)
                added.append({"path": f"{folder}/{name}", "rows": merged.num_rows})
                removed += [str(path.relative_to(self._root)) for path in paths]
            if added:
                self._keep(number, {**self._last, "files": added, "removed": removed})

    def _scattered(self) -> Iterator[list[Path]]:
        """Yield groups of small files of one partition that fit into memory together."""
        for folder in sorted(self._root.glob("date=*/topic=*")):
            group: list[Path] = []
            size = 0
            for path in sorted(folder.glob("*.parquet")):
                more = path.stat().st_size
                if more >= SMALL_BYTES:
                    continue
                if size + more > MERGED_BYTES:
                    yield group
                    group, size = [], 0
                group.append(path)
                size += more
            if len(group) > 1:
                yield group

    def remove_before(self, day: date) -> None:
        with failures_at(self._url, pa.ArrowException):
            folders = [each for each in self._root.glob("date=*") if each.name < f"date={day}"]
            paths = [path for folder in folders for path in folder.glob("topic=*/*.parquet")]
            if paths:
                removed = [str(path.relative_to(self._root)) for path in sorted(paths)]
                self._keep(self._number + 1, {**self._last, "files": [], "removed": removed})

    def _keep(self, number: int, entry: dict[str, Any]) -> None:
        """Make an entry the last commit. Raises Conflict."""
        self._add_manifest(number, json.dumps(entry, indent=1).encode())
        self._number, self._last = number, entry
        self._finish()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        (self._root / MANIFEST).mkdir(parents=True, exist_ok=True)
        lock = (self._root / MANIFEST / ".lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise JobFailed(f"--to {self._url}: another run writes to this table") from None
        self._lock = lock

    def _write(self, rows: Any, number: int) -> list[dict[str, Any]]:
        """Write the files of a commit under temporary names; return their final names and rows."""
        files = []
        keys = rows.select(["date", "topic"]).group_by(["date", "topic"]).aggregate([]).to_pylist()
        for place, key in enumerate(keys):
            mask = compute.and_(
                compute.equal(rows["date"], pa.scalar(key["date"], pa.date32())),
                compute.equal(rows["topic"], key["topic"]),
            )
            part = rows.filter(mask)
            name = f"{number:012}-{place:04}.parquet"
            self._stage(part, name)
            folder = f"date={key['date']}/topic={quote(key['topic'], safe='')}"
            files.append({"path": f"{folder}/{name}", "rows": part.num_rows})
        return files

    def _stage(self, rows: Any, name: str) -> None:
        staging = self._root / STAGING
        staging.mkdir(exist_ok=True)
        parquet.write_table(rows, staging / name, compression=_COMPRESSION)
        _sync(staging / name)

    def _add_manifest(self, number: int, content: bytes) -> None:
        final = self._root / MANIFEST / f"{number:012}.json"
        temporary = final.with_suffix(".new")
        temporary.write_bytes(content)
        _sync(temporary)
        try:
            os.link(temporary, final)
        except FileExistsError:
            raise Conflict from None
        finally:
            temporary.unlink()
        _sync(final.parent)

    def _finish(self) -> None:
        """Give the files of the last commit their names, and remove what belongs to no commit."""
        staging = self._root / STAGING
        # First, so that a reader meanwhile lacks rows for a moment, and never has them twice.
        for path in self._last.get("removed", ()):
            (self._root / path).unlink(missing_ok=True)
        for file in self._last["files"]:
            final = self._root / file["path"]
            staged = staging / final.name
            if staged.exists():
                final.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(final)
                _sync(final.parent)
        shutil.rmtree(staging, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
