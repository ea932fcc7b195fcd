"""The project's borders and habits, read from its source: which room imports which, and which calls are banned."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from docs.generators import declared_bounds, declared_constants, limits_table
from docs.generators.body_registry import REQUEST_BODIES, RESPONSE_BODIES
from triomq.broker.config import BrokerSettings
from triomq.namesrv.config import NamesrvSettings
from triomq.protocol.bounds import FORMS
from triomq.protocol.settings import declarations
from triomq.remoting.config import ServerSettings
from triomq.store.config import StoreSettings

ROOT = Path(__file__).resolve().parent.parent

# package -> the rooms that it may import, and third-party packages.
ARROWS: dict[str, set[str]] = {
    "protocol": set(),
    "http2": set(),
    "grpc_front": {"http2"},
    "daemon": {"protocol"},
    "remoting": {"protocol"},
    "store": {"protocol"},
    "dledger": {"store", "remoting", "protocol", "daemon"},
    "monitoring": {"remoting", "protocol"},
    "dashboard": {"monitoring", "remoting", "protocol"},
    "namesrv": {"dashboard", "monitoring", "remoting", "protocol", "daemon"},
    "broker": {"dashboard", "monitoring", "dledger", "store", "remoting", "protocol", "daemon", "grpc_front", "http2"},
    "client": {"remoting", "protocol"},
    "spark": {"client", "store", "remoting", "protocol"},
    "pipeline": {"spark", "monitoring", "client", "protocol"},
    "admin": {"remoting", "protocol"},
}
# Modules that stand above their package: they run whole clusters and so may import more.
MORE_ARROWS: dict[str, set[str]] = {
    "admin/assistant/server.py": {"mcp", "trio"},
    "admin/diagnosis/dledger.py": {"dledger"},
    "admin/verbs/dledger.py": {"dledger"},  # what both tools show of a group
    "broker/lifecycle/quickstart.py": {"client"},
    "broker/lifecycle/both_daemons.py": {"namesrv"},
    "broker/embedded/daemons.py": {"namesrv"},
    "client/pytest_plugin.py": {"broker"},
    "store/__main__.py": {"dledger"},  # the same command looks at the store of a member
    "remoting/compiling.py": {"mypy_extensions"},  # read by the compiler, never run
}
OTHERS: dict[str, set[str]] = {
    "protocol": {"msgspec", "msgpack", "lz4", "zstandard", "typing_extensions"},
    "http2": set(),
    "grpc_front": {"google"},
    "daemon": {"structlog", "trio", "msgspec", "yaml"},
    "remoting": {"structlog", "trio", "msgspec", "outcome"},
    "store": {"structlog", "trio", "msgspec", "crcmod", "outcome"},
    "dledger": {"structlog", "trio", "msgspec"},
    "monitoring": {"structlog", "trio", "h11"},
    "dashboard": {"structlog", "trio", "jinja2", "markupsafe"},
    "namesrv": {"structlog", "trio", "msgspec"},
    "broker": {"structlog", "trio", "msgspec", "msgpack", "yaml", "opentelemetry"},
    "client": {"structlog", "trio", "msgspec", "pytest", "typing_extensions", "fastavro", "pydantic", "opentelemetry"},
    "spark": {"pyspark", "pyarrow"},
    "pipeline": {"pyarrow", "deltalake", "pyiceberg", "sqlalchemy", "fastavro", "google", "yaml"},
    "admin": {"yaml"},
}

SOURCES = sorted(
    path for package in ARROWS for path in (ROOT / package).rglob("*.py") if "__pycache__" not in path.parts
)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported_packages(tree: ast.AST) -> set[str]:
    """Return the rooms of the project that a module imports (`triomq.store` is `store`), and other packages by name."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {room_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            if node.module == "triomq":
                found |= {alias.name for alias in node.names}
            else:
                found.add(room_of(node.module))
    return found


def room_of(module: str) -> str:
    first, _, rest = module.partition(".")
    return rest.split(".")[0] if first == "triomq" and rest else first


def imported_by(room: str) -> set[str]:
    """Return what the room's modules import, except what only their own exceptions permit."""
    found: set[str] = set()
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] == room:
            found |= imported_packages(ast.parse(path.read_text())) - MORE_ARROWS.get(relative(path), set())
    return found


def stale_arrows(room: str, imported: set[str]) -> set[str]:
    return (ARROWS[room] | OTHERS[room]) - imported


@pytest.mark.parametrize("room", ARROWS)
def test_every_arrow_is_taken(room: str) -> None:
    assert not stale_arrows(room, imported_by(room)), f"{room} imports these no more: take them out of the tables"


@pytest.mark.parametrize("file", MORE_ARROWS)
def test_every_exception_is_needed(file: str) -> None:
    assert MORE_ARROWS[file] - imported_packages(ast.parse((ROOT / file).read_text())) == set()


