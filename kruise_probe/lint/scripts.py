"""Scripts of ConfigMaps that probes run: whether the file exists, is executable, and has an interpreter."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from kruise_probe.api.spelling import did_you_mean
from kruise_probe.inspection.commands import SHELLS
from kruise_probe.lint.nodes import MappingNode, Node, below, items_of, text_of, value_of
from kruise_probe.lint.templates import PodTemplate

ConfigMaps = dict[tuple[str, str], MappingNode | None]
"""The `data` of ConfigMaps, by namespace and name; None if several files have one of this name."""

_ANY_EXECUTE: Final = 0o111
_DEFAULT_MODE: Final = 0o644


def script_problem(
    template: PodTemplate, container: str, command: Sequence[str], config_maps: ConfigMaps
) -> str:
    """Why the script of a command cannot run; empty if it can, or if no file has it."""
    by_shell = bool(command) and PurePosixPath(command[0]).name in SHELLS
    words = [each for each in command[by_shell:] if not (by_shell and each.startswith("-"))]
    if not words or (by_shell and any("c" in each for each in command if each.startswith("-"))):
        return ""
    path = PurePosixPath(words[0])
    volume = below(_volume_at(template, container, str(path.parent)), "configMap")
    name = text_of(below(volume, "name"))
    data = config_maps.get((template.namespace, name))
    if data is None or below(volume, "items"):
        return ""
    if path.name not in data.entries:
        hint = did_you_mean(path.name, data.entries) or " Correct the path of the command."
        return (
            f"ConfigMap {name}, which is mounted at {path.parent}, has no key {path.name!r}.{hint}"
        )
    return _text_problem(
        f"{path.name!r} of ConfigMap {name}",
        text_of(data.get(path.name)),
        value_of(below(volume, "defaultMode")) or _DEFAULT_MODE,
        by_shell=by_shell,
    )


def _text_problem(what: str, text: str, mode: object, *, by_shell: bool) -> str:
    if "\r\n" in text:
        return f"{what} has CRLF line ends, so its interpreter is not found; write it with LF"
    if by_shell:
        return ""
    if not text.startswith("#!"):
        return f"{what} has no interpreter; begin it with a line such as #!/bin/sh"
    if isinstance(mode, int) and not mode & _ANY_EXECUTE:
        return f"{what} is not executable; set defaultMode: 0755 of the volume, or run it with sh"
    return ""


def _volume_at(template: PodTemplate, container: str, folder: str) -> Node | None:
    """The volume that a container mounts at a folder as a whole."""
    spec = template.root.get("spec")
    for each in items_of(below(spec, "containers")):
        for mount in items_of(below(each, "volumeMounts")):
            same = text_of(below(mount, "mountPath")).rstrip("/") == folder
            if text_of(below(each, "name")) == container and same and not below(mount, "subPath"):
                name = text_of(below(mount, "name"))
                volumes = items_of(below(spec, "volumes"))
                return next((x for x in volumes if text_of(below(x, "name")) == name), None)
    return None
