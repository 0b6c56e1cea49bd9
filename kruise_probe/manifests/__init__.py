"""Manifests of the install as plain values: CRDs, roles, workloads, the webhook. Read from the YAML files of this package.

`hack/gen_config` writes `config/` from here, `kruise-probe manifests` prints them, and the playground installs them.
"""

from collections.abc import Iterable
from importlib.resources import files
from string import Template
from typing import Any

import yaml

Manifest = dict[str, Any]


def objects_in(file: str, namespace: str = "", **values: str) -> list[Manifest]:
    """The objects of a file. Each `$name` in its texts is replaced by the value of that name."""
    values["namespace"] = namespace
    return [_filled(document, values) for document in read_yaml(file)]


def read_yaml(file: str) -> list[Manifest]:
    """The documents of a file of this package."""
    text = files(__package__).joinpath(f"{file}.yaml").read_text(encoding="utf-8")
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def _filled(value: Any, values: dict[str, str]) -> Any:
    match value:
        case dict():
            return {key: _filled(part, values) for key, part in value.items()}
        case list():
            return [_filled(item, values) for item in value]
        case str():
            return Template(value).substitute(values)
        case _:
            return value


class _Dumper(yaml.SafeDumper):
    """Without aliases, and with texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_of(documents: Iterable[Any]) -> str:
    """The documents as people read them."""
    text: str = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        width=120,
    )
    return text
