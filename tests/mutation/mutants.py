"""The single-line changes that a mutation run tries: found in the syntax tree, made in the text.

| kind | change |
|---|---|
| `compare` | `<` and `<=`, `>` and `>=`, `==` and `!=`, `is` and `is not`, `in` and `not in` |
| `boolean` | `and` and `or`; `not x` becomes `x` |
| `constant` | a number becomes the next one, the value of a named constant 0 (0 becomes 1); True and False |
| `arithmetic` | `+` and `-`; `*` and `//`; `<<` and `>>`; `&` and `|`; also in `+=` |
| `extreme` | `min` and `max` |
| `return` | what is returned becomes None |
| `drop` | a call, an assignment to an attribute or an item, `+=`, `del`, `raise`, `continue`, `break` becomes `pass` |

Left alone: documentation and other strings, logging and conditions that only guard logging, annotations, `__repr__`,
assertions, `if TYPE_CHECKING`, decorators of classes, and arguments such as `strict=True` that only catch mistakes."""

from __future__ import annotations

import ast
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
EXTREMES = {"min": "max", "max": "min"}
LOGS = {"log", "_log", "logger", "logging", "warnings"}
SPARED_FUNCTIONS = {"__repr__", "__str__"}
SPARED_ARGUMENTS = {"compare", "frozen", "init", "kw_only", "repr", "slots", "stacklevel", "strict"}
DROPPED = (ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A replacement of text within one line (`line` counts from 1, columns from 0, in characters)."""

    path: str
    line: int
    kind: str
    begin: int
    end: int
    before: str
    after: str
    function_line: int
    """The line that Python calls the first of the function it is in; 0 outside of functions."""

    @property
    def name(self) -> str:
        """Return FILE:LINE:KIND, the name that `--replay` accepts."""
        return f"{self.path}:{self.line}:{self.kind}"

    def applied(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        text = lines[self.line - 1]
        lines[self.line - 1] = text[: self.begin] + self.after + text[self.end :]
        return "".join(lines)


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.lines = source.splitlines()
        self.found: list[Mutant] = []
        self.functions: list[int] = []
        self.is_named_constant = False

    def add(self, kind: str, line: int, begin: int, end: int, after: str) -> None:
        number = 1 + sum(mutant.line == line and mutant.kind.split(".")[0] == kind for mutant in self.found)
        kind = kind if number == 1 else f"{kind}.{number}"
        before = self.lines[line - 1][begin:end]
        function = self.functions[-1] if self.functions else 0
        self.found.append(Mutant(self.path, line, kind, begin, end, before, after, function))

    def add_node(self, kind: str, node: ast.expr | ast.stmt, after: str) -> None:
        """Replace a node that is on one line."""
        assert node.end_col_offset is not None
        if node.lineno == node.end_lineno:
            line = node.lineno
            self.add(kind, line, self.column(line, node.col_offset), self.column(line, node.end_col_offset), after)

    def column(self, line: int, offset_bytes: int) -> int:
        return len(self.lines[line - 1].encode()[:offset_bytes].decode())

    def add_between(self, kind: str, left: ast.expr, right: ast.expr, before: str, after: str) -> None:
        """Replace an operator that is on one line with both of its operands."""
        if left.end_lineno != right.lineno or left.end_col_offset is None:
            return
        line = right.lineno
        begin, end = self.column(line, left.end_col_offset), self.column(line, right.col_offset)
        at = self.lines[line - 1].find(before, begin, end)
        if at >= 0:
            self.add(kind, line, at, at + len(before), after)

    # -- what is left alone

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in SPARED_FUNCTIONS:
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
        self.functions.append(first)
        for statement in node.body:
            self.visit(statement)
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign([node.target], node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in {"list", "dict", "tuple", "Callable", "deque", "set"}:
            return  # a type
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if not (all(is_log_statement(each) for each in node.body) and not node.orelse):
            self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in SPARED_ARGUMENTS:
            self.visit(node.value)

    # -- what is changed

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(value, ast.Call) or is_log(value):
            if not isinstance(value, ast.Constant | ast.Call):
                self.generic_visit(node)
            return
        if self.functions:
            self.add_node("drop", node, "pass")
        self.visit(value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self.functions and all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self.add_node("drop", node, "pass")
        self.assign(node.targets, node.value)

    def assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        if any(isinstance(target, ast.Name) and target.id in {"__slots__", "__all__"} for target in targets):
            return
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        self.is_named_constant = not self.functions and any(name.lstrip("_").isupper() for name in names)
        self.visit(value)
        self.is_named_constant = False

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, DROPPED) and self.functions:
            self.add_node("drop", node, "pass")
        super().generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add_node("drop", node, "pass")  # no contract covers the message

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        before, after = OPERATORS.get(type(node.op), ("", ""))
        if before:
            self.add_between("arithmetic", node.target, node.value, f"{before}=", f"{after}=")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            if not (isinstance(node.value, ast.Constant) and (node.value.value is None or node.value.value is False)):
                self.add_node("return", node, "return None")
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right, operator in zip([node.left, *node.comparators[:-1]], node.comparators, node.ops, strict=True):
            self.add_between("compare", left, right, SPELLED[type(operator)], COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.add_between("boolean", left, right, before, after)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not) and node.lineno == node.operand.lineno:
            begin = self.column(node.lineno, node.col_offset)
            self.add("boolean", node.lineno, begin, self.column(node.lineno, node.operand.col_offset), "")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        before, after = OPERATORS.get(type(node.op), ("", ""))
        if before and not isinstance(node.left, ast.Constant | ast.JoinedStr) | isinstance(node.right, ast.JoinedStr):
            self.add_between("arithmetic", node.left, node.right, before, after)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if is_log(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
            self.add_node("extreme", node.func, EXTREMES[node.func.id])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add_node("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            changed = node.value + 1
            if self.is_named_constant:
                changed = 0 if node.value else 1
            self.add_node("constant", node, str(changed))


SPELLED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


def is_log(call: ast.Call) -> bool:
    """Return whether the call writes to a log or warns."""
    function = call.func
    while isinstance(function, ast.Attribute | ast.Call):
        function = function.value if isinstance(function, ast.Attribute) else function.func
        if isinstance(function, ast.Attribute) and function.attr in LOGS:
            return True
    return isinstance(function, ast.Name) and function.id in LOGS


def is_log_statement(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and is_log(statement.value)


def find_mutants(path: str, source: str) -> list[Mutant]:
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


def is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True