def test_the_architecture_shows_the_arrows() -> None:
    shown = {
        cells[1].strip(" `/"): set(re.findall(r"\w+", cells[3]))
        for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines()
        if (cells := line.split("|"))[0] == "" and len(cells) == 5 and cells[1].startswith(" `")
    }
    assert shown == ARROWS


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_imports_follow_the_arrows(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    allowed = {package, "__version__", *ARROWS[package], *OTHERS[package], *MORE_ARROWS.get(relative(path), set())}
    wrong = imported_packages(ast.parse(path.read_text())) - allowed - set(sys.stdlib_module_names)
    assert not wrong, f"{relative(path)} may not import {sorted(wrong)}"


STORE_SYSTEM_CALLS = {"store/disk/files.py", "store/disk/kernel_sync.py"}


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def banned_calls(path: Path, tree: ast.AST) -> list[str]:
    """Return calls that are wrong wherever they occur, with the reason."""
    found = []
    file = relative(path)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        if name == "time.sleep" and not file.startswith("admin/"):  # commands have no event loop
            found.append(f"{file}:{node.lineno}: time.sleep blocks the event loop")
        if name.endswith("open_memory_channel") and any("inf" in dotted(arg) for arg in node.args):
            found.append(f"{file}:{node.lineno}: a channel without a bound")
        if file.startswith("store/") and file not in STORE_SYSTEM_CALLS and name.startswith("os."):
            called = name.removeprefix("os.")
            if not called.startswith("path.") and called not in {"cpu_count", "sysconf", "getpid", "fspath"}:
                found.append(f"{file}:{node.lineno}: {name}: only the files of STORE_SYSTEM_CALLS may")
        if file.startswith("store/") and name.endswith(".flush") and "mmap" in name:
            found.append(f"{file}:{node.lineno}: mmap.flush keeps the interpreter lock; use fdatasync")
        if file.startswith("protocol/") and name in {"open", "time.time", "time.time_ns", "time.monotonic"}:
            found.append(f"{file}:{node.lineno}: {name}: protocol opens nothing and has no clock")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_banned_call(path: Path) -> None:
    assert banned_calls(path, ast.parse(path.read_text())) == []


@pytest.mark.parametrize("path", [p for p in SOURCES if p.parts[-2] == "protocol"], ids=relative)
def test_protocol_never_awaits(path: Path) -> None:
    tree = ast.parse(path.read_text())
    awaits = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
    assert awaits == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_names_say_what_things_are(path: Path) -> None:
    vague = ("Manager", "Service", "Impl", "Util", "Utils", "Helper")
    names = [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith(vague)
    ]
    assert names == []


def test_the_rules_see_what_they_forbid() -> None:
    bad = ast.parse("import time, trio, math\ntime.sleep(1)\ntrio.open_memory_channel(math.inf)")
    assert len(banned_calls(ROOT / "broker" / "x.py", bad)) == 2
    program = "from triomq.broker.x import y\nimport trio\nimport triomq.store.z\nfrom triomq import protocol"
    assert imported_packages(ast.parse(program)) == {"broker", "trio", "store", "protocol"}
    imported = {"dashboard", "monitoring", "remoting", "daemon", "trio", "structlog", "msgspec"}
    assert stale_arrows("namesrv", imported) == {"protocol"}


def test_every_room_is_part_of_the_package() -> None:
    links = {path.name: path.resolve() for path in (ROOT / "src" / "triomq").iterdir() if path.is_symlink()}
    assert links == {room: ROOT / room for room in ARROWS}


def test_every_directory_with_modules_is_a_package() -> None:
    without = {path.parent for path in SOURCES if not (path.parent / "__init__.py").is_file()}
    assert without == set()


@cache
def compiled_modules() -> set[str]:
    lines = (ROOT / "compiled.txt").read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def names_from_compiled_modules(tree: ast.AST) -> set[str]:
    """Return the names that a module imports from modules that mypyc compiles."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and f"{(node.module or '').removeprefix('triomq.').replace('.', '/')}.py" in compiled_modules()
        for alias in node.names
    }


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_only_compiled_classes_inherit_from_compiled_ones(path: Path) -> None:
    if relative(path) in compiled_modules():
        return
    tree = ast.parse(path.read_text())
    compiled = names_from_compiled_modules(tree)
    heirs = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(dotted(base) in compiled for base in node.bases)
    ]
    assert not heirs, f"{heirs} would fail where {sorted(compiled)} are compiled: list {relative(path)} in compiled.txt"


def is_bare_final(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Final"


@pytest.mark.parametrize("name", sorted(compiled_modules()))
def test_constant_tuples_of_compiled_modules_are_objects(name: str) -> None:
    """mypyc keeps a tuple whose size its type says as separate values, and makes an object of them at each use."""
    bare = [
        ast.unparse(node.target)
        for node in ast.parse((ROOT / name).read_text()).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Tuple) and is_bare_final(node.annotation)
    ]
    assert not bare, f"annotate {bare} with Final[tuple[..., ...]]"


@pytest.mark.parametrize("name", sorted(compiled_modules()))
def test_names_of_caught_exceptions_have_one_class(name: str) -> None:
    """A variable of a compiled class holds no other class: `except A as error` and `except B as error` in one function
    would end in a TypeError."""
    tree = ast.parse((ROOT / name).read_text())
    compiled = names_from_compiled_modules(tree)
    mixed = []
    for function in ast.walk(tree):
        caught: dict[str, set[str]] = {}
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else ():
            if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                caught.setdefault(node.name, set()).add(ast.unparse(node.type))
        mixed += [classes for classes in caught.values() if len(classes) > 1 and classes & compiled]
    assert not mixed, f"give {mixed} a name each"


def test_what_is_compiled_exists() -> None:
    assert {name for name in compiled_modules() if not (ROOT / name).is_file()} == set()


def test_every_value_that_a_peer_chooses_has_a_bound() -> None:
    """Where the decoder has no bound of its own, the declaration says in words or by a key what else bounds it."""
    without = [
        f"{record.__name__}.{one.path}"
        for _, _, record in declared_bounds.records()
        for one in declared_bounds.declared(record)
        if one.bound is None or not (one.limit or one.bound.key)
    ]
    assert not without, f"declare these with a type of protocol/bounds.py: {without}"


def test_every_bound_says_why_it_refuses_no_client_that_works() -> None:
    """A bound that can say nothing of that kind is too low, or has to be met by slower service."""
    reasons = {
        f"{record.__name__}.{one.path}": one.bound.clients
        for _, _, record in declared_bounds.records()
        for one in declared_bounds.declared(record)
        if one.bound is not None
    }
    reasons |= {one.name: one.clients for one in declared_constants.CONSTANTS}
    reasons |= {one.key: one.clients for one in declared_constants.SETTINGS}
    short = {form: len(form) + 8 for form in FORMS}
    without = [
        name
        for name, reason in reasons.items()
        if not any(reason.startswith(form) and len(reason) >= least for form, least in short.items())
    ]
    assert without == []


def test_every_test_that_a_bound_names_exists() -> None:
    missing = []
    for name in limits_table.named_tests():
        file, _, test = name.partition("::")
        if not (ROOT / file).is_file() or f"def {test}(" not in (ROOT / file).read_text():
            missing.append(name)
    assert missing == []


def test_every_setting_that_a_bound_names_exists() -> None:
    records = (BrokerSettings, StoreSettings, ServerSettings, NamesrvSettings)
    known = {one.key for record in records for one in declarations(record)}
    assert limits_table.named_keys() - known == set()


def constants_named_max() -> set[str]:
    return {
        f"{relative(path).removesuffix('.py').replace('/', '.')}.{name}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] in declared_constants.ROOMS and "embedded" not in path.parts
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if (name := dotted(target)).lstrip("_").startswith("MAX_")
    }


def test_every_constant_that_bounds_what_a_peer_chooses_is_in_the_table_of_limits() -> None:
    listed = {one.name for one in declared_constants.CONSTANTS}
    assert listed & declared_constants.NOT_CHOSEN == set()
    unlisted = constants_named_max() - listed - declared_constants.NOT_CHOSEN
    assert not unlisted, f"list {sorted(unlisted)} in docs/generators/declared_constants.py"
    assert (listed | declared_constants.NOT_CHOSEN) - constants_named_max() == set()


def decoded_bodies(tree: ast.AST) -> set[str]:
    """Return the names from protocol.bodies whose `decode` or `decode_request` a module names."""
    bodies = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("triomq.protocol.bodies.")
        for alias in node.names
    }
    decoders = ("decode", "decode_request", "decode_compressed")
    found = {dotted(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in decoders}
    return found & bodies


def test_every_body_that_a_server_decodes_is_registered() -> None:
    tables = (REQUEST_BODIES, RESPONSE_BODIES)
    known = {body.__name__ for table in tables for bodies in table.values() for body in bodies}
    servers = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in ("broker", "namesrv")]
    servers.remove(ROOT / "namesrv/kv_config.py")  # it reads its own file
    found = {name for path in servers for name in decoded_bodies(ast.parse(path.read_text()))}
    assert len(found) > 8
    assert found - known == set()


SERVERS = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in ("broker", "namesrv")]


@pytest.mark.parametrize("path", SERVERS, ids=relative)
def test_bodies_of_requests_are_decoded_as_such(path: Path) -> None:
    """`decode` reads texts of any length in fastjson's dialect, which holds all other clients up."""
    wrong = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and dotted(node.func).endswith(".decode")
        and any(dotted(argument) == "request.body" for argument in node.args)
    ]
    assert wrong == []
