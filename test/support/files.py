"""Files that a pod reads while a test writes them."""

from pathlib import Path


def write_at_once(path: Path, text: str) -> None:
    """Write the file by a rename, so that no reader finds it empty."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)
