"""The contract between C extension, Python definitions and type stub, for the tests of each extension."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def functions_of(extension: ModuleType) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in vars(extension).items() if inspect.isbuiltin(value)}


def constants_of(extension: ModuleType) -> dict[str, int]:
    """Return all of them except SOURCE_CRC, which is not a constant of the formats."""
    return {name: value for name, value in vars(extension).items() if type(value) is int and name != "SOURCE_CRC"}


def parameters_of(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def stub_of(package: str) -> tuple[dict[str, list[str]], set[str]]:
    """Return functions with their positional-only parameters, and constants, as `_speedups.pyi` declares them."""
    functions: dict[str, list[str]] = {}
    constants: set[str] = set()
    for statement in ast.parse((ROOT / "src" / "triomq" / package / "_speedups.pyi").read_text()).body:
        if isinstance(statement, ast.FunctionDef):
            functions[statement.name] = [argument.arg for argument in statement.args.posonlyargs]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            constants.add(statement.target.id)
    return functions, constants


def assert_stub_is_right(extension: ModuleType, package: str) -> None:
    functions, constants = stub_of(package)
    assert functions == {name: parameters_of(function) for name, function in functions_of(extension).items()}
    assert constants == {"SOURCE_CRC", *constants_of(extension)}
