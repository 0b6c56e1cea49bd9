"""`hack/mutate`."""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from mutation.coverage import tracer
from mutation.functions import ROOT, Function
from mutation.importer import Importer
from mutation.mutants import Mutant, mutants_of
from mutation.report import print_report
from mutation.runner import Runner
from mutation.sessions import SameExamples, pytest_arguments

EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
DECIDING_PACKAGES = [
    f"kruise_probe/{name}"
    for name in (
        "client",
        "controllers",
        "daemon",
        "informers",
        "inspection",
        "manager",
        "webhook",
        "workqueue",
    )
]


def main() -> int:
    options = _options()
    found = [mutant for path in sorted(_files(options.paths)) for mutant in mutants_of(path)[1]]
    equivalent = _known_equivalents()
    mutants = [mutant for mutant in found if _key(mutant) not in equivalent]
    left_out = len(found) - len(mutants)
    if options.only:
        mutants = [mutant for mutant in mutants if options.only in str(mutant)]
    size = min(options.sample or len(mutants), len(mutants))
    sample = random.Random(options.seed).sample(mutants, size)
    if options.list:
        print("\n".join(map(str, sample)))
        return 0
    with tempfile.TemporaryDirectory(
        prefix="kruise-probe-mutate.", ignore_cleanup_errors=True
    ) as folder:
        importer = Importer(folder)  # before the product is imported
        at_import: set[Function] = set()
        runner = Runner(sample, importer, at_import, verbose=options.verbose)
        sys.settrace(tracer(at_import))
        code = pytest.main(
            [*pytest_arguments(basetemp=f"{folder}/pytest"), *options.tests],
            plugins=[runner, SameExamples()],
        )
        importer.close()
    if not runner.finished:
        print(
            f"hack/mutate: the tests could not be collected or fail: pytest ended with {code}",
            file=sys.stderr,
        )
        return 2
    print_report(runner.results, total=len(mutants), equivalent=left_out, seed=options.seed)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hack/mutate", description=sys.modules["mutation"].__doc__
    )
    parser.add_argument(
        "paths",
        nargs="*",
        default=DECIDING_PACKAGES,
        metavar="PATH",
        help="files or folders [the packages that decide]",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="number of mutants [all]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the sample [1]")
    parser.add_argument(
        "--only", metavar="TEXT", help="mutants whose line in the report contains TEXT"
    )
    parser.add_argument(
        "--tests",
        action="append",
        metavar="PATH",
        help="tests to run [test/unit/PACKAGE]; repeat for several",
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--verbose", action="store_true", help="print each mutant when it ends")
    options = parser.parse_args()
    options.tests = options.tests or sorted(
        {f"test/unit/{Path(path).parts[1]}" for path in _files(options.paths)}
    )
    return options


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        each = (ROOT / path).resolve()
        if not each.exists():
            raise SystemExit(f"hack/mutate: {path}: no such file")
        for file in [each] if each.is_file() else each.rglob("*.py"):
            if "_pb" not in file.parts:
                yield str(file.relative_to(ROOT))


def _key(mutant: Mutant) -> tuple[str, str, str, str]:
    return mutant.path, mutant.function, mutant.before, mutant.after


def _known_equivalents() -> set[tuple[str, str, str, str]]:
    listed = yaml.safe_load(EQUIVALENT.read_text()) or []
    return {(each["file"], each["function"], each["before"], each["after"]) for each in listed}


if __name__ == "__main__":
    sys.exit(main())
