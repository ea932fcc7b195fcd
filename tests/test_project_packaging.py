"""What pip builds from the project: an sdist with everything in it, and wheels that work beside other software.

All of it happens in copies outside of the project, and without a network: the dependencies are those of the Python that
runs the tests.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from setuptools import Extension

from triomq._version import RELEASE

ROOT = Path(__file__).resolve().parent.parent
BUILT = ("build", "dist", "*.so", "*.egg-info", "__pycache__")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "node_modules", "target", "site", ".*_cache", *BUILT)
has_compiler = shutil.which("cc") is not None and (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file()
has_git = shutil.which("git") is not None
COMMITS = 3
needs_compiler = pytest.mark.skipif(not has_compiler, reason="no C compiler, or no Python.h")
slow = pytest.mark.slow
COMPILED_WHEEL = os.environ.get("TRIOMQ_COMPILED_WHEEL")
"""Made from the sdist with TRIOMQ_COMPILE=1, which takes minutes."""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command and return its output. It does not inherit the settings of this process that affect builds."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TRIOMQ_", "PYTHONPATH"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("checkout") / "triomq"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
    if has_git:
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        run("git", "init", "--quiet", cwd=copy)
        for _ in range(COMMITS):
            run(*git, "commit", "--quiet", "--allow-empty", "-m", "one", cwd=copy)
    return copy


@pytest.fixture(scope="module")
def version(checkout: Path) -> str:
    """The version that everything that is built from the checkout has."""
    if not has_git:
        return RELEASE
    commit = run("git", "rev-parse", "HEAD", cwd=checkout)
    return f"{RELEASE}.dev{COMMITS}+g{commit[:8]}"


@pytest.fixture(scope="module")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sdist")
    program = f"import build_backend; build_backend.build_sdist({str(directory)!r})"
    run(sys.executable, "-c", program, cwd=checkout, PYTHONPATH="bin")
    (file,) = directory.iterdir()
    return file


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    (project,) = directory.iterdir()
    return project


def make_wheel(project: Path, directory: Path, **environment: str) -> Path:
    """Make a wheel of a copy of `project`, because pip leaves build files in the source."""
    source = directory / "source"
    shutil.copytree(project, source, symlinks=True, ignore=shutil.ignore_patterns(*BUILT))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", directory, source, cwd=directory, **environment)
    (wheel,) = directory.glob("triomq-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default one, made from the sdist."""
    return make_wheel(unpacked, tmp_path_factory.mktemp("wheel"))


def run_pip(python: Path, *arguments: str | Path) -> None:
    """Run the pip of the Python that runs the tests for `python`, which has none of its own: that saves seconds."""
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *arguments, cwd=python.parent)


def environment_with(directory: Path, *wheels: Path) -> Path:
    """Make a fresh Python with these wheels, which also finds the packages of the Python that runs the tests."""
    run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory.parent)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    python = directory / "bin" / "python"
    run_pip(python, "install", "--no-compile", "--no-deps", "--no-index", *wheels)
    return python


BUILD = "from triomq.protocol import speedups; print(speedups.running_build(), speedups.__file__)"


def running_build(python: Path) -> str:
    build, _, file = run(python, "-c", BUILD, cwd=python.parent).strip().partition(" ")
    assert str(python.parent.parent) in file, "another triomq than the installed one was imported"
    return build


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel; extensions only by their presence."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: b"" if name.endswith((".so", "RECORD")) else archive.read(name) for name in sorted(archive.namelist())
        }


