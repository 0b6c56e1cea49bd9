"""The changes of one node of a syntax tree. Each makes one mutant.

Strings, f-strings, log calls and annotations are not changed, because no rule depends on a message.
"""

import ast
from collections.abc import Callable, Iterator
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
TUNED_FROM = 5
"""Numbers from here on are limits and durations, and no rule depends on their last digit. They become ten times as large."""
LOGGER_NAMES = {"log", "_log", "logger"}
UNCHANGED_CALLS = {
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
"""Puts a node in the place of another one."""

Change = tuple[ast.AST, str, str, Callable[[], None]]
"""The changed node, its text before and after the change, and a function that makes the change in the tree."""


def setter(node: ast.AST, name: str) -> Replace:
    return lambda new: setattr(node, name, new)


def item_setter(items: list[Any], index: int) -> Replace:
    return lambda new: items.__setitem__(index, new)


def is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in LOGGER_NAMES:
            return True
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name))) if name in LOGGER_NAMES:
            return True
        case ast.Call(func=ast.Name(id=name)) if name in UNCHANGED_CALLS:
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case _:
            return False


def changes(node: ast.AST, replace: Replace) -> Iterator[Change]:
    if isinstance(node, ast.stmt):
        yield from _statement_changes(node, replace)
    elif isinstance(node, ast.expr):
        yield from _expression_changes(node, replace)
    elif isinstance(node, ast.comprehension):
        for index, condition in enumerate(node.ifs):
            yield _replaced(condition, ast.Constant(True), item_setter(node.ifs, index), "if ")
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
            yield _replaced(test, ast.Constant(True), setter(node, "test"), "if ")
            yield _replaced(test, ast.Constant(False), setter(node, "test"), "if ")
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield _replaced(test, ast.Constant(False), setter(node, "test"), "while ")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _replaced(value, ast.Constant(None), setter(node, "value"), "return ")
        case ast.Expr(value=ast.Call() | ast.Await() as value) if not is_left_alone(value):
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
                yield _replaced(test, ast.Constant(value), setter(node, "test"), "if ")
        case ast.Constant(value=bool(value)):
            yield _replaced(node, ast.Constant(not value), replace)
        case ast.Constant(value=int(value) | float(value)):
            changed = value + 1 if abs(value) < TUNED_FROM else value * 10
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
