"""Checks files: each document alone, then all of them together."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import Final, NamedTuple

from kruise_probe.lint.across import FileContents, across_files
from kruise_probe.lint.findings import ACCEPTED, Finding, Rule, escaped
from kruise_probe.lint.markers import (
    MarkerChecker,
    WrittenMarker,
    is_marker,
    kind_findings,
    looks_like_marker,
)
from kruise_probe.lint.nodes import (
    Document,
    Malformed,
    MappingNode,
    Node,
    below,
    items_of,
    text_of,
)
from kruise_probe.lint.sources import Source, documents
from kruise_probe.lint.templates import described_pods

_KUSTOMIZATIONS: Final = frozenset({"kustomization.yaml", "kustomization.yml"})
_PLAIN_KUSTOMIZATION: Final = frozenset(
    {"apiVersion", "kind", "metadata", "resources", "namespace", "namePrefix", "nameSuffix"}
)
"""Fields of a kustomization that change neither labels nor containers."""

MAX_ACROSS: Final = 200
"""Maximum findings about several objects; so many have one cause."""
_LIST: Final = (
    "kubectl refuses a list of objects; write each as a document of its own, or below items of an object with "
    "apiVersion: v1 and kind: List"
)


class LintReport(NamedTuple):
    """The findings in the order of the files, and what was checked.

    `unclear_file`: the first file whose objects are not all known. Because of it, nothing is reported as missing.
    """

    findings: tuple[Finding, ...]
    files: int
    markers: tuple[WrittenMarker, ...]
    templates: int
    unclear_file: str

    @property
    def refused(self) -> tuple[Finding, ...]:
        """What an API server would refuse, and what cannot be read."""
        return tuple(each for each in self.findings if each.rule not in ACCEPTED)


def lint(sources: Iterable[Source], *, allowed_labels: Collection[str] = ()) -> LintReport:
    """Check all files. `allowed_labels` as the manager's --allowed-label-keys."""
    linter = _Linter(allowed_labels)
    for source in sources:
        linter.check(source)
    return linter.report()


class _Linter:
    """Checks files one by one, and collects what they contain."""

    def __init__(self, allowed_labels: Collection[str]) -> None:
        self._checker = MarkerChecker(allowed_labels)
        self._files: list[str] = []
        self._findings: list[Finding] = []
        self._contents = FileContents()

    def report(self) -> LintReport:
        contents = self._contents
        order = {name: number for number, name in enumerate(self._files)}
        found = sorted(
            {*self._findings, *islice(across_files(contents), MAX_ACROSS)},
            key=lambda each: (order[each.file], each[1:]),
        )
        return LintReport(
            tuple(map(_shown, found)),
            len(self._files),
            tuple(contents.markers),
            len(contents.templates),
            escaped(contents.unclear_file),
        )

    def check(self, source: Source) -> None:
        self._files.append(source.name)
        try:
            for document in documents(source):
                self._document(source, document)
        except Malformed as error:
            self._flaw(source, error.finding)

    def _flaw(self, source: Source, flaw: Finding) -> None:
        """Add a flaw of the file to the findings. A file of a folder that is not for Kubernetes has none."""
        self._mark_unclear(source.name)
        word = b"PodProbeMarker" if flaw.rule is Rule.TEMPLATE else b"apiVersion"
        if source.named or word in source.raw:
            self._findings.append(flaw)

    def _mark_unclear(self, file: str) -> None:
        """Note that not all objects of a file are known."""
        self._contents.unclear_file = self._contents.unclear_file or file

    def _document(self, source: Source, document: Document) -> None:
        if _changes_labels(source.name, document.root):
            self._mark_unclear(source.name)
        objects = list(_objects(document.root))
        if any(True for item in items_of(document.root) for _ in _objects(item)):
            at = document.root.position
            self._flaw(source, Finding(source.name, at, "", Rule.SYNTAX, _LIST))
        for flaw in document.flaws if objects else ():
            self._flaw(source, flaw)
        if not any(each.rule is Rule.TEMPLATE for each in document.flaws):
            for each in objects:
                first = len(self._findings)
                self._object(source.name, each)
                if each is not document.root:
                    self._findings[first:] = [_of_item(x, each) for x in self._findings[first:]]

    def _object(self, file: str, root: MappingNode) -> None:
        wrong = list(kind_findings(file, root))
        self._findings += wrong
        if is_marker(root):
            self._marker(file, root)
        elif wrong:
            self._mark_unclear(file)
        else:
            self._add_config_map(root)
            found = described_pods(file, root)
            self._contents.templates += found.templates
            self._contents.added_containers |= found.added_containers
            self._contents.all_pods &= found.shows_all_pods
            if not found.readable:
                self._mark_unclear(file)

    def _add_config_map(self, root: MappingNode) -> None:
        data = root.get("data")
        if text_of(root.get("kind")) == "ConfigMap" and isinstance(data, MappingNode):
            namespace, name = (
                text_of(below(root, "metadata", each)) for each in ("namespace", "name")
            )
            key = (namespace, name)
            known = self._contents.config_maps
            known[key] = data if key not in known and not root.get("binaryData") else None

    def _marker(self, file: str, root: MappingNode) -> None:
        findings, marker = self._checker.check(file, root)
        self._findings += findings
        if marker is None:
            self._mark_unclear(file)
        else:
            self._contents.markers.append(marker)


def _shown(finding: Finding) -> Finding:
    return finding._replace(message=escaped(finding.message), path=escaped(finding.path))


def _of_item(finding: Finding, item: MappingNode) -> Finding:
    """The finding with the name of its object: in the output of `kubectl get`, a line says little."""
    kind = text_of(item.get("kind"))
    name, namespace = (text_of(below(item, "metadata", each)) for each in ("name", "namespace"))
    key = f"{namespace}/{name}" if namespace else name
    return finding._replace(message=f"{kind} {key}: {finding.message}")


def _objects(root: Node) -> Iterator[MappingNode]:
    """The Kubernetes objects of a document, also the items of lists. Other YAML has none."""
    if not isinstance(root, MappingNode):
        return
    kind = text_of(root.get("kind"))
    if kind.endswith("List") and root.get("items"):
        for item in items_of(root.get("items")):
            yield from _objects(item)
    elif (kind and root.get("apiVersion")) or is_marker(root) or looks_like_marker(root):
        yield root


def _changes_labels(name: str, root: Node) -> bool:
    """Whether this is a kustomization that may change labels or containers, or reads files of other folders."""
    if PurePath(name).name not in _KUSTOMIZATIONS or not isinstance(root, MappingNode):
        return False
    resources = [text_of(each) for each in items_of(root.get("resources"))]
    elsewhere = any(each.startswith("..") or "://" in each or "?" in each for each in resources)
    return elsewhere or not root.entries.keys() <= _PLAIN_KUSTOMIZATION
