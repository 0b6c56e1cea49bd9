"""Objects as Kruise's manager, daemon and webhook write them: by name, as JSON.

`test/contract/interop/kruise` makes it, with Go and Kubernetes' own types. Nothing of it was caught on the wire.
"""

import json
from pathlib import Path
from typing import NamedTuple

from support.wire import Json

CORPUS = Path(__file__).parents[1] / "data" / "kruise-corpus.jsonl"


class CorpusObject(NamedTuple):
    """`by` is manager, daemon or webhook."""

    name: str
    by: str
    kind: str
    object: Json


def corpus() -> dict[str, CorpusObject]:
    """All objects; every call returns new ones."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    entries = [CorpusObject(**json.loads(line)) for line in lines]
    return {entry.name: entry for entry in entries}


def written(name: str) -> Json:
    return corpus()[name].object
