"""Prints the survivors and the score of each package."""

from collections import Counter
from collections.abc import Iterable

from mutation.forks import SURVIVED, TIME_LIMIT
from mutation.runner import MutantResult


def print_report(
    results: Iterable[MutantResult], *, total: int, equivalent: int, seed: int
) -> None:
    """Print the report of a sample of `total` mutants; `equivalent` mutants were left out."""
    sampled: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    ended = 0
    print("\nSurvivors:")
    for each in sorted(results, key=lambda each: (each.mutant.path, each.mutant.number)):
        package = each.mutant.path.split("/")[1]
        sampled[package] += 1
        ended += each.result == TIME_LIMIT
        if each.result == SURVIVED:
            survived[package] += 1
            print(f"  {each.mutant}  [{each}]")
    print(f"\n{'package':<12} {'mutants':>8} {'killed':>8} {'score':>7}")
    for package in sorted(sampled):
        _print_row(package, sampled[package], survived[package])
    _print_row("all", sampled.total(), survived.total())
    print(
        f"\nA sample of {sampled.total()} of {total} mutants, seed {seed}. "
        f"Left out: {equivalent} known to be equivalent. Killed by the time limit: {ended}."
    )


def _print_row(name: str, sampled: int, survived: int) -> None:
    killed = sampled - survived
    score = 100 * killed / sampled if sampled else 100.0
    print(f"{name:<12} {sampled:>8} {killed:>8} {score:>6.1f}%")
