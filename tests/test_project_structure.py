"""The project's structure, read from its source: no circles, short functions, few parameters, classes that hold little,
nothing unused. Long files are a warning.

Each exception is listed here with its reason. An exception that is no longer needed fails, too.
"""

from __future__ import annotations

import ast
import re
import tomllib
import warnings
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from triomq.spark.jobs.main import ELSEWHERE

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "triomq"
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.is_symlink())
SOURCES = sorted(
    path
    for folder in (*(ROOT / room for room in ROOMS), PACKAGE, ROOT / "src")
    for path in (folder.glob("*.py") if folder.name not in ROOMS else folder.rglob("*.py"))
)

# What runs beside the daemons. Modules of sim/ are `sim.network`, those of benchmarks/ just `boot`.
BESIDE = sorted(path for folder in ("sim", "benchmarks") for path in (ROOT / folder).rglob("*.py"))

# The broker's table of optional parts, which no other file of broker/ imports inside a function.
OPTIONAL = ROOT / "broker" / "optional.py"

# More is a warning: where a file is divided follows from what it does, not from its length.
FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
MAX_ATTRIBUTES = 20

TABLE = "a table that tests hold against the specification"
OPTIONS = "options of a public constructor, given by name"

LONG_FUNCTIONS: dict[str, str] = {}
MANY_PARAMETERS: dict[str, str] = {
    "broker/embedded/local_cluster.py:LocalCluster.__init__": OPTIONS,
    "client/consume/lite_pull_consumer.py:LitePullConsumer.__init__": OPTIONS,
    "client/consume/push_consumer.py:PushConsumer.__init__": OPTIONS,
    "client/produce/producer.py:Producer.__init__": OPTIONS,
    "client/facades/aio.py:Producer.send_value": "the parts of a message, given by name",
    "client/facades/blocking.py:Producer.send_value": "the parts of a message, given by name",
    "client/produce/producer.py:Producer.send_value": "the parts of a message, given by name",
    "client/produce/transaction_producer.py:TransactionProducer.__init__": OPTIONS,
    "broker/spans/pulls.py:TracingPulls.__init__": "those of a PullProcessor, and the spans",
    "broker/transactions/half_message.py:HalfMessage.__init__": "the fields of a message, given by name",
    "protocol/settings.py:setting": "the facts of a declaration, given by name",
    "protocol/command.py:RemotingCommand.__init__": "the fields of a command, most of them given by name",
    "protocol/message_to_store.py:MessageToStore.__init__": "the fields of a message, most of them given by name",
    "protocol/record.py:write_record_reference": "the arguments of the C function that it defines",
    "store/queues/index_file.py:write_keys_reference": "the arguments of the C function that it defines",
    "store/writing/delivering.py:deliver_records_reference": "the arguments of the C function that it defines",
}
SETTINGS = "settings: a field for each key"
MANY_ATTRIBUTES: dict[str, str] = {
    "broker/config.py:BrokerSettings": SETTINGS,
    "broker/metrics/stats.py:BrokerStats": "a field for each of RocketMQ's statistics",
    "client/consume/group_consumer.py:GroupConsumer": "the state of a member of a group, shared by both consumers",
    "dledger/rules/timing.py:Timing": SETTINGS,
    "remoting/config.py:ServerSettings": SETTINGS,
    "remoting/connection.py:Connection": "parser, requests, output and tasks of a peer, in one object for speed",
    "sim/history.py:History": "the kinds of what happened in a run, which the checks read",
    "spark/options.py:SourceOptions": SETTINGS,
    "store/message_store.py:DefaultMessageStore": "the parts of the store, which it wires",
    "store/rocketmq_config.py:RocketMQStoreSettings": SETTINGS,
}
# Modules (as patterns) whose public names are used outside of the rooms, or found by name.
INTERFACES: dict[str, str] = {
    "admin/commands/*.py": "a command's function is found by its name (admin/commands/__init__.py)",
    "admin/verbs/*.py": "a verb's function is found by its name (admin/verbs/__init__.py)",
    "broker/embedded/virtual_clock.py": "public as triomq.testing, and trio.abc.Clock",
    "broker/extensions.py": "what plug-ins of users inherit from",
    "client/compat/*.py": "the interface of the old rocketmq-client-python",
    "client/pytest_plugin.py": "fixtures and hooks of pytest",
    "daemon/monotonic_clock.py": "trio.abc.Clock",
    "dledger/ledger/ledger.py": "what tests open",
    "dledger/ledger/records.py": "the record of a new leader",
    "dledger/ledger/term_files.py": "what tests read and write",
    "dledger/rules/*.py": "bin/dev/simulate-dledger and tests drive the rules",
    "dledger/wire/bodies.py": "the bodies of all requests",
    "dledger/wire/codes.py": "DLedger's tables of numbers and names, whole",
    "grpc_front/*.py": "what tests drive; no daemon has a port for gRPC yet",
    "http2/*.py": "what tests drive; no daemon has a port for HTTP/2 yet",
    "protocol/codes.py": "RocketMQ's table of numbers, whole",
    "protocol/message.py": "public as triomq.Message",
    "protocol/sys_flag.py": "RocketMQ's table of bits, whole",
    "spark/source.py": "what pyspark.sql.datasource calls",
    "spark/store_source.py": "what pyspark.sql.datasource calls",
}
# Single names that nothing in the rooms uses.
UNUSED: dict[str, str] = {
    "broker/message_writer.py:MessageWriter.waiting_for_disk": "a bound that tests hold",
    "broker/metrics/stats.py:BrokerStats.commercial": "one of RocketMQ's statistics; plug-ins count there",
    "broker/metrics/stats_names.py:STATS_NAMES": TABLE,
    "broker/tasks.py:NOT_SCHEDULED": TABLE,
    "client/core/received_message.py:ReceivedMessage.delivery_attempt": "what applications read",
    "client/core/received_message.py:ReceivedMessage.invisible_until_ms": "what applications read",
    "protocol/frame.py:decode_frame": "the inverse of encode_frame, which tests read frames with",
    "protocol/headers/registry.py:REQUEST_HEADERS": TABLE,
    "protocol/headers/registry.py:RESPONSE_HEADERS": TABLE,
    "protocol/record.py:encode_record": "the inverse of decode_record, which tests write records with",
    "store/message_store.py:DefaultMessageStore.is_broken": "the state of the store, for its owner",
}


