"""The mutants of one Python file: each is one small change of its syntax tree.

Messages are no decisions, so strings, f-strings, log calls and annotations are left alone.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NOT_MUTATED = {"annotation", "returns", "decorator_list", "bases", "keywords", "type_comment"}
TUNED = 5
"""Numbers from here on are limits and durations that could as well be a little larger: no rule has their last digit."""
LOGGERS = {"log", "_log", "logger"}
NOT_CALLED = {
    "TypeVar",
    "NewType",
    "AssertionError",
    "assert_never",
    "Counter",
    "Gauge",
    "Histogram",
}
NO_NUMBERS = (ast.JoinedStr, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.ListComp)
"""`+` of one of these joins sequences (`ast.Constant`: if it is text)."""

Replace = Callable[[ast.AST], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. `apply` makes it in the tree that the mutant was found in."""

    path: str
    number: int
    """Its place among the mutants of its file."""
    line: int
    function: str
    """Qualified name, "" for code of the module or of a class."""
    function_line: int
    """First line of the function, decorators included: `co_firstlineno`. 0 outside of functions."""
    before: str
    after: str
    apply: Callable[[], None]

    def __str__(self) -> str:
        where = f" {self.function}" if self.function else ""
        return f"{self.path}:{self.line}{where}: {self.before} -> {self.after}"


def mutants_of(root: Path, path: str) -> tuple[ast.Module, list[Mutant]]:
    """The tree of a file and its mutants, always in the same order."""
    tree = ast.parse((root / path).read_text(), path)
    return tree, list(_Finder(path).visit(tree, _no_replacement))


def _no_replacement(_new: ast.AST) -> None:
    raise AssertionError("a module has no parent")


class _Finder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0
        self._names: list[str] = []
        self._function_lines: list[int] = [0]

    def visit(self, node: ast.AST, replace: Replace) -> Iterator[Mutant]:
        if _is_left_alone(node):
            return
        for target, before, after, apply in _changes(node, replace):
            self._number += 1
            yield Mutant(
                self._path,
                self._number,
                getattr(target, "lineno", 0),
                ".".join(self._names) if self._function_lines[-1] else "",
                self._function_lines[-1],
                _short(before),
                _short(after),
                apply,
            )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from self._children(node.args, {"kwonlyargs", "args", "posonlyargs"})
            self._names.append(node.name)
            self._function_lines.append(min([node, *node.decorator_list], key=_line).lineno)
            yield from self._children(node, NOT_MUTATED | {"args"})
            self._function_lines.pop()
            self._names.pop()
        elif isinstance(node, ast.ClassDef):
            self._names.append(node.name)
            self._function_lines.append(0)
            yield from self._children(node, NOT_MUTATED)
            self._function_lines.pop()
            self._names.pop()
        else:
            yield from self._children(
                node, NOT_MUTATED - {"keywords"} if isinstance(node, ast.Call) else NOT_MUTATED
            )

    def _children(self, node: ast.AST, left_out: set[str]) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(node):
            if name in left_out:
                continue
            if isinstance(value, ast.AST):
                yield from self.visit(value, _setter(node, name))
            elif isinstance(value, list):
                for index, each in enumerate(value):
                    if isinstance(each, ast.AST):
                        yield from self.visit(each, _item_setter(value, index))


def _line(node: ast.expr | ast.stmt) -> int:
    return node.lineno


def _setter(node: ast.AST, name: str) -> Replace:
    return lambda new: setattr(node, name, new)


def _item_setter(items: list[Any], index: int) -> Replace:
    return lambda new: items.__setitem__(index, new)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in LOGGERS:
            return True
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name))) if name in LOGGERS:
            return True
        case ast.Call(func=ast.Name(id=name)) if name in NOT_CALLED:
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case _:
            return False


Change = tuple[ast.AST, str, str, Callable[[], None]]


def _changes(node: ast.AST, replace: Replace) -> Iterator[Change]:
    if isinstance(node, ast.stmt):
        yield from _statement_changes(node, replace)
    elif isinstance(node, ast.expr):
        yield from _expression_changes(node, replace)
    elif isinstance(node, ast.comprehension):
        for index, condition in enumerate(node.ifs):
            yield _replaced(condition, ast.Constant(True), _item_setter(node.ifs, index), "if ")
    elif isinstance(node, ast.ExceptHandler) and not _reraises(node):
        before = f"except {ast.unparse(node.type) if node.type else ''}: {_text(node.body[0])}"
        yield (
            node,
            before,
            "raise",
            lambda: setattr(node, "body", [_at(ast.Raise(), node.body[0])]),
        )


def _statement_changes(node: ast.stmt, replace: Replace) -> Iterator[Change]:
    nothing = ast.Pass()
    match node:
        case ast.If(test=test):
            yield _replaced(test, ast.Constant(True), _setter(node, "test"), "if ")
            yield _replaced(test, ast.Constant(False), _setter(node, "test"), "if ")
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield _replaced(test, ast.Constant(False), _setter(node, "test"), "while ")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _replaced(value, ast.Constant(None), _setter(node, "value"), "return ")
        case ast.Expr(value=ast.Call() | ast.Await() as value) if not _is_left_alone(value):
            yield _replaced(node, nothing, replace)
        case ast.Raise(exc=ast.expr()) | ast.Delete():
            yield _replaced(node, nothing, replace)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield _replaced(node, nothing, replace)
        case ast.Continue():
            yield _replaced(node, ast.Break(), replace)
        case ast.Break():
            yield _replaced(node, ast.Continue(), replace)
        case _:
            pass
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        after = ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
        yield _replaced(node, after, replace)


def _expression_changes(node: ast.expr, replace: Replace) -> Iterator[Change]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                operators = [*node.ops]
                operators[index] = COMPARISONS[type(operator)]()
                yield _replaced(node, ast.Compare(node.left, operators, node.comparators), replace)
        case ast.BoolOp(op=operator):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield _replaced(node, ast.BoolOp(other, node.values), replace)
        case ast.UnaryOp(op=ast.Not()):
            yield _replaced(node, node.operand, replace)
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _joins(node):
            after = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
            yield _replaced(node, after, replace)
        case ast.IfExp(test=test):
            for value in (True, False):
                yield _replaced(test, ast.Constant(value), _setter(node, "test"), "if ")
        case ast.Constant(value=bool(value)):
            yield _replaced(node, ast.Constant(not value), replace)
        case ast.Constant(value=int(value) | float(value)):
            changed = value + 1 if abs(value) < TUNED else value * 10
            yield _replaced(node, ast.Constant(changed), replace)
        case _:
            pass


def _joins(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, NO_NUMBERS)
        and not (isinstance(side, ast.Constant) and isinstance(side.value, int | float))
        for side in (node.left, node.right)
    )


def _reraises(node: ast.ExceptHandler) -> bool:
    return isinstance(node.body[0], ast.Raise)


def _replaced(before: ast.AST, after: ast.AST, replace: Replace, word: str = "") -> Change:
    return before, word + _text(before), word + _text(after), lambda: replace(_at(after, before))


def _at(new: ast.AST, old: ast.AST) -> ast.AST:
    return ast.fix_missing_locations(ast.copy_location(new, old))


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "..."
