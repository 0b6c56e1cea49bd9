"""Steps of `hack/release`: the version in every file, release notes, the kubectl plugin and its krew manifest."""

import argparse
import gzip
import hashlib
import io
import json
import re
import sys
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import yaml

REPOSITORY = "https://github.com/kruise-probe/kruise-probe"
DISTRIBUTIONS = frozenset({"kruise-probe", "kruise-probe-playground"})
PLUGIN = "kubectl-kruise_probe"
PLAYGROUND = "playground/pyproject.toml"
VERSION = re.compile(r"\d+\.\d+\.\d+")
# Each file that contains the version, with the text around it. A file that does not match is an error.
PLACES = [
    ("kruise_probe/__init__.py", r'^__version__ = "(.*)"'),
    (PLAYGROUND, r'^version = "(.*)"'),
    (PLAYGROUND, r'"kruise-probe==([^"]*)"'),
    ("config/chart/Chart.yaml", r"^version: (.*)"),
    ("config/chart/Chart.yaml", r"^appVersion: (.*)"),
    ("config/chart/Chart.yaml", r"image: ghcr\.io/kruise-probe/kruise-probe:(.*)"),
    ("README.md", r"--version (\S*) --namespace"),
    ("README.zh-CN.md", r"--version (\S*) --namespace"),
    *(
        (page, pattern)
        for page in ("docs/install.md", "docs/zh/install.md")
        for pattern in (
            r"--version (\S*) --namespace",
            r"config/default\?ref=v(.*)",
            r"config/prometheus\?ref=v(.*)",
            r"targetRevision: (.*)",
            r"ref: \{tag: (.*)\}",
        )
    ),
]
LAUNCHER = """\
#!/bin/sh
# kruise-probe as a kubectl plugin: runs with the first Python that this archive has compiled modules for.
here=$(dirname "$(readlink -f "$0")")
for python in python3 python3.14 python3.13 python3.12 python3.11; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  if [ -d "$here/lib/$version" ]; then
    PYTHONPATH=$here/lib/any:$here/lib/$version exec "$python" -P -m kruise_probe "$@"
  fi
done
echo "kubectl kruise-probe: found no Python in PATH of these versions: $(cd "$here/lib" && ls -d 3.* | tr '\\n' ' ')" >&2
exit 1
"""


class ReleaseError(Exception):
    """The release cannot be made; the message says what to do."""


def versions(root: Path) -> dict[str, str]:
    """Read the version at each of PLACES."""
    found = {}
    for name, pattern in PLACES:
        match = re.search(
            pattern,
            (root / name).read_text(),
            re.MULTILINE,
        )
        if match is None:
            raise ReleaseError(f"{name}: nothing matches {pattern!r}; adapt PLACES of {__file__}")
        found[f"{name}: {pattern}"] = match[1]
    return found


def prepare(root: Path, version: str) -> None:
    """Write the version to each of PLACES, and begin its section in the changelog."""
    versions(root)
    for name, pattern in PLACES:
        path = root / name
        text = path.read_text()
        match = re.search(pattern, text, re.MULTILINE)
        assert match is not None
        path.write_text(text[: match.start(1)] + version + text[match.end(1) :])
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text()
    if f"## {version} " not in text:
        heading = f"## Unreleased\n\n## {version} - {datetime.now(UTC):%Y-%m-%d}\n"
        changelog.write_text(text.replace("## Unreleased\n", heading, 1))


def check(root: Path, version: str) -> None:
    """Compare each of PLACES with the version.

    Raises:
        ReleaseError: a file has another version, or the changelog has no section.
    """
    if wrong := [place for place, found in versions(root).items() if found != version]:
        raise ReleaseError(
            f"not at version {version}: {wrong}; run hack/release --prepare {version}"
        )
    notes(root, version)


