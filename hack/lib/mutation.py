"""`hack/mutate`: samples mutants of mutmut, runs them and prints the score of each package.

mutmut writes all variants of a function beside the original one, below `mutants/`. Mutants that only change a string, drop one or
change a line of the log are left out: they are texts, no decisions. The sample is every k-th name, so it is the same until the code changes.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from pathlib import Path

PACKAGES = ("client", "controllers", "daemon", "informers", "manager", "serving", "workqueue")
MUTANTS = Path("mutants/kruise_probe")
SURVIVED = 0
"""The exit code of pytest for a mutant that no test noticed. 33: no test calls the function."""
NOT_CALLED = 33


def main() -> int:
    parser = argparse.ArgumentParser(prog="hack/mutate", description=__doc__)
    parser.add_argument(
        "--package",
        action="append",
        choices=PACKAGES,
        help="[all of them]",
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=200,
        help="mutants of each package [200]",
    )
    parser.add_argument(
        "--shard",
        default="1/1",
        metavar="I/N",
        help="the I-th of N parts [1/1]",
    )
    parser.add_argument(
        "--floor",
        type=int,
        default=0,
        metavar="PERCENT",
        help="fail below it [0]",
    )
    options = parser.parse_args()
    part, parts = map(int, options.shard.split("/"))

    mutmut("run", "none")  # writes all mutants, runs the tests once, and finds no mutant
    sample = {
        package: sampled(package, options.sample)[part - 1 :: parts]
        for package in options.package or PACKAGES
    }
    mutmut("run", *(name for names in sample.values() for name in names))
    results = exit_codes()
    killed_of_all = 0
    for package, names in sample.items():
        survivors = [name for name in names if results[name] in (SURVIVED, NOT_CALLED, None)]
        killed = len(names) - len(survivors)
        killed_of_all += killed
        print("\n".join(f"survived: {name}" for name in survivors))
        print(f"{package}: {killed} of {len(names)} killed, {percent(killed, len(names))} %")
    score = percent(killed_of_all, sum(map(len, sample.values())))
    print(f"all: {score} %")
    if score < options.floor:
        print(
            f"hack/mutate: the tests kill less than {options.floor} %",
            file=sys.stderr,
        )
        return 1
    return 0


def mutmut(*arguments: str) -> None:
    """Run mutmut. Its exit code is 1 if no mutant has the name, and also if a mutant survived."""
    program = Path(sys.executable).with_name("mutmut")
    with Path("mutants.log").open("w") as log:
        subprocess.run(
            [program, *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )


def sampled(package: str, size: int) -> list[str]:
    names = [
        name
        for path in sorted((MUTANTS / package).rglob("*.py"))
        for name in deciding_mutants(path)
    ]
    return names[:: max(1, len(names) // size)]


def deciding_mutants(path: Path) -> list[str]:
    """The names of mutants in `path` whose code differs from the original in more than texts."""
    functions = {
        node.name: ast.Module(node.body, [])
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "__mutmut_" in node.name
    }
    module = ".".join(path.relative_to("mutants").with_suffix("").parts).removesuffix(".__init__")
    return [
        f"{module}.{name}"
        for name, code in functions.items()
        if not name.endswith("_orig")
        and not differs_in_texts(functions[name.rsplit("_", 1)[0] + "_orig"], code)
    ]


def differs_in_texts(original: object, mutant: object) -> bool:
    """Whether the trees are equal but for texts: another text, None instead of one, or another line of the log."""
    match original, mutant:
        case ast.Constant(str()) | ast.JoinedStr(), ast.Constant(str() | None):
            return True
        case ast.Call() as call, ast.Call() if re.match(r"(self\.)?_log\.", ast.unparse(call.func)):
            return True
        case ast.AST(), ast.AST():
            return type(original) is type(mutant) and all(
                differs_in_texts(getattr(original, field), getattr(mutant, field))
                for field in original._fields
            )
        case list(), list():
            return len(original) == len(mutant) and all(map(differs_in_texts, original, mutant))
        case _:
            return original == mutant


def exit_codes() -> dict[str, int | None]:
    codes: dict[str, int | None] = {}
    for path in MUTANTS.rglob("*.meta"):
        codes |= json.loads(path.read_text())["exit_code_by_key"]
    return codes


def percent(part: int, whole: int) -> int:
    return 100 * part // whole if whole else 100


if __name__ == "__main__":
    sys.exit(main())
