"""The documents: their programs run, their links lead somewhere, and the generators of the site work."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import triomq
from docs.generators import check_site, client_reference, repository_pages, request_table, settings_tables
from triomq.namesrv.config import NamesrvSettings
from triomq.protocol.codes import RequestCode
from triomq.protocol.settings import declarations
from triomq.testing import LocalCluster

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks/README.md"])
PAGES_WITH_PROGRAMS = (
    "README.md",
    "docs/extending.md",
    "docs/how-to/testing.md",
    "docs/how-to/traces.md",
    "docs/tutorials/python.md",
    "docs/tutorials/spark.md",
)
PROGRAM_SECONDS = 300
QUICK_SPARK = """
spark.ui.enabled false
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.sql.shuffle.partitions 2
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
"""
# tests/frameworks runs the programs that import these, where they are installed.
FRAMEWORKS = {"django", "fastapi"}


@dataclass(frozen=True)
class Program:
    """A block of Python in a page; `title` names its file, which later blocks may import, or says what it needs."""

    page: str
    number: int
    title: str
    text: str

    @property
    def file(self) -> str:
        return self.title if self.title.endswith(".py") else "program.py"

    @property
    def is_test(self) -> bool:
        return self.title.startswith("test_")


def programs(page: str) -> Iterator[Program]:
    blocks = re.finditer(r'(?ms)^( *)```python(?: title="([^"]*)")?\n(.*?)^\1```$', (ROOT / page).read_text())
    for number, block in enumerate(blocks, 1):
        yield Program(page, number, block[2] or "", textwrap.dedent(block[3]))


def run(program: Program, name_server: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run one program against a cluster, with the cluster's port in place of the usual one."""
    file = directory / program.file
    file.write_text(program.text.replace("127.0.0.1:9876", name_server))
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", file.name] if program.is_test else [file.name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES_WITH_PROGRAMS if "spark" not in page])
def test_every_python_block_is_a_program_that_runs(page: str, tmp_path: Path) -> None:
    found = [program for program in programs(page) if program.title != "spark"]
    assert found, f"{page} has no Python"
    with LocalCluster() as cluster:
        for program in found:
            done = run(program, cluster.name_server, tmp_path)
            assert done.returncode == 0, f"{page}, block {program.number}:\n{done.stdout}{done.stderr}"


@pytest.mark.spark
@pytest.mark.slow
def test_every_spark_block_is_a_program_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one process, so that they share a Java virtual machine, which starts soon."""
    pytest.importorskip("pyspark")
    (tmp_path / "spark-defaults.conf").write_text(QUICK_SPARK)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    found = [*programs("docs/tutorials/spark.md"), *(each for each in programs("README.md") if not each.is_test)]
    calls = "".join(f"print({each.page!r}, {each.number}, flush=True); exec({each.text!r}, {{}})\n" for each in found)
    with LocalCluster() as cluster:
        done = run(Program("both pages", 1, "", calls), cluster.name_server, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def unresolved(tree: ast.AST, of_the_page: Collection[str] = ()) -> list[str]:
    """Return the imports of a program that fail: modules that neither exist nor stand on its page, names that a module
    of ours lacks."""
    missing = []
    elsewhere = {name for name in FRAMEWORKS if find_spec(name) is None}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name not in of_the_page]
            missing += [name for name in names if find_spec(name) is None]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module.partition(".")[0] in elsewhere:
                continue
            if find_spec(node.module) is None:
                missing.append(node.module)
            elif node.module.partition(".")[0] == "triomq":
                module = import_module(node.module)
                names = [alias.name for alias in node.names]
                missing += [f"{node.module}.{name}" for name in names if not hasattr(module, name)]
    return missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_python_block_compiles_and_imports_what_there_is(path: Path) -> None:
    """This includes blocks that cannot run in a test, since they wait forever or for other machines."""
    pytest.importorskip("pyspark")
    found = list(programs(path.relative_to(ROOT).as_posix()))
    modules = [program.file.removesuffix(".py") for program in found]
    for program in found:
        name = f"{path.name}, block {program.number}"
        tree = ast.parse(program.text, name)
        compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert unresolved(tree, modules) == [], name


def test_an_import_that_leads_nowhere_is_found() -> None:
    text = "import triomq.nothing, json\nfrom triomq import Producer, Nobody\nfrom nowhere_at_all import x"
    assert unresolved(ast.parse(text)) == ["triomq.nothing", "triomq.Nobody", "nowhere_at_all"]


def links(path: Path) -> Iterator[tuple[str, str]]:
    """Return file and anchor of every relative link of a document outside of code."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text())
    yield from re.findall(r"\]\(([^()\s#:]*)(#[^()\s]*)?\)", text)


