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
    text = files(__package__).joinpath(f"{file}.yaml").read_text(encoding="utf-8")
    documents = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return [_filled(each, {"namespace": namespace, **values}) for each in documents]


def _filled(value: Any, values: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    return Template(value).substitute(values) if isinstance(value, str) else value


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
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120)
    return text
