"""The reference of the Python client, as text in its page, for those who read it in the repository.

Each entry is a comment with the directive that makes it on the site, the text made here, and an end:

    <!-- on the site
    ::: triomq.Producer
    -->
    ### Producer
    ...
    <!-- end -->

`python docs/generators/client_reference.py` writes the page again; a test compares.
"""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/client.md"
LINE_LENGTH = 110

_ENTRY = re.compile(r"(?ms)^<!-- on the site\n(::: (\S+)\n.*?)-->\n.*?^<!-- end -->\n")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def current(page: str) -> str:
    """Return the page with the text of each entry as the code has it now."""
    return _ENTRY.sub(lambda match: f"<!-- on the site\n{match[1]}-->\n{entry(match[2])}\n<!-- end -->\n", page)


def on_site(page: str) -> str:
    """Return the page with the directives alone."""
    return _ENTRY.sub(lambda match: match[1], page)


def entry(name: str) -> str:
    """Return the text of one public name, as "triomq.Producer"."""
    found = _resolved(name)
    short = name.rpartition(".")[2]
    module = getattr(found, "__module__", "")
    node = _top(module).get(getattr(found, "__name__", "")) if module.startswith("triomq.") else None
    if isinstance(node, ast.ClassDef):
        return "\n\n".join([f"### {short}", *_class(found, node)])
    if isinstance(node, Function):
        return "\n\n".join([f"### {short}", _code(_signature(node)), _doc(node)])
    return "\n\n".join([f"### {short}", *_alias(short)])


def _resolved(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@cache
def _source(module: str) -> ast.Module:
    path = ROOT / "src" / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def _top(module: str) -> dict[str, ast.stmt]:
    return {node.name: node for node in _source(module).body if isinstance(node, ast.ClassDef | Function)}


def _class(cls: type, node: ast.ClassDef) -> Iterator[str]:
    made = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
    if made is not None:
        yield _code(_signature(made, node.name))
    yield from filter(None, (_doc(node), "" if made is None else _doc(made)))
    fields = list(_fields(node))
    if fields:
        yield "\n".join(fields)
    seen = {"__init__"}
    # Admin is made of parts, each a class; `client` is the same for all that have one.
    inherits = [each for each in cls.__mro__[1:] if each.__name__.endswith(("Admin", "WithClient"))]
    for body in (node.body, *(_body(each) for each in inherits)):
        for one in body:
            if isinstance(one, Function) and one.name not in seen and not one.name.startswith("_") and _doc(one):
                seen.add(one.name)
                is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in one.decorator_list)
                yield _code(_property(one) if is_property else _signature(one))
                yield _doc(one)


def _body(cls: type) -> list[ast.stmt]:
    node = _top(cls.__module__).get(cls.__name__) if cls.__module__.startswith("triomq.") else None
    return node.body if isinstance(node, ast.ClassDef) else []


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield a line for each field of a record and each value of an enumeration."""
    for one, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(one, ast.AnnAssign | ast.Assign):
            target = one.target if isinstance(one, ast.AnnAssign) else one.targets[0]
            if not isinstance(target, ast.Name) or target.id.startswith("_"):
                continue
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield f"- `{ast.unparse(one)}`{': ' + ' '.join(str(text).split()) if text else ''}"


def _doc(node: ast.ClassDef | Function) -> str:
    return ast.get_docstring(node) or ""


def _code(text: str) -> str:
    return f"```text\n{text}\n```"  # not a program that could run


def _property(node: Function) -> str:
    return f"{node.name}: {ast.unparse(node.returns)}" if node.returns else node.name


def _signature(node: Function, name: str = "") -> str:
    begin = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}{name or node.name}("
    end = f") -> {ast.unparse(node.returns)}" if node.returns and not name else ")"
    parts = _parameters(node.args)
    line = begin + ", ".join(parts) + end
    if len(line) <= LINE_LENGTH:
        return line
    return begin + "\n" + textwrap.indent("".join(f"{part},\n" for part in parts), "    ") + end


def _parameters(arguments: ast.arguments) -> list[str]:
    """Return the parameters, each as it is written, without `self`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    parts = [
        _parameter(one, None if at < missing else arguments.defaults[at - missing]) for at, one in enumerate(positional)
    ]
    if arguments.vararg:
        parts.append(f"*{_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [_parameter(one, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        parts.append(f"**{_parameter(arguments.kwarg, None)}")
    return [part for part in parts if part not in ("self", "cls")]


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    text = f"{one.arg}: {ast.unparse(one.annotation)}" if one.annotation else one.arg
    if default is None:
        return text
    return f"{text}{' = ' if one.annotation else '='}{ast.unparse(default)}"


def _alias(name: str) -> Iterator[str]:
    """Yield what a name stands for that is no class of its own, and the text below it."""
    for path in sorted((ROOT / "client").rglob("*.py")):
        body = ast.parse(path.read_text()).body
        for one, after in zip(body, [*body[1:], None], strict=True):
            targets = one.targets if isinstance(one, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                yield _code(ast.unparse(one))
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    yield " ".join(str(after.value.value).split())
                return


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text()))
