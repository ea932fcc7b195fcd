"""The output folder of a job on any file system that Spark can reach (local, HDFS, S3), through Hadoop's classes, which
are part of Spark. Paths are strings."""

from __future__ import annotations

from typing import Any


class Folder:
    """One directory and everything below it. For the driver only."""

    def __init__(self, spark: Any, path: str) -> None:
        self.path = path.rstrip("/")
        self._jvm = spark._jvm
        root = self._jvm.org.apache.hadoop.fs.Path(self.path)
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)

    def exists(self, name: str = "") -> bool:
        return bool(self._files.exists(self._at(name)))

    def names(self, name: str = "") -> list[str]:
        """Return the sorted names in a directory; none when it does not exist."""
        if not self.exists(name):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(self._at(name)))

    def files_below(self, name: str) -> list[tuple[str, int]]:
        """Return (path relative to `name`, size in bytes) of all files below a directory."""
        if not self.exists(name):
            return []
        base = str(self._files.resolvePath(self._at(name)).toUri().getPath())
        found = []
        iterator = self._files.listFiles(self._at(name), True)
        while iterator.hasNext():
            status = iterator.next()
            found.append((str(status.getPath().toUri().getPath())[len(base) + 1 :], int(status.getLen())))
        return sorted(found)

    def remove(self, name: str) -> None:
        self._files.delete(self._at(name), True)

    def rename(self, source: str, target: str) -> None:
        """Raises OSError when the file system refuses."""
        self._files.mkdirs(self._at(target.rpartition("/")[0]))
        if not self._files.rename(self._at(source), self._at(target)):
            raise OSError(f"{self.path}: {source} could not be renamed to {target}")

    def read(self, name: str) -> str:
        stream = self._files.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file atomically: under another name first, then renamed."""
        stream = self._files.create(self._at(f"{name}.tmp"), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.rename(f"{name}.tmp", name)