# Callbacks of the broker that are set on an object after its construction, and why. Elsewhere they are arguments of
# constructors, or arrive by a method that says who hears of what (broker/assembly/events.py).
SET_LATER: dict[str, str] = {
    "broker/group/roles.py: made.log.on_synced": "the member exists as long as its port",
    "broker/group/roles.py: made.log.propose": "the member exists as long as its port",
    "broker/hooks.py: connection.on_answer": "the server makes connections, and knows no hooks",
    "broker/limits.py: pool.guard": "the gate looks at the pool that it guards",
    "broker/pulls/long_polling.py: pool.make_room": "held pulls count in the pool that asks them for room",
    "broker/views/operator.py: connection.on_answer": "the connection is new, and of this request only",
}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_name(path: Path) -> str:
    """Return `triomq.store.reading.reading` for store/reading/reading.py, `triomq.store` for store/__init__.py."""
    if path in BESIDE:
        return (
            ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("benchmarks.").removesuffix(".__init__")
        )
    parts = path.relative_to(ROOT / "src" if path.is_relative_to(ROOT / "src") else ROOT).with_suffix("").parts
    names = [*(() if parts[0] == "triomq" or path.parent.name == "src" else ("triomq",)), *parts]
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in SOURCES}


@cache
def modules_beside() -> dict[str, Path]:
    return {module_name(path): path for path in BESIDE}


@cache
def optional_parts() -> dict[str, str]:
    """Return the module of each part in the table of optional ones, as it is imported at run time."""
    [table] = [
        node.value
        for node in tree_of(OPTIONAL).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PARTS" and node.value is not None
    ]
    return {name: module for _, name, module in ast.literal_eval(table)}


def parts_for_types() -> dict[str, str]:
    """Return the same for type checkers."""
    found: dict[str, str] = {}
    for node in ast.walk(tree_of(OPTIONAL)):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("triomq"):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def late_imports(tree: ast.AST) -> list[int]:
    """Return the lines of imports inside functions."""
    return [
        inner.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
        or (isinstance(inner, ast.Name) and inner.id in {"__import__", "import_module"})
        or (isinstance(inner, ast.Attribute) and inner.attr == "import_module")
    ]