def notes(root: Path, version: str) -> str:
    """Return the section of the changelog for the version."""
    text = (root / "CHANGELOG.md").read_text()
    match = re.search(
        rf"^## {re.escape(version)} .*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if match is None or not match[1].strip():
        raise ReleaseError(f"CHANGELOG.md: the section of {version} is missing or empty")
    return match[1].strip() + "\n"


def plugin(wheels: Path, licence: Path, archive: Path) -> None:
    """Pack an archive of the launcher and the unpacked wheels; `wheels` has one folder for each Python version.

    Wheels without compiled modules are equal for all versions and go to `lib/any`.
    """
    files = {
        PLUGIN: (LAUNCHER.encode(), 0o755),
        "LICENSE": (licence.read_bytes(), 0o644),
    }
    for folder in sorted(wheels.iterdir()):
        for wheel in sorted(folder.glob("*.whl")):
            place = "any" if wheel.stem.endswith("-none-any") else folder.name
            with zipfile.ZipFile(wheel) as content:
                for info in content.infolist():
                    if not info.is_dir() and not re.match(
                        r"[^/]*\.data/|kubernetes/aio/", info.filename
                    ):
                        files[f"lib/{place}/{info.filename}"] = (content.read(info), 0o644)
    # No times and no owners: the same wheels make the same bytes.
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(
            filename="",
            fileobj=raw,
            mode="wb",
            mtime=0,
        ) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in sorted(files):
            data, mode = files[name]
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.mode = mode
            tar.addfile(member, io.BytesIO(data))


def krew(version: str, archives: list[Path]) -> str:
    """Return the krew manifest for archives named `…-SYSTEM-ARCH.tar.gz`."""
    platforms = []
    for archive in sorted(archives):
        system, machine = archive.name.removesuffix(".tar.gz").split("-")[-2:]
        platforms.append(
            {
                "selector": {"matchLabels": {"os": system, "arch": machine}},
                "uri": f"{REPOSITORY}/releases/download/v{version}/{archive.name}",
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "bin": PLUGIN,
            }
        )
    spec = {
        "version": f"v{version}",
        "homepage": REPOSITORY,
        "shortDescription": "Show and explain custom pod probes",
        "description": "Shows the results of PodProbeMarker probes, and explains why a pod is or is not probed.",
        "caveats": "Needs Python 3.11 or newer.",
        "platforms": platforms,
    }
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "kruise-probe"},
        "spec": spec,
    }
    text: str = yaml.safe_dump(
        manifest,
        sort_keys=False,
        width=120,
    )
    return text


def check_bill(
    bill: Path,
    constraints: Path,
    own: frozenset[str],
) -> None:
    """Compare a software bill of materials with the pins.

    Raises:
        ReleaseError: a component has no pin, or another version than its pin.
    """
    pins = set(
        re.findall(
            r"^([a-z0-9-]+==[^\s;]+)",
            constraints.read_text(),
            re.MULTILINE,
        )
    )
    parsed = json.loads(bill.read_text())
    found = {
        f"{re.sub(r'[-_.]+', '-', component['name']).lower()}=={component['version']}"
        for component in parsed["components"]
    }
    others = {each for each in found if each.partition("==")[0] not in own}
    if not others or others - pins:
        raise ReleaseError(
            f"{bill.name}: not pinned in {constraints.name}: {sorted(others - pins)}"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    for name in ("prepare", "check", "notes"):
        step = steps.add_parser(name)
        step.add_argument("root", type=Path)
        step.add_argument("version")
    step = steps.add_parser("plugin")
    step.add_argument("wheels", type=Path)
    step.add_argument("licence", type=Path)
    step.add_argument("archive", type=Path)
    step = steps.add_parser("check-bill")
    step.add_argument("bill", type=Path)
    step.add_argument("constraints", type=Path)
    step = steps.add_parser("krew")
    step.add_argument("version")
    step.add_argument("archives", type=Path, nargs="+")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    if "version" in arguments and not VERSION.fullmatch(arguments.version):
        raise ReleaseError(
            f"{arguments.version!r} is not a version; write three numbers, such as 1.2.3"
        )
    match arguments.step:
        case "prepare":
            prepare(arguments.root, arguments.version)
        case "check":
            check(arguments.root, arguments.version)
        case "notes":
            print(notes(arguments.root, arguments.version), end="")
        case "plugin":
            plugin(arguments.wheels, arguments.licence, arguments.archive)
        case "check-bill":
            check_bill(arguments.bill, arguments.constraints, DISTRIBUTIONS)
        case "krew":
            print(krew(arguments.version, arguments.archives), end="")
        case _:
            raise AssertionError("argparse knows all steps")


def main() -> int:
    try:
        _run(_parser().parse_args())
    except ReleaseError as error:
        print(f"hack/release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
