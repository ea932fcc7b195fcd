"""The programs of the page about frameworks, inside of each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from triomq.blocking import Admin
from triomq.testing import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/frameworks.md"

FASTAPI = """
from fastapi.testclient import TestClient
import shop, threading
billed = threading.Event()
shop.print = lambda *words: (print(*words), billed.set())
with TestClient(shop.api) as client:
    sent = client.post("/orders/17").json()
    assert billed.wait(60)
print(len(sent) > 20)
"""

DJANGO = """
from django.conf import settings
settings.configure(
    ALLOWED_HOSTS=["testserver"], ROOT_URLCONF="urls",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
import django
django.setup()
import sys, types
import orders
from django.urls import path
sys.modules["urls"] = types.SimpleNamespace(urlpatterns=[path("orders/<int:number>", orders.order)])
from django.test import Client
print(Client().post("/orders/17").status_code)
orders.producer().close()
"""

JUPYTER = """
import asyncio
from IPython.core.interactiveshell import InteractiveShell

async def main():
    shell = InteractiveShell.instance()
    for cell in CELLS:
        (await shell.run_cell_async(cell, transformed_cell=shell.transform_cell(cell))).raise_error()

asyncio.run(main())
"""


def blocks(title: str, name_server: str) -> list[str]:
    found = re.findall(rf'(?ms)^```python title="{re.escape(title)}"\n(.*?)^```$', PAGE.read_text())
    assert found, title
    return [text.replace("127.0.0.1:9876", name_server) for text in found]


def run(program: str, directory: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "IPYTHONDIR": str(directory)}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", program],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def name_server(cluster: LocalCluster) -> str:
    with Admin(name_server=cluster.name_server) as admin:
        admin.create_topic("Orders")
    return cluster.name_server


def test_the_application_of_the_page_runs_in_fastapi(name_server: str, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="FastAPI is not installed: the extra frameworks has it")
    pytest.importorskip("httpx2", reason="httpx2 is not installed: the extra frameworks has it")
    (tmp_path / "shop.py").write_text(blocks("shop.py", name_server)[0])
    assert run(FASTAPI, tmp_path).split() == ["billed", "17", "True"]


def test_the_view_of_the_page_runs_in_django(name_server: str, tmp_path: Path) -> None:
    pytest.importorskip("django", reason="Django is not installed: the extra frameworks has it")
    (tmp_path / "orders.py").write_text(blocks("orders.py", name_server)[0])
    assert run(DJANGO, tmp_path).split() == ["201"]


def test_the_cells_of_the_page_run_in_ipython(name_server: str, tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed: the extra frameworks has it")
    assert run(f"CELLS = {blocks('cell', name_server)!r}\n{JUPYTER}", tmp_path).strip() == "b'17'"
