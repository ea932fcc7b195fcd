"""The manual pages contain the text of -h and are valid roff."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from triomq.broker.config import BrokerSettings
from triomq.namesrv.config import NamesrvSettings
from triomq.protocol.settings import declarations

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LC_ALL": "C.UTF-8"}
MODULES = {
    "mqbroker.8": "triomq.broker",
    "mqnamesrv.8": "triomq.namesrv",
    "mqshutdown.8": "triomq.daemon.shutdown",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("man")
    done = subprocess.run(
        [sys.executable, str(ROOT / "packaging/man/generate.py"), str(directory)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return directory


def plain(page: Path) -> str:
    """Return the words of a page, without roff's escapes, on one line."""
    text = re.sub(r"(?m)^\.(TP|B|BR|SH|SS|PP|nf|fi)\b ?", "", page.read_text())
    return " ".join(text.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\").split())


@pytest.mark.parametrize("name", MODULES)
def test_every_line_of_the_help_is_in_the_page(pages: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", MODULES[name], "-h"], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    text = plain(pages / name)
    lines = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in done.stdout.splitlines()[1:]]
    assert len(lines) >= 3
    for option, meaning in lines:
        assert meaning in text
        for word in re.findall(r"--?\w+", option):
            assert word in text


def test_the_jobs_of_mqpipeline_and_their_options_are_in_its_page(pages: Path) -> None:
    text = plain(pages / "mqpipeline.1")
    from triomq.spark.jobs.main import JOBS

    for name in JOBS:
        done = subprocess.run(
            [sys.executable, "-m", "triomq.spark.jobs.main", name, "--help"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        options = set(re.findall(r"(?<!\S)--[a-z-]+", done.stdout))
        assert options
        assert {option for option in options if option not in text} == set()


@pytest.mark.parametrize("words", [(), ("updateTopic",), ("consumerProgress",), ("doctor",), ("dlq", "resend")])
def test_the_help_of_mqadmin_is_in_its_page(pages: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "triomq.admin", "help", *words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    text = plain(pages / "mqadmin.1")
    names = re.findall(r"(?<!\S)--?[A-Za-z]\w*" if words else r"(?m)^   (\w+) ", done.stdout)
    assert len(names) >= 2
    assert [name for name in names if name not in text] == []


def test_the_options_of_triomq_are_in_its_page(pages: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "triomq.client.app.run", "run", "--help"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    text = plain(pages / "triomq.1")
    assert "MODULE:NAME" in text
    options = set(re.findall(r"(?<!\S)--[a-z-]+", done.stdout)) - {"--help"}
    assert options >= {"--reload", "--directory"}
    assert {option for option in options if option not in text} == set()


def test_every_program_of_the_package_has_a_page(pages: Path) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    written = {page.name.partition(".")[0] for page in pages.iterdir()}
    assert set(scripts) - written == set()


PAGES_OF_SETTINGS = [("mqbroker.conf.5", BrokerSettings), ("mqnamesrv.conf.5", NamesrvSettings)]


@pytest.mark.parametrize(("name", "record"), PAGES_OF_SETTINGS)
def test_every_setting_is_in_the_page_of_its_file(pages: Path, name: str, record: type) -> None:
    text = plain(pages / name)
    for one in declarations(record):
        assert one.key in text
        if not one.ignored:
            assert " ".join(one.meaning.split()) in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_pages_are_valid(pages: Path) -> None:
    for page in sorted(pages.iterdir()):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-K", "utf8", str(page)], capture_output=True, text=True, timeout=60
        )
        assert (page.name, done.returncode, done.stderr) == (page.name, 0, "")
        assert "TrioMQ manual" in done.stdout