def imported_modules(path: Path) -> set[str]:
    """Return the project's modules that this one imports anywhere, also for type checkers and in functions.

    A part in the table of optional ones counts for the modules that use it, not for the table.
    """
    if path == OPTIONAL:
        return set()
    known = modules() | modules_beside()
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "optional":
            found.add(optional_parts()[node.attr])
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in known else node.module)
    return (found & known.keys()) - {module_name(path)}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of two or more modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return each function with its name in the project, `store/flush.py:Flush.run`."""

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{relative(path)}:{prefix}{child.name}", child
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from inside(child, f"{prefix}{child.name}.")
            else:
                yield from inside(child, prefix)

    return inside(tree_of(path), "")


def parameter_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([argument for argument in every if argument.arg not in {"self", "cls"}])


def compare(found: dict[str, int], allowed: dict[str, str], limit: str) -> None:
    """Fail for findings that are not allowed, and for allowed ones that are not found."""
    wrong = {name: count for name, count in found.items() if name not in allowed}
    assert not wrong, f"over {limit}: {wrong}"
    stale = allowed.keys() - found.keys()
    assert not stale, f"exceptions that nothing needs any more: {sorted(stale)}"


def test_no_modules_import_each_other() -> None:
    assert circles({name: imported_modules(path) for name, path in (modules() | modules_beside()).items()}) == []


def test_rooms_of_the_broker_need_each_other_in_one_direction() -> None:
    """Files beside the rooms count one by one."""
    graph: dict[str, set[str]] = {}
    for name, path in modules().items():
        if name.startswith("triomq.broker."):
            graph.setdefault(within_broker(name), set()).update(
                within_broker(other) for other in imported_modules(path) if other.startswith("triomq.broker.")
            )
    assert circles(graph) == []


def test_only_one_table_of_the_broker_imports_late() -> None:
    late = {relative(path): late_imports(tree_of(path)) for path in (ROOT / "broker").rglob("*.py")}
    assert {name for name, lines in late.items() if lines} == {relative(OPTIONAL)}


def test_optional_parts_are_for_type_checkers_what_they_are_at_run_time() -> None:
    assert parts_for_types() == optional_parts()
    used = {
        node.attr
        for path in (ROOT / "broker").rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "optional"
    }
    assert used == optional_parts().keys()


def within_broker(module: str) -> str:
    """Return the room of a module of broker/, or its own name if it is in none."""
    names = module.split(".")
    return names[2] + "/" if len(names) > 3 or modules()[module].name == "__init__.py" else names[2]


def test_files_are_short() -> None:
    """Do not fail for a length: lines would be squeezed to fit."""
    lengths = {relative(path): len(path.read_text().splitlines()) for path in SOURCES}
    for name, lines in sorted(lengths.items()):
        if lines > FILE_LINES:
            warnings.warn(f"{name} has {lines} lines: does it do more than one thing?", stacklevel=1)


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that a class declares, or assigns to `self`."""
    found = {
        child.target.id
        for child in node.body
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
    }
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and ast.unparse(child.value) == "self":
            found.add(child.attr)
    return found


