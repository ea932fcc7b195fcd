"""The program of bin/fuzz: it runs each target for an equal share of the time, with the sanitized extensions.

The targets in C count the basic blocks that an input reaches, those in Python the lines.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import logging
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import structlog
from built_speedups import ROOT, compile_speedups
from fuzz_engine import Coverage, Mutator, fuzz

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
MAP_BYTES = 1 << 14  # of coverage.c
MAX_KEPT_BYTES = 400
PROPERTY_WORDS = [
    *(b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"WAIT\x01false\x02", b"DELAY\x01", b"CLUSTER\x01", b"\x02", b"\x01"),
    *(b"INNER_MULTI_QUEUE_OFFSET\x01", b"INNER_MULTI_DISPATCH\x01", b"TRAN_MSG\x01true"),
]
JSON_WORDS = [
    *(b'"code":', b'"flag":', b'"opaque":-', b'"version":', b'"language":"GO"', b'"extFields":{', b'"remark":null'),
    *(b'"serializeTypeCurrentRPC":"JSON"', b"\\u0041", b'\\"', b"\\\\", b'"a":"b"', b"},", b"2147483648", b"null"),
]
# Whole entries, because a mutation rarely makes length and text match.
ENTRY_WORDS = [
    b"\x00\x01" + key + len(value).to_bytes(4, "big") + value
    for key in (b"d", b"e", b"g", b"k", b"x")
    for value in (b"9" * 18, b"9" * 19, b"-0", b"007", b"-2147483649", b"2147483647", b"true", b"\xc3\xbc", b"")
]
SQL_WORDS = [
    *(b" AND ", b" OR ", b" NOT ", b" BETWEEN ", b" IN ('x')", b" IS NULL", b"TRUE", b"<>", b">=", b"'", b"(", b")"),
    *(b"a", b"price", b"-9223372036854775808", b"1e400", b".5", b"/*", b"*/", b"--", b"\n"),
]
YAML_WORDS = [
    *(b"accounts:\n", b"- accessKey: a\n", b"  secretKey: b\n", b"  admin: true\n", b"  topicPerms:\n  - t=PUB|SUB\n"),
    *(b"globalWhiteRemoteAddresses:\n- 10.0.{1,2}.*\n", b"&a ", b"*a", b"<<: ", b"!!int ", b"- ", b": ", b"\n", b"["),
]
TABLE_WORDS = [
    *(b'"offsetTable":{', b'"T@G":{0:5}', b'"topicConfigTable":{', b'"dataVersion":{"counter":1}', b'"perm":-1'),
    *(b"null", b"9223372036854775808", b"-1", b'"$ref":"$"', b"[]", b"{}", b"1e9", b'""', b"true"),
]
WORDS = {
    "sql92_expression": SQL_WORDS,
    "fastjson_text": JSON_WORDS + TABLE_WORDS,
    "acl_yaml": YAML_WORDS,
    "json_tables": TABLE_WORDS,
    "transaction_records": PROPERTY_WORDS,
    "json_header": JSON_WORDS,
    "header_record": ENTRY_WORDS,
    "binary_header": ENTRY_WORDS,
    "frames": JSON_WORDS + ENTRY_WORDS,
    "sent_properties": PROPERTY_WORDS,
    "stored_properties": PROPERTY_WORDS,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bin/fuzz", description="Fuzz the readers of untrusted bytes.")
    parser.add_argument("--seconds", type=float, default=30, help="for all targets together (default: %(default)s)")
    parser.add_argument("--seed", default="0", help="any text (default: %(default)s)")
    parser.add_argument("--only", metavar="TARGET", help="this target alone")
    parser.add_argument("--grow", action="store_true", help="add short inputs that reach new code to tests/fuzz/corpus")
    parser.add_argument("inputs", nargs="*", type=Path, help="run these files once instead (with --only)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        modules = [build(package, Path(directory)) for package in ("protocol", "store")]
        maps = [coverage_map(module) for module in modules]
        # These import the decoders, which must find the sanitized extensions.
        from fuzz_python_targets import LineCoverage, python_targets
        from fuzz_targets import targets

        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        known = {name: (target, maps[name == "record"]) for name, target in targets(*modules).items()}
        for name, (target, sources) in python_targets(Path(directory)).items():
            lines = LineCoverage(sources)
            known[name] = (lines.traced(target), memoryview(lines.hits))
        chosen = {name: each for name, each in known.items() if options.only in (None, name)}
        if not chosen or (options.inputs and not options.only):
            parser.error(f"--only takes one of {', '.join(known)}")
        for name, (target, hits) in chosen.items():
            if options.inputs:
                for file in options.inputs:
                    target(file.read_bytes())
                continue
            run(name, target, hits, options.seconds / len(chosen), options.seed, options.grow)


def build(package: str, directory: Path) -> ModuleType:
    """Build the extension, instrumented, as the module that the rest of the project imports."""
    object_file = str(directory / "coverage.o")
    source = str(ROOT / "tests" / "fuzz" / "coverage.c")
    subprocess.run(["cc", "-c", "-fPIC", "-O1", source, "-o", object_file], check=True, timeout=60)
    module = compile_speedups(package, directory, "-fsanitize-coverage=trace-pc", object_file)
    sys.modules[f"triomq.{package}._speedups"] = module
    return module


def coverage_map(module: ModuleType) -> memoryview:
    file = module.__file__
    assert file is not None
    return memoryview((ctypes.c_ubyte * MAP_BYTES).in_dll(ctypes.CDLL(file), "coverage_map")).cast("B")


def run(name: str, target: Callable[[bytes], None], hits: memoryview, seconds: float, seed: str, grow: bool) -> None:
    kept = CORPUS / name
    corpus = [file.read_bytes() for file in sorted(kept.iterdir())]
    known = len(corpus)
    coverage = Coverage(hits)
    with tempfile.NamedTemporaryFile(prefix=f"fuzz-{name}-", delete=False) as file:
        last_input = LastInput(file.name)
        print(f"{name}: the input under test is in {file.name}", flush=True)
        mutator = Mutator(f"{seed} {name}", WORDS.get(name, ()))
        try:
            count = fuzz(target, corpus, mutator, coverage, time.monotonic() + seconds, last_input.remember)
        except BaseException:
            last_input.cut()
            raise
    Path(file.name).unlink()
    print(f"{name}: {count} inputs, {coverage.blocks} blocks reached, corpus {known} -> {len(corpus)}", flush=True)
    for data in corpus[known:] if grow else ():
        if len(data) <= MAX_KEPT_BYTES:
            (kept / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)


class LastInput:
    """The input under test, in a file that survives a crash of this process (truncated to its size after an exception).
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        with self._path.open("r+b") as file:
            file.truncate(1 << 16)
            self._memory = mmap.mmap(file.fileno(), 0)
        self._size = 0

    def remember(self, data: bytes) -> None:
        self._memory[: len(data)] = data
        self._size = len(data)

    def cut(self) -> None:
        with self._path.open("r+b") as file:
            file.truncate(self._size)


if __name__ == "__main__":
    main()
