"""Which extensions a build has, and its version; docs/internals/speedups.md tells more.

pip install .                       the C speedups where a C compiler is there, none where it is not
TRIOMQ_COMPILE=1 pip install .      these and the modules of compiled.txt, compiled by mypyc; needs a C compiler
TRIOMQ_PURE=1 pip install .         none

MYPYC_OPT_LEVEL=0 (default 3) makes the compiled modules in less than half of the time, and slower.

Distributions have their version baked in (src/triomq/_version.py). TRIOMQ_VERSION=0.1.0.dev7+gabc states it where a
build has no .git directory.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / "src" / "triomq"
VERSION_FILE = PACKAGES / "_version.py"

# Compiled modules call each other directly, and not through a table that another library could change. A send takes 5 %
# less time.
DIRECT_CALLS = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"] if sys.platform == "linux" else []


def speedups(package: str, *, is_optional: bool) -> Extension:
    """The C functions of one package. They carry the checksum of their source, so that stale ones in a checkout are
    recognized (triomq.protocol.speedups)."""
    source, protocol = PACKAGES / package / "_speedups.c", PACKAGES / "protocol"
    parts = {*protocol.glob("c/*.h"), *source.parent.glob("c/*.h")}
    included = [protocol / "_speedups.h", *sorted(parts)]
    checksum = 0
    for file in (source, *included):
        checksum = crc32(file.read_bytes(), checksum)
    return Extension(
        f"triomq.{package}._speedups",
        [str(source.relative_to(HERE))],
        depends=[str(file.relative_to(HERE)) for file in included],
        define_macros=[("SOURCE_CRC", f"{checksum}u")],
        extra_compile_args=["-O3", "-g0"],
        optional=is_optional,
    )


def compiled_modules() -> list[str]:
    """The files that mypyc compiles, one a line in compiled.txt; as modules of `triomq` they are found through src/."""
    lines = (HERE / "compiled.txt").read_text().splitlines()
    return [f"src/triomq/{line.strip()}" for line in lines if line.strip() and not line.startswith("#")]


def extensions() -> list[Extension]:
    if os.environ.get("TRIOMQ_PURE") == "1":
        return []
    if os.environ.get("TRIOMQ_COMPILE") != "1":
        return [speedups(package, is_optional=True) for package in ("protocol", "store")]
    from mypyc.build import mypycify

    options = ["--config-file", str(HERE / "pyproject.toml"), *compiled_modules()]
    compiled: list[Extension] = mypycify(options, opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"), debug_level="0")
    for extension in compiled:
        # A list of its own: mypycify gives all modules the same one.
        extension.extra_compile_args = [*extension.extra_compile_args, *DIRECT_CALLS]
    return compiled + [speedups(package, is_optional=False) for package in ("protocol", "store")]


def version() -> str:
    """Return the version of what is built. What a start has kept may be older than a tag."""
    names = runpy.run_path(str(VERSION_FILE))
    stated: str = os.environ.get("TRIOMQ_VERSION") or names["BUILT"] or names["version_of"](str(HERE))
    return stated


def bake(copy: Path, stated: str) -> None:
    """Write the version into a copy of the version file, which may be a hard link to it."""
    empty = 'BUILT = ""\n'
    text = VERSION_FILE.read_text()
    copy.unlink()
    copy.write_text(text.replace(empty, f'BUILT = "{stated}"\n'))


class BuildWithVersion(build_py):
    """Copies the modules, except for an editable installation."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            bake(Path(self.build_lib) / "triomq" / "_version.py", self.distribution.get_version())


class SourceWithVersion(sdist):
    """Makes a source archive, which has no .git directory."""

    def make_release_tree(self, base_dir: str, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        bake(Path(base_dir) / VERSION_FILE.relative_to(HERE), self.distribution.get_version())


setup(
    version=version(),
    ext_modules=extensions(),
    cmdclass={"build_py": BuildWithVersion, "sdist": SourceWithVersion},
)