def test_classes_hold_little() -> None:
    counts = {
        f"{relative(path)}:{node.name}": len(attributes(node))
        for path in (*SOURCES, *BESIDE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    found = {name: n for name, n in counts.items() if n > MAX_ATTRIBUTES}
    compare(found, MANY_ATTRIBUTES, f"{MAX_ATTRIBUTES} attributes")


def test_functions_are_short() -> None:
    lengths = {
        name: (node.end_lineno or node.lineno) - node.lineno + 1
        for path in (*SOURCES, *BESIDE)
        for name, node in functions(path)
    }
    found = {name: n for name, n in lengths.items() if n > MAX_FUNCTION_LINES}
    compare(found, LONG_FUNCTIONS, f"{MAX_FUNCTION_LINES} lines")


def test_functions_have_few_parameters() -> None:
    counts = {name: parameter_count(node) for path in (*SOURCES, *BESIDE) for name, node in functions(path)}
    found = {name: n for name, n in counts.items() if n > MAX_PARAMETERS}
    compare(found, MANY_PARAMETERS, f"{MAX_PARAMETERS} parameters")


def test_rooms_that_nothing_imports_are_not_installed() -> None:
    """Each room in the wheel belongs to a command, a plug-in or a public module, or one that does imports it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    entries = {*project["project"]["scripts"].values()}
    entries |= {target for group in project["project"]["entry-points"].values() for target in group.values()}
    reached = {target.partition(":")[0] for target in entries}
    reached |= {*ELSEWHERE.values()}  # the jobs of mqpipeline are imported by name
    reached |= {name for name in modules() if name.count(".") <= 1 and room_of(name) not in ROOMS}
    pending = list(reached)
    while pending:
        found = imported_modules(modules()[pending.pop()]) - reached
        reached |= found
        pending += found
    left_out = {pattern.removeprefix("triomq.").removesuffix("*") for pattern in excluded_packages(project)}
    assert {room for room in ROOMS if not any(room_of(name) == room for name in reached)} == left_out


def excluded_packages(project: dict[str, Any]) -> list[str]:
    found: list[str] = project["tool"]["setuptools"]["packages"]["find"].get("exclude", [])
    return found


def room_of(module: str) -> str:
    """Return `store` for triomq.store.reading.reading, an empty text for a module outside of the rooms."""
    return module.split(".")[1] if module.startswith("triomq.") else ""


def public_definitions(path: Path) -> Iterator[tuple[str, str]]:
    """Return (qualified name, bare name) of the module's functions, classes, constants, and of its classes' methods."""
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.name
        elif isinstance(node, ast.Assign):
            yield from ((target.id, target.id) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.target.id
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{member.name}", member.name


def names_in_use(tree: ast.AST) -> set[str]:
    """Return every name that is read, and every word of a short text (for `getattr`, `__all__`, entry points)."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
            found |= set(re.findall(r"\w+", node.value))
        elif isinstance(node, ast.MatchClass):
            found |= set(node.kwd_attrs)
    return found


def test_every_public_name_is_used() -> None:
    used = set().union(*(names_in_use(tree_of(path)) for path in SOURCES))
    unused = {
        f"{relative(path)}:{qualified}": 1
        for path in SOURCES
        if not any(fnmatch(relative(path), pattern) for pattern in INTERFACES)
        for qualified, name in public_definitions(path)
        if name not in used and not name.startswith("__")
    }
    compare(unused, UNUSED, "0 uses")
    assert {pattern for pattern in INTERFACES if not list(ROOT.glob(pattern))} == set()


def callback_names() -> set[str]:
    """Return the public attributes that hold a function to call, whatever their class."""
    aliases = {"Callable"}
    trees = [tree_of(path) for path in SOURCES]
    for tree in trees:
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_callable(value, {"Callable"}):
                    aliases.add(name)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if is_callable(
                    value, {"Callable"}
                ):
                    aliases.add(name)
    return {
        node.target.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
        if not node.target.attr.startswith("_") and is_callable(node.annotation, aliases)
    }


def is_callable(annotation: ast.expr, aliases: set[str]) -> bool:
    """Return whether a type is that of a function, or of a function or None."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return is_callable(left, aliases) or is_callable(right, aliases)
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            return name in aliases
    return False


def assigned_attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes of other objects than `self` that the code sets."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(ctx=ast.Store()):
                yield node


def test_parts_of_the_broker_get_their_callbacks_from_constructors() -> None:
    """What is put together in broker/assembly is complete, whatever the attribute."""
    callbacks = callback_names()
    assert {"on_answer", "guard"} <= callbacks
    found = {
        f"{relative(path)}: {ast.unparse(node)}": 1
        for path in SOURCES
        if path.is_relative_to(ROOT / "broker")
        for node in assigned_attributes(tree_of(path))
        if node.attr in callbacks or path.parent.name == "assembly"
    }
    compare(found, SET_LATER, "0 assignments")
    assert [path for path in (ROOT / "broker").rglob("*.py") if "setattr(" in path.read_text()] == [
        ROOT / "broker" / "extensions.py"  # on itself
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_no_package_is_empty(room: str) -> None:
    for folder in {path.parent for path in (ROOT / room).rglob("__init__.py")}:
        code = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
        assert code, f"{relative(folder)} has no module"


def test_the_rules_see_what_they_forbid() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    function = ast.parse("def f(self, a, /, b, *, c): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert parameter_count(function) == 3
    with pytest.raises(AssertionError, match="over 8"):
        compare({"x": 9}, {}, "8")
    with pytest.raises(AssertionError, match="exceptions"):
        compare({}, {"x": "no longer"}, "8")
    late = "import a\nif b:\n    import c\ndef d():\n    if e:\n        import f\n    g = lambda: import_module('h')"
    assert late_imports(ast.parse(late)) == [6, 7]
    assert names_in_use(ast.parse("a.b = c; getattr(d, 'e')")) == {"a", "c", "d", "e", "getattr"}


def test_the_architecture_names_every_folder_at_the_top_level() -> None:
    made = {"build", "data", "dist", "site"}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))} - made
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert {folder for folder in folders if f"`{folder}/`" not in text} == set()
