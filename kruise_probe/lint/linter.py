"""Checks files, folders and standard input: each document alone, then all of them together.

A path that cannot be read is a finding, so that the other files are still checked. The size of each is limited.
"""

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.lint.across import across_files
from kruise_probe.lint.contents import FileContents
from kruise_probe.lint.findings import Finding, LintReport, Position, Rule, escaped
from kruise_probe.lint.markers import check_marker, is_marker, kind_problem, looks_like_marker
from kruise_probe.lint.nodes import (
    Document,
    Malformed,
    MappingNode,
    Node,
    below,
    container_names,
    describes_all_pods,
    finding_at,
    items_of,
    pod_templates,
    text_of,
)
from kruise_probe.lint.reader import Reader

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
SUFFIXES: Final = (".yaml", ".yml", ".json")


_START: Final = Position(1, 1)


class Source(NamedTuple):
    """One file. If it has no usable text, `flaw` is the reason.

    Attributes:
        raw: the bytes of the file, even if they are not text.
        named: the user named this file; otherwise it was found in a folder.
    """

    name: str
    text: str
    raw: bytes = b""
    named: bool = True
    flaw: Finding | None = None


def read_sources(paths: Iterable[str]) -> Iterator[Source]:
    """Read files, all YAML and JSON files of folders, and standard input for `-`; each file once."""
    seen = set[str]()
    for path in paths:
        if path == "-":
            yield decoded("stdin", sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
            continue
        files = [path]
        is_folder = os.path.isdir(path)
        if is_folder:
            errors = list[OSError]()
            files = list(_files_below(path, errors))
            for error in errors:
                yield _unreadable_path(
                    "folder",
                    str(error.filename),
                    error,
                )
            if not files and not errors:
                message = f"the folder has no {', '.join(SUFFIXES)} file; name another"
                yield _unreadable(path, message)
        for file in files:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield _read(file, named=not is_folder)


def _files_below(folder: str, errors: list[OSError]) -> Iterator[str]:
    """Files with a known suffix, sorted; without hidden folders and without following links to folders.

    Includes what cannot be read, such as dangling links, but not the one that Emacs makes for an edited file. Appends the
    error of each unreadable folder to `errors`.
    """
    for parent, folders, files in os.walk(folder, onerror=errors.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.join(parent, name)
            if name.startswith(".#") or not name.lower().endswith(SUFFIXES):
                continue
            if os.path.isfile(path) or not os.path.exists(
                path
            ):  # no pipe: reading it may never end
                yield path


def _read(path: str, *, named: bool) -> Source:
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        return _unreadable_path("file", path, error)
    return decoded(path, raw)._replace(named=named)


def _unreadable_path(kind: str, path: str, error: Exception) -> Source:
    why = getattr(error, "strerror", None) or str(error)
    return _unreadable(path, f"the {kind} cannot be read: {why}; check its path and permissions")


def _unreadable(
    name: str,
    message: str,
    at: Position = _START,
    raw: bytes = b"",
) -> Source:
    return Source(
        name,
        "",
        raw,
        flaw=Finding(at, "", Rule.UNREADABLE, message),
    )


def decoded(name: str, raw: bytes) -> Source:
    """Decode the bytes of a file; the source has a flaw if they are too many or not text."""
    if len(raw) > MAX_FILE_BYTES:
        message = f"the file is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB; split the file"
        return _unreadable(name, message, raw=raw)
    try:
        return Source(name, raw.decode("utf-8-sig"), raw)
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode(
            "utf-8-sig",
            errors="replace",
        )
        at = Position(before.count("\n") + 1, len(before) - before.rfind("\n"))
        message = f"the byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        return _unreadable(name, message, at, raw)


def documents(source: Source) -> Iterator[Document]:
    """The documents of a file.

    Raises:
        Malformed: the rest cannot be read.
    """
    if source.flaw:
        raise Malformed(source.flaw)
    return Reader(source.text).documents()


_KUSTOMIZATIONS: Final = frozenset({"kustomization.yaml", "kustomization.yml"})
_PLAIN_KUSTOMIZATION: Final = frozenset(
    {
        *("apiVersion", "kind", "metadata", "resources", "namespace", "namePrefix", "nameSuffix"),
        *("images", "replicas"),
    }
)
"""Fields of a kustomization that change neither labels nor containers."""
_ELSEWHERE: Final = re.compile(r"^\.\.|://|\?")
"""In a resource of a kustomization: it is in another folder or repository."""

MAX_ACROSS: Final = 200
"""Maximum findings about several objects; so many have one cause."""
_LIST: Final = (
    "kubectl refuses a list of objects; write each as a document of its own, or below items of an object with "
    "apiVersion: v1 and kind: List"
)


def lint(sources: Iterable[Source], *, allowed_labels: Collection[str] = ()) -> LintReport:
    """Check all files. `allowed_labels` as the manager's --allowed-label-keys."""
    linter = _Linter(allowed_labels)
    order: dict[str, int] = {}
    count = 0
    for source in sources:
        linter.check(source)
        order[source.name] = count
        count += 1
    contents = linter.contents
    found = {
        *linter.findings,
        *islice(across_files(contents), MAX_ACROSS),
    }
    findings = sorted(
        found,
        key=lambda finding: (order[finding.file], finding),
    )
    unclear = contents.unclear_file
    return LintReport(
        findings=tuple(map(_escaped, findings)),
        files=count,
        markers=tuple(marker.source for marker in contents.markers),
        templates=len(contents.templates),
        unclear_file=None if unclear is None else escaped(unclear),
    )


def _escaped(finding: Finding) -> Finding:
    return finding._replace(
        message=escaped(finding.message),
        path=escaped(finding.path),
    )


class _Linter:
    """Checks files one by one, and collects what they contain."""

    def __init__(self, allowed_labels: Collection[str]) -> None:
        self._allowed_labels = allowed_labels
        self.findings: list[Finding] = []
        self.contents = FileContents()

    def check(self, source: Source) -> None:
        """Check a file."""
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
            self.findings.append(flaw._replace(file=source.name))

    def _mark_unclear(self, file: str) -> None:
        """Note that not all objects of a file are known."""
        if self.contents.unclear_file is None:
            self.contents.unclear_file = file

    def _document(self, source: Source, document: Document) -> None:
        root = document.root
        if _changes_labels(source.name, root):
            self._mark_unclear(source.name)
        if any(any(_objects(item)) for item in items_of(root)):
            flaw = Finding(
                root.position,
                "",
                Rule.SYNTAX,
                _LIST,
            )
            self._flaw(source, flaw)
        objects = list(_objects(root))
        if not objects:
            return
        for flaw in document.flaws:
            self._flaw(source, flaw)
        if any(flaw.rule is Rule.TEMPLATE for flaw in document.flaws):
            return
        for found in objects:
            findings = self._object(source.name, found)
            if found is not root:
                findings = _of_item(findings, found)
            for finding in findings:
                self.findings.append(finding._replace(file=source.name))

    def _object(self, file: str, root: MappingNode) -> list[Finding]:
        """Check an object, and add it to the contents."""
        contents = self.contents
        problem = kind_problem(root)
        findings = [finding_at(root, problem)] if problem else []
        if is_marker(root):
            found, marker = check_marker(file, root, self._allowed_labels)
            findings += found
            if marker is None:
                self._mark_unclear(file)
            else:
                contents.markers.append(marker)
        elif problem:
            self._mark_unclear(file)
        elif text_of(root, "kind") == "SidecarSet":  # of Kruise; adds its containers to pods
            contents.added_containers.update(container_names(root))
        else:
            templates = list(pod_templates(file, root))
            contents.templates += filter(None, templates)
            contents.all_pods &= describes_all_pods(root)
            if None in templates:
                self._mark_unclear(file)
        return findings


def _of_item(findings: Iterable[Finding], item: MappingNode) -> list[Finding]:
    """The findings with the name of their object: in the output of `kubectl get`, a line says little."""
    metadata = below(item, "metadata")
    key = NamespacedName(text_of(metadata, "namespace"), text_of(metadata, "name"))
    which = f"{text_of(item, 'kind')} {key}"
    return [finding._replace(message=f"{which}: {finding.message}") for finding in findings]


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
    if not root.entries.keys() <= _PLAIN_KUSTOMIZATION:
        return True
    resources = [text_of(item) for item in items_of(root, "resources")]
    return any(map(_ELSEWHERE.search, resources))
