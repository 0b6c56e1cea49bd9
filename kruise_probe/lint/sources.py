"""The texts to check: files, folders and standard input, with a bound on the size of each.

A path that cannot be read is a finding, so that the other files are still checked.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kruise_probe.lint.findings import Finding, Position, Rule
from kruise_probe.lint.nodes import Document, Malformed, NodeBuilder
from kruise_probe.lint.yaml_text import json_documents, yaml_documents

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
STANDARD_INPUT: Final = "-"
STANDARD_INPUT_NAME: Final = "stdin"
SUFFIXES: Final = (".yaml", ".yml", ".json")


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
        if path == STANDARD_INPUT:
            yield decoded(STANDARD_INPUT_NAME, sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
        elif os.path.isdir(path):
            errors: list[OSError] = []
            files = list(_files_below(path, errors))
            yield from (_unreadable_path("folder", str(each.filename), each) for each in errors)
            if not files and not errors:
                yield _unreadable(
                    path, f"the folder has no {', '.join(SUFFIXES)} file; name another"
                )
            yield from (_read(each, named=False) for each in files if _is_new(each, seen))
        elif _is_new(path, seen):
            yield _read(path, named=True)


def _is_new(path: str, seen: set[str]) -> bool:
    real = os.path.realpath(path)
    if real in seen:
        return False
    seen.add(real)
    return True


def _files_below(folder: str, errors: list[OSError]) -> Iterator[str]:
    """Files with a known suffix, sorted; without hidden folders and without following links to folders.

    Includes what cannot be read, such as dangling links. Appends the error of each unreadable folder to `errors`.
    """
    for parent, folders, files in os.walk(folder, onerror=errors.append):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(files):
            path = os.path.join(parent, name)
            # A dangling link cannot be read. Emacs marks an edited file with one whose name begins with a dot.
            dangles = not name.startswith(".") and not os.path.exists(path)
            if name.lower().endswith(SUFFIXES) and (os.path.isfile(path) or dangles):
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


def _unreadable(name: str, message: str) -> Source:
    return Source(name, "", flaw=Finding(name, Position(1, 1), "", Rule.UNREADABLE, message))


def decoded(name: str, raw: bytes) -> Source:
    """Decode the bytes of a file; the source has a flaw if they are too many or not text."""
    if len(raw) > MAX_FILE_BYTES:
        message = f"the file is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB; split the file"
        return _unreadable(name, message)._replace(raw=raw)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
        message = f"the byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        found = NodeBuilder(name, before).malformed(len(before), message, Rule.UNREADABLE)
        return Source(name, "", raw, flaw=found.finding)
    return Source(name, text, raw)


def documents(source: Source) -> Iterator[Document]:
    """The documents of a file, as kubectl reads it: JSON if the first character is `{`, otherwise YAML.

    Raises:
        Malformed: the rest cannot be read.
    """
    if source.flaw:
        raise Malformed(source.flaw)
    builder = NodeBuilder(source.name, source.text)
    return json_documents(builder) if builder.is_json else yaml_documents(builder)