@slow
def test_an_sdist_has_everything_that_a_build_or_a_reader_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [
        *("LICENSE", "NOTICE", "README.md", "setup.py", "pyproject.toml", "compiled.txt", "bin/build_backend.py"),
        *("src/triomq/protocol/_speedups.c", "src/triomq/protocol/_speedups.h", "src/triomq/store/_speedups.c"),
        *("src/triomq/protocol/c/properties.h", "src/triomq/store/c/take.h"),
        *("src/triomq/py.typed", "src/triomq/protocol/_speedups.pyi", "conf/broker.conf", "bin/mqbroker"),
        *("docs/internals/speedups.md", "tests/conftest.py", "tests/test_project_packaging.py"),
    ]
    assert [name for name in wanted if name not in names] == []
    listed = [line for line in (ROOT / "compiled.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [name for name in listed if f"src/triomq/{name}" not in names] == []
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []


@slow
def test_a_wheel_from_the_sdist_is_the_wheel_from_the_checkout(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    assert contents(wheel) == contents(make_wheel(checkout, tmp_path))
    assert [name for name in contents(wheel) if name.endswith((".c", ".h"))] == []


@slow
def test_distributions_say_which_commit_they_are_of_without_git(
    checkout: Path, version: str, sdist: Path, unpacked: Path, wheel: Path, tmp_path: Path
) -> None:
    assert (sdist.name, wheel.name.split("-")[1]) == (f"triomq-{version}.tar.gz", version)
    run(sys.executable, "-m", "venv", "--without-pip", "python", cwd=tmp_path)
    (packages,) = (tmp_path / "python").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    asked = ["-c", "import triomq; print(triomq.__version__)"]
    installed = tmp_path / "python" / "bin" / "python"
    assert run(installed, *asked, cwd=tmp_path, PATH="").strip() == version
    assert run(sys.executable, *asked, cwd=unpacked / "src", PATH="").strip() == version
    assert 'BUILT = ""' in (checkout / "src/triomq/_version.py").read_text(), "what is built from stays as it was"


@slow
@needs_compiler
def test_a_usual_install_runs_the_speedups(wheel: Path, tmp_path: Path) -> None:
    assert running_build(environment_with(tmp_path / "python", wheel)) == "speedups"


@slow
@needs_compiler
@pytest.mark.parametrize("package", ["protocol", "store"])
@pytest.mark.parametrize("bits", [32, 64])
def test_no_extension_is_built_where_a_length_may_be_negative(package: str, bits: int, tmp_path: Path) -> None:
    source = tmp_path / "build.c"
    source.write_text(
        f"#include <stdint.h>\n#undef UINTPTR_MAX\n#define UINTPTR_MAX UINT{bits}_MAX\n"
        f'#include "{ROOT / package / "_speedups.c"}"\n'
    )
    include = sysconfig.get_paths()["include"]
    command = ["cc", "-fsyntax-only", "-DSOURCE_CRC=0u", f"-I{include}", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode == 0) is (bits == 64), result.stderr
    assert ("need 64-bit pointers: a length above 2 GiB would be negative" in result.stderr) is (bits == 32)


@pytest.mark.parametrize("setting", [{"TRIOMQ_PURE": "1"}, {"CC": "/bin/false"}], ids=["refused", "no compiler"])
def test_an_install_without_speedups_is_pure_python(unpacked: Path, tmp_path: Path, setting: dict[str, str]) -> None:
    pure = make_wheel(unpacked, tmp_path, **setting)
    assert [name for name in contents(pure) if name.endswith(".so")] == []
    assert pure.name.endswith("-py3-none-any.whl") == ("TRIOMQ_PURE" in setting)
    assert running_build(environment_with(tmp_path / "python", pure)) == "pure"


@pytest.mark.skipif(COMPILED_WHEEL is None, reason="bin/dev/test-compiled makes the wheel and runs this")
def test_a_compiled_wheel_runs_compiled(tmp_path: Path) -> None:
    assert COMPILED_WHEEL is not None
    python = environment_with(tmp_path / "python", Path(COMPILED_WHEEL))
    assert running_build(python) == "compiled"
    assert "mqbroker" in run(python.with_name("mqbroker"), "-h", cwd=tmp_path)


def test_a_compiled_module_gets_each_flag_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """mypycify gives all modules one list of flags."""
    made: list[Extension] = []

    def mypycify(*_: object, **__: object) -> list[Extension]:
        flags = ["-O3"]
        return [Extension(name, [f"{name}.c"], extra_compile_args=flags) for name in ("a", "b", "c")]

    monkeypatch.setattr("mypyc.build.mypycify", mypycify)
    monkeypatch.setattr("setuptools.setup", lambda *, ext_modules, **_: made.extend(ext_modules))
    monkeypatch.setenv("TRIOMQ_COMPILE", "1")
    runpy.run_path(str(ROOT / "setup.py"))
    assert len(made) == 5
    for extension in made:
        assert len(extension.extra_compile_args) == len(set(extension.extra_compile_args))


def test_mypy_is_required_only_for_a_compiled_build(checkout: Path) -> None:
    """Where mypy is not installed yet."""
    program = """if True:
        import os, sys
        sys.modules["mypyc"] = None
        import build_backend
        print(*build_backend.get_requires_for_build_wheel(), sep="\\n")
        assert "TRIOMQ_PURE" not in os.environ
    """

    def required(**environment: str) -> str:
        return run(sys.executable, "-c", program, cwd=checkout, PYTHONPATH="bin", **environment)

    assert "mypy" not in required()
    assert {"mypy", "trio"} <= {line.partition(">")[0] for line in required(TRIOMQ_COMPILE="1").splitlines()}


def foreign_wheel(directory: Path) -> Path:
    """Another distribution, whose packages have the names of our rooms."""
    files = {
        "daemon/__init__.py": b"class DaemonContext: pass\n",
        "store/__init__.py": b"",
        "protocol/__init__.py": b"NAME = 'theirs'\n",
        "other-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: other\nVersion: 1\n",
        "other-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, data in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files["other-1.dist-info/RECORD"] = (record + "other-1.dist-info/RECORD,,\n").encode()
    file = directory / "other-1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file


@slow
def test_packages_of_the_same_names_as_our_rooms_stay_whole(wheel: Path, tmp_path: Path) -> None:
    python = environment_with(tmp_path / "python", foreign_wheel(tmp_path), wheel)
    theirs = "import daemon, store, protocol; daemon.DaemonContext; assert protocol.NAME == 'theirs'"
    run(python, "-c", f"import triomq.daemon.clock, triomq.store.results; {theirs}", cwd=tmp_path)
    (packages,) = (tmp_path / "python").glob("lib/python*/site-packages")
    ours = {path.stem.partition("-")[0] for path in packages.iterdir() if "mq" in path.name}
    assert ours == {"triomq", "pyspark_rocketmq", "pyspark_rocketmq_store"}, "nothing else is installed at the top"
    run_pip(python, "uninstall", "--yes", "triomq")
    run(python, "-c", theirs, cwd=tmp_path)
    assert not (packages / "triomq").exists()
