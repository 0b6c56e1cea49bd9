"""Checks files: each document alone, then all of them together."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import Final

from kruise_probe.lint.across import FileContents, across_files
from kruise_probe.lint.findings import Finding, LintReport, Rule, escaped
from kruise_probe.lint.markers import (
    MarkerChecker,
    is_marker,
    kind_problem,
    looks_like_marker,
)
from kruise_probe.lint.nodes import (
    Document,
    Malformed,
    MappingNode,
    Node,
    below,
    finding_at,
    items_of,
    text_of,
)
from kruise_probe.lint.sources import Source, documents
from kruise_probe.lint.templates import container_names, describes_all_pods, pod_templates

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


def lint(sources: Iterable[Source], *, allowed_labels: Collection[str] = ()) -> LintReport:
    """Check all files. `allowed_labels` as the manager's --allowed-label-keys."""
    linter = _Linter(allowed_labels)
    files = [linter.check(source) for source in sources]
    contents = linter.contents
    order = {name: number for number, name in enumerate(files)}
    found = {*linter.findings, *islice(across_files(contents), MAX_ACROSS)}
    return LintReport(
        tuple(
            finding._replace(message=escaped(finding.message), path=escaped(finding.path))
            for finding in sorted(found, key=lambda each: (order[each.file], each[1:]))
        ),
        len(files),
        tuple(each.source for each in contents.markers),
        len(contents.templates),
        None if contents.unclear_file is None else escaped(contents.unclear_file),
    )


class _Linter:
    """Checks files one by one, and collects what they contain."""

    def __init__(self, allowed_labels: Collection[str]) -> None:
        self._checker = MarkerChecker(allowed_labels)
        self.findings: list[Finding] = []
        self.contents = FileContents()

    def check(self, source: Source) -> str:
        """Check a file; return its name."""
        try:
            for document in documents(source):
                self._document(source, document)
        except Malformed as error:
            self._flaw(source, error.finding)
        return source.name

    def _flaw(self, source: Source, flaw: Finding) -> None:
        """Add a flaw of the file to the findings. A file of a folder that is not for Kubernetes has none."""
        self._mark_unclear(source.name)
        word = b"PodProbeMarker" if flaw.rule is Rule.TEMPLATE else b"apiVersion"
        if source.named or word in source.raw:
            self.findings.append(flaw)

    def _mark_unclear(self, file: str) -> None:
        """Note that not all objects of a file are known."""
        if self.contents.unclear_file is None:
            self.contents.unclear_file = file

    def _document(self, source: Source, document: Document) -> None:
        if _changes_labels(source.name, document.root):
            self._mark_unclear(source.name)
        objects = list(_objects(document.root))
        if any(True for item in items_of(document.root) for _ in _objects(item)):
            at = document.root.position
            self._flaw(source, Finding(source.name, at, "", Rule.SYNTAX, _LIST))
        for flaw in document.flaws if objects else ():
            self._flaw(source, flaw)
        if any(flaw.rule is Rule.TEMPLATE for flaw in document.flaws):
            return
        for each in objects:
            found = self._object(source.name, each)
            self.findings += found if each is document.root else _of_item(found, each)

    def _object(self, file: str, root: MappingNode) -> list[Finding]:
        """Check an object, and add it to the contents."""
        contents, problem = self.contents, kind_problem(root)
        findings = [finding_at(file, root, problem)] if problem else []
        if is_marker(root):
            found, marker = self._checker.check(file, root)
            findings += found
            if marker is None:
                self._mark_unclear(file)
            else:
                contents.markers.append(marker)
        elif problem:
            self._mark_unclear(file)
        elif (
            text_of(root, "kind") == "SidecarSet"
        ):  # Kruise's kind that adds its containers to pods
            contents.added_containers.update(container_names(root))
        else:
            templates = list(pod_templates(file, root))
            contents.templates += filter(None, templates)
            contents.all_pods &= describes_all_pods(root)
            if None in templates:
                self._mark_unclear(file)
        return findings


def _of_item(findings: Iterable[Finding], item: MappingNode) -> Iterator[Finding]:
    """The findings with the name of their object: in the output of `kubectl get`, a line says little."""
    namespace = text_of(item, "metadata", "namespace")
    key = f"{namespace}/" if namespace else ""
    key = f"{text_of(item, 'kind')} {key}{text_of(item, 'metadata', 'name')}"
    return (each._replace(message=f"{key}: {each.message}") for each in findings)


def _objects(root: Node) -> Iterator[MappingNode]:
    """The Kubernetes objects of a document, also the items of lists. Other YAML has none."""
    if not isinstance(root, MappingNode):
        return
    kind = text_of(root, "kind")
    if kind.endswith("List") and below(root, "items"):
        for item in items_of(root, "items"):
            yield from _objects(item)
    elif (kind and below(root, "apiVersion")) or is_marker(root) or looks_like_marker(root):
        yield root


def _changes_labels(name: str, root: Node) -> bool:
    """Whether this is a kustomization that may change labels or containers, or reads files of other folders."""
    if PurePath(name).name not in _KUSTOMIZATIONS or not isinstance(root, MappingNode):
        return False
    resources = [text_of(each) for each in items_of(root, "resources")]
    elsewhere = any(each.startswith("..") or "://" in each or "?" in each for each in resources)
    return elsewhere or not root.entries.keys() <= _PLAIN_KUSTOMIZATION
