"""The texts to check: files, folders and standard input, with a bound on the size of each.

A path that cannot be read is a finding, so that the other files are still checked.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kruise_probe.lint.findings import Finding, Position, Rule
from kruise_probe.lint.nodes import Document, Malformed
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
        files, errors = [path], list[OSError]()
        is_folder = os.path.isdir(path)
        if is_folder:
            files = list(_files_below(path, errors))
            yield from (_unreadable_path("folder", str(each.filename), each) for each in errors)
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


def _unreadable(name: str, message: str, at: Position = _START, raw: bytes = b"") -> Source:
    return Source(name, "", raw, flaw=Finding(name, at, "", Rule.UNREADABLE, message))


def decoded(name: str, raw: bytes) -> Source:
    """Decode the bytes of a file; the source has a flaw if they are too many or not text."""
    if len(raw) > MAX_FILE_BYTES:
        message = f"the file is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB; split the file"
        return _unreadable(name, message, raw=raw)
    try:
        return Source(name, raw.decode("utf-8-sig"), raw)
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
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
    return Reader(source.name, source.text).documents()
