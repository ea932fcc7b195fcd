"""The output folder of a job on any file system that Spark can reach. Paths are strings.

A session in this process has Hadoop's classes, which know its file systems (local, HDFS, S3) and their settings. A
Spark Connect session has no JVM here; then Arrow reads and writes the folder, which must be the same one that the
server sees under that path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from triomq.spark.errors import OptionError


class Folder(ABC):
    """One directory and everything below it. For the driver only."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")

    @abstractmethod
    def exists(self, name: str = "") -> bool: ...

    @abstractmethod
    def names(self, name: str = "") -> list[str]:
        """Return the sorted names in a directory; none when it does not exist."""

    @abstractmethod
    def files_below(self, name: str) -> list[tuple[str, int]]:
        """Return (path relative to `name`, size in bytes) of all files below a directory."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file or a directory with everything below it, if it exists."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Raises OSError when the file system refuses, and when `target` exists."""

    @abstractmethod
    def read(self, name: str) -> str: ...

    def write(self, name: str, text: str) -> None:
        """Write a file atomically: under another name first, then renamed."""
        self._create(f"{name}.tmp", text.encode())
        self.rename(f"{name}.tmp", name)

    @abstractmethod
    def _create(self, name: str, data: bytes) -> None: ...


def open_folder(spark: Any, path: str) -> Folder:
    """Return a folder of a session. Raises OptionError for a path that Arrow cannot use, with Spark Connect."""
    return ArrowFolder(path) if getattr(spark, "_jvm", None) is None else HadoopFolder(spark, path)


class HadoopFolder(Folder):
    """A folder by Hadoop's classes, which are part of Spark."""

    def __init__(self, spark: Any, path: str) -> None:
        super().__init__(path)
        self._jvm = spark._jvm
        root = self._jvm.org.apache.hadoop.fs.Path(self.path)
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)

    def exists(self, name: str = "") -> bool:
        return bool(self._files.exists(self._at(name)))

    def names(self, name: str = "") -> list[str]:
        if not self.exists(name):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(self._at(name)))

    def files_below(self, name: str) -> list[tuple[str, int]]:
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
        self._files.mkdirs(self._at(target.rpartition("/")[0]))
        if not self._files.rename(self._at(source), self._at(target)):
            raise OSError(f"{self.path}: {source} could not be renamed to {target}")

    def read(self, name: str) -> str:
        stream = self._files.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _create(self, name: str, data: bytes) -> None:
        stream = self._files.create(self._at(name), True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()


class ArrowFolder(Folder):
    """A folder by Arrow's file systems: local paths, `file:`, `hdfs:`, `s3:`, `gs:`, `abfs:`."""

    def __init__(self, path: str) -> None:
        from pyarrow import ArrowInvalid, fs

        super().__init__(path)
        try:
            # Relative paths are refused: the server has another working directory.
            self._files, self._root = fs.FileSystem.from_uri(self.path or "/")
        except ArrowInvalid as error:
            raise OptionError(f"folder {path}: {error}; with Spark Connect give an absolute path or a URI") from None

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else str(self._root)

    def exists(self, name: str = "") -> bool:
        from pyarrow import fs

        return bool(self._files.get_file_info(self._at(name)).type != fs.FileType.NotFound)

    def _infos(self, name: str, *, recursive: bool) -> list[Any]:
        from pyarrow import fs

        selector = fs.FileSelector(self._at(name), allow_not_found=True, recursive=recursive)
        return list(self._files.get_file_info(selector))

    def names(self, name: str = "") -> list[str]:
        return sorted(info.base_name for info in self._infos(name, recursive=False))

    def files_below(self, name: str) -> list[tuple[str, int]]:
        prefix = len(self._at(name)) + 1
        return sorted((info.path[prefix:], info.size) for info in self._infos(name, recursive=True) if info.is_file)

    def remove(self, name: str) -> None:
        info = self._files.get_file_info(self._at(name))
        if info.is_file:
            self._files.delete_file(info.path)
        elif self.exists(name):
            self._files.delete_dir(info.path)

    def rename(self, source: str, target: str) -> None:
        if self.exists(target):
            raise OSError(f"{self.path}: {source} could not be renamed to {target}, which exists")
        self._files.create_dir(self._at(target.rpartition("/")[0]), recursive=True)
        self._files.move(self._at(source), self._at(target))

    def read(self, name: str) -> str:
        with self._files.open_input_stream(self._at(name)) as stream:
            return bytes(stream.read()).decode()

    def _create(self, name: str, data: bytes) -> None:
        self._files.create_dir(self._at(name.rpartition("/")[0]), recursive=True)
        with self._files.open_output_stream(self._at(name)) as stream:
            stream.write(data)
