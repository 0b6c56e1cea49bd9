"""Writes a software bill of materials (CycloneDX 1.6, JSON) of the distributions in the environment that runs it.

Usage: python hack/lib/sbom.py NAME VERSION. It uses only the standard library.
"""

import json
import re
import sys
import uuid
from importlib.metadata import Distribution, distributions
from typing import Any

# Every virtual environment has the installer, which is not part of the product.
INSTALLERS = {"pip", "setuptools"}


def bill(name: str, version: str) -> dict[str, Any]:
    """Describe every installed distribution, and which one requires which."""
    installed = {key(each.metadata["Name"]): each for each in distributions()}
    for installer in INSTALLERS:
        installed.pop(installer, None)
    if key(name) not in installed or installed[key(name)].version != version:
        raise SystemExit(
            f"sbom: {name} {version} is not installed in the environment of {sys.executable}"
        )
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same content has the same number.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(sorted(map(purl, installed.values()))))}",
        "version": 1,
        "metadata": {"component": {**component(installed[key(name)]), "type": "application"}},
        "components": [
            component(each) for other, each in sorted(installed.items()) if other != key(name)
        ],
        "dependencies": [
            {"ref": purl(each), "dependsOn": required(each, installed)}
            for _, each in sorted(installed.items())
        ],
    }


def component(distribution: Distribution) -> dict[str, Any]:
    about = {key: distribution.metadata[key] for key in distribution.metadata}
    expression = about.get("License-Expression", "")
    licence = expression or about.get("License", "")
    described: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl(distribution),
        "name": about["Name"],
        "version": distribution.version,
        "purl": purl(distribution),
    }
    # Some distributions have the whole text of the licence in this field.
    if licence and "\n" not in licence:
        kind = "expression" if expression else "license"
        described["licenses"] = [{kind: licence if kind == "expression" else {"name": licence}}]
    return described


def required(distribution: Distribution, installed: dict[str, Distribution]) -> list[str]:
    names = {
        key(re.split(r"[\s;<>=!~\[(]", each, maxsplit=1)[0]) for each in distribution.requires or []
    }
    return sorted(purl(installed[name]) for name in names if name in installed)


def purl(distribution: Distribution) -> str:
    return f"pkg:pypi/{key(distribution.metadata['Name'])}@{distribution.version}"


def key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    _, name, version = sys.argv
    print(json.dumps(bill(name, version), indent=1))


if __name__ == "__main__":
    main()
