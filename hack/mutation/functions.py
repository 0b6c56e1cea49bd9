"""Functions of the product in memory: finds them, and replaces their code."""

import gc
import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

ROOT = Path(__file__).resolve().parents[2]

Function = tuple[str, int]
"""A file and the first line of one of its functions, decorators included (`co_firstlineno`)."""


def import_product() -> None:
    """Import every module, also those that the product imports inside a function and tests have not called yet."""
    product = importlib.import_module("kruise_probe")
    for module in pkgutil.walk_packages(product.__path__, "kruise_probe."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)


def functions_by_file() -> dict[str, list[FunctionType]]:
    """All functions in memory, by the path of their file."""
    gc.unfreeze()
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found[each.__code__.co_filename].append(each)
    gc.freeze()
    return found


def replace_code(code: CodeType, functions: dict[str, list[FunctionType]]) -> bool:
    """Give the functions of a file their code in `code`, the compiled file.

    Return False if the variables of a closure differ, as their number cannot be changed.
    """
    new = {(each.co_qualname, each.co_firstlineno): each for each in _codes_within(code)}
    for function in functions[code.co_filename]:
        replacement = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if replacement is None or replacement == function.__code__:
            continue
        if replacement.co_freevars != function.__code__.co_freevars:
            return False
        function.__code__ = replacement
    return True


def _codes_within(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_within(constant)