def anchors(path: Path) -> set[str]:
    """Return the anchors that a forge makes of a document's headings."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text())
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    return {"#" + re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", line).lower()).replace(" ", "-") for line in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_files_of_the_repository_lead_somewhere(path: Path) -> None:
    dead = []
    for target, anchor in links(path):
        file = (path.parent / target).resolve() if target else path
        if not file.exists():
            dead.append(target)
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            dead.append(target + anchor)
    assert dead == []


def test_links_of_the_repository_become_links_of_the_site() -> None:
    text = (
        "[a](docs/spark.md#jobs) [b](CHANGELOG.md) [c](bin/test) [d](https://example.org)\n```\n[e](docs/spark.md)\n```"
    )
    expected = "[a](../spark.md#jobs) [b](changelog.md) c (`bin/test`) [d](https://example.org)"
    assert repository_pages.relinked(text, "SECURITY.md", "project/security.md").split("\n") == [
        expected,
        "```",
        "[e](docs/spark.md)",
        "```",
    ]


def site(tmp_path: Path, body: str, other: str = '<h1 id="top">x</h1>') -> list[str]:
    (tmp_path / "index.html").write_text(f"<html><body>{body}</body></html>")
    (tmp_path / "other.html").write_text(other)
    return check_site.problems(tmp_path)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<a href="other.html#top">x</a><a href="https://example.org/">y</a>', None),
        ('<a href="missing.html">x</a>', "no such file"),
        ('<a href="other.html#nowhere">x</a>', "no anchor"),
        ('<a href="/other.html">x</a>', "absolute"),
        ('<a href="../outside.html">x</a>', "no such file"),
        ('<script src="https://example.org/x.js"></script>', "fetches"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "fetches"),
        ('<img src="https://example.org/x.png">', "fetches"),
    ],
)
def test_the_check_of_the_site_finds_dead_links_and_assets_of_others(
    body: str, complaint: str | None, tmp_path: Path
) -> None:
    found = site(tmp_path, body)
    assert [complaint in line for line in found] == [True] if complaint else found == []


def test_a_style_sheet_that_fetches_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text("@import 'https://example.org/fonts.css';")
    assert site(tmp_path, "") == ["x.css: fetches from another host"]


def test_tables_have_a_row_for_each_setting() -> None:
    table = settings_tables.broker_settings()
    keys = [one.key for record in settings_tables.BROKER_RECORDS.values() for one in declarations(record)]
    assert re.findall(r"(?m)^\| `([^`]+)` \|", table) == keys


@pytest.mark.parametrize("record", [*settings_tables.BROKER_RECORDS.values(), NamesrvSettings])
def test_a_setting_has_an_effect_exactly_when_its_declaration_does_not_deny_it(record: type) -> None:
    wrong = [one.key for one in declarations(record) if (one.ignored or one.retired) == settings_tables.is_read(one)]
    assert wrong == []


@pytest.mark.parametrize("record", [*settings_tables.BROKER_RECORDS.values(), NamesrvSettings])
def test_own_settings_are_those_that_rocketmq_does_not_have(record: type) -> None:
    known = settings_tables.rocketmq_keys(record)
    assert {one.key for one in declarations(record) if one.own} == {
        one.key for one in declarations(record) if not known & {one.key, one.shown_as}
    }


def test_a_setting_that_nothing_reads_is_listed_as_ignored_and_another_is_not() -> None:
    ignored = next(part for part in settings_tables.differences().split("\n\n") if "ignored" in part)
    assert "*`highSpeedMode`*" in ignored
    assert "`useReentrantLockWhenPutMessage`" in ignored
    assert "fileReservedTime" not in ignored


def test_values_that_a_broker_refuses_are_found_by_trying_them() -> None:
    assert {(key, value) for key, value, _ in settings_tables.refused_values()} == {
        ("enableDLegerCommitLog", "true"),
        ("duplicationEnable", "true"),
    }


def test_the_embedded_cluster_handles_every_request_that_goes_to_a_server() -> None:
    broker, fast, namesrv = request_table.handled_codes()
    to = request_table.directions()
    assert {code for code in RequestCode if "to broker" in to[code]} == broker
    assert fast == broker - {RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE}
    assert {code for code in RequestCode if "to NameServer" in to[code]} == namesrv


def test_the_reference_describes_every_public_name() -> None:
    described = re.findall(r"(?m)^::: triomq\.(\w+)$", (ROOT / "docs/reference/client.md").read_text())
    assert sorted([*described, "__version__"]) == sorted(triomq.__all__)


def test_the_reference_of_the_client_can_be_read_in_the_repository_and_is_current() -> None:
    page = client_reference.PAGE.read_text()
    assert page == client_reference.current(page), "run: python docs/generators/client_reference.py"
    for text in ("async send(", "send_timeout_seconds: float = 3.0,", "Sends messages (RocketMQ: DefaultMQProducer)"):
        assert text in page


def test_the_reference_of_the_client_is_made_of_directives_on_the_site() -> None:
    page = client_reference.on_site(client_reference.PAGE.read_text())
    assert "<!--" not in page and "```" not in page
    assert (
        "\n::: triomq.Producer\n    options:\n      inherited_members: [client]\n::: triomq.TransactionProducer\n"
        in page
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_that_a_document_names_exist(path: Path) -> None:
    rooms = "|".join(sorted(link.name for link in (ROOT / "src/triomq").iterdir() if link.is_symlink()))
    named = re.findall(rf"`((?:{rooms}|bin|docs|tests|benchmarks|examples|packaging|src)/[\w./-]*)`", path.read_text())
    placeholder = re.compile(r"/[A-Z]+$")
    assert [name for name in named if not (ROOT / name).exists() and not placeholder.search(name)] == []


def test_a_table_that_the_repository_has_not_says_how_to_get_it() -> None:
    """A place without the sentence would stay empty on the site, too: site_hooks.py looks for both."""
    found = 0
    for document in DOCUMENTS:
        lines = document.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.startswith("<!-- generated: "):
                found += 1
                assert lines[number - 2].startswith("> Made from the code: `bin/dev/docs` builds"), document
    assert found > 10
