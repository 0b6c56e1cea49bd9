"""The mutants of one Python file: each is one small change of its syntax tree."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType

from mutation.changes import Replace, changes, is_left_alone, item_setter, setter
from mutation.functions import ROOT

NOT_MUTATED = {"annotation", "returns", "decorator_list", "bases", "keywords", "type_comment"}
"""Fields of a syntax tree that are not changed."""


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


def mutants_of(path: str) -> tuple[ast.Module, list[Mutant]]:
    """The tree of a file and its mutants, always in the same order."""
    tree = ast.parse((ROOT / path).read_text(), path)
    return tree, list(_Finder(path).visit(tree, _no_replacement))


def mutated_code(path: str, number: int) -> CodeType:
    """Compile a file with the change of the mutant of this number."""
    tree, mutants = mutants_of(path)
    (mutant,) = (each for each in mutants if each.number == number)
    mutant.apply()
    return compile(tree, str(ROOT / path), "exec", dont_inherit=True)


def _no_replacement(_new: ast.AST) -> None:
    raise AssertionError("a module has no parent")


class _Finder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0
        self._names: list[str] = []
        self._function_lines: list[int] = [0]

    def visit(self, node: ast.AST, replace: Replace) -> Iterator[Mutant]:
        if is_left_alone(node):
            return
        for target, before, after, apply in changes(node, replace):
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
                yield from self.visit(value, setter(node, name))
            elif isinstance(value, list):
                for index, each in enumerate(value):
                    if isinstance(each, ast.AST):
                        yield from self.visit(each, item_setter(value, index))


def _line(node: ast.expr | ast.stmt) -> int:
    return node.lineno


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "..."
