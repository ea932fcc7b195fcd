"""What `pip install triomq` gives a program: the public names, typed, and nothing loaded before it is used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import triomq
from triomq.client import api, values

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("trio", "msgspec", "structlog", "yaml", "asyncio", "typing", "triomq.client", "triomq.broker")


def test_the_package_exports_the_names_of_the_client() -> None:
    assert set(triomq.__all__) == {*api.__all__, "__version__"}
    assert all(getattr(triomq, name) is getattr(api, name) for name in api.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = triomq.Nonsense
    assert set(triomq.__all__) <= set(dir(triomq))


def test_importing_the_package_loads_nothing_else() -> None:
    program = f"import sys, triomq; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); {program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout == "[]\n"


@pytest.mark.parametrize("module", ["aio", "blocking"])
def test_asyncio_and_blocking_programs_import_every_value_and_error_of_trio_programs(module: str) -> None:
    face = importlib.import_module(f"triomq.{module}")
    same = {name for name in api.__all__ if getattr(face, name, None) is getattr(api, name)}
    own = {name for name in api.__all__ if hasattr(face, name)} - same
    assert set(face.__all__) == same | own
    consumers = {"LitePullConsumer", "PullConsumer", "PushConsumer", "SimpleConsumer"}
    assert own == {"Admin", *consumers, "Producer", "TransactionProducer"}
    missing = {"Client", "Delivery", "TraceSender"}  # they work in trio alone
    assert set(api.__all__) - same - own == (missing if module == "aio" else {*missing, "Router", "TrioMQ"})


@pytest.mark.parametrize("module", ["aio", "blocking", "serializers", "testing"])
def test_every_name_of_a_public_module_is_there(module: str) -> None:
    loaded = importlib.import_module(f"triomq.{module}")
    shared = values.__all__ if module in ("aio", "blocking") else []
    own = loaded.__all__[: len(loaded.__all__) - len(shared)]
    assert loaded.__all__ == [*own, *shared]
    assert all(names == sorted(set(names), key=lambda name: (name.islower(), name)) for names in (own, shared))
    assert all(hasattr(loaded, name) for name in loaded.__all__)
    assert loaded.__doc__


def test_type_checkers_may_read_the_types() -> None:
    assert (ROOT / "src" / "triomq" / "py.typed").is_file()
