"""Fuzzes one target of test/support/fuzz_targets.py, then merges what it found into the checked-in corpus."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kruise-probe/fuzz"
MAX_INPUT_BYTES = 4096
MEMORY_MB = 1024
SLOWEST_SECONDS = 10
"""libFuzzer's own limit for one input: an endless loop, not a performance limit."""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--inside"]:
        return inside(arguments[1], arguments[2:])
    names = list(_targets().TARGETS)
    if not arguments:
        print("\n".join(names))
        return 0
    chosen = names if arguments[0] == "all" else [arguments[0]]
    seconds = arguments[1] if len(arguments) > 1 else "600"
    if not set(chosen) <= set(names) or not seconds.isdigit():
        print(
            f"hack/fuzz: usage: hack/fuzz [all|{'|'.join(names)} [SECONDS]]",
            file=sys.stderr,
        )
        return 2
    return max(fuzz(name, int(seconds)) for name in chosen)


def _targets() -> ModuleType:
    sys.path.insert(0, str(ROOT / "test"))
    from support import fuzz_targets

    return fuzz_targets


def fuzz(name: str, seconds: int) -> int:
    """Fuzzes for so long, then keeps the smallest set of inputs with the same coverage."""
    targets = _targets()
    known, found, merged = (CACHE / f"{name}.{part}" for part in ("known", "found", "merged"))
    for folder in (known, merged):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (known, found, merged):
        folder.mkdir(parents=True, exist_ok=True)
    corpus = set(targets.read_corpus(name))
    for number, data in enumerate(corpus):
        (known / str(number)).write_bytes(data)
    limits = [
        f"-max_len={MAX_INPUT_BYTES}",
        f"-rss_limit_mb={MEMORY_MB}",
        "-verbosity=0",
    ]
    print(
        f"== {name}: {seconds} s",
        flush=True,
    )
    broken_by = CACHE / f"{name}.broken"
    broken_by.unlink(missing_ok=True)
    if run(
        name,
        f"-max_total_time={seconds}",
        f"-timeout={SLOWEST_SECONDS}",
        f"-exact_artifact_path={broken_by}",
        "-print_final_stats=1",
        *limits,
        str(found),
        str(known),
    ):
        if broken_by.exists():
            targets.write_corpus(name, corpus | {broken_by.read_bytes()})
            print(f"== {name}: broken by {broken_by.read_bytes()!r}, which is in the corpus now")
        return 1
    if run(
        name,
        "-merge=1",
        *limits,
        str(merged),
        str(known),
        str(found),
    ):
        return 1
    inputs = {path.read_bytes() for path in merged.iterdir()}
    targets.write_corpus(name, inputs)
    print(f"== {name}: {len(inputs)} inputs in {targets.CORPORA.relative_to(ROOT)}/{name}")
    return 0


def run(name: str, *options: str) -> int:
    command = [sys.executable, __file__, "--inside", name, *options]
    return subprocess.run(command, check=False).returncode


def inside(name: str, options: list[str]) -> int:
    import atheris  # type: ignore[import-untyped]  # no stubs

    sys.path.insert(0, str(ROOT / "test"))
    with atheris.instrument_imports(include=["kruise_probe", "kruise_probe_playground", "hpack"]):
        from support.fuzz_targets import TARGETS

    # A merge starts this program again: libFuzzer passes its first argument to a shell.
    itself = f"{sys.executable} {__file__} --inside {name}"
    atheris.Setup([itself, *options], TARGETS[name])
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
