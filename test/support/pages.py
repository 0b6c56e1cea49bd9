"""The code blocks of the documentation."""

import re
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import yaml
from support.wire import Json

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("README*.md")])


_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

ELSEWHERE = {
    r"git clone|cd kruise-probe$": "the newcomer lane starts from a clone",
    r"kubectl apply -f game.yaml|kruise-probe status game$": "usage/test_docs.py, in a namespace of its own",
    r"hack/playground": "test/integration/playground/test_command.py runs what it starts",
    r"kruise-probe playground": "test/integration/playground/test_command.py",
    r"hack/test": "it runs this test",
    r"kruise-probe try": "test/e2e/test_try.py",
    r"hack/(bench|soak)": "it takes its time, and is run by hand",
    r"hack/(cluster|kind-up|kind-load)|eval .*hack/cluster": "hack/test e2e",
    r"kubectl -n kruise-system rollout": "hack/e2e-installed",
    r"kubectl create clusterrolebinding|kubectl -n kruise-system port-forward|curl --insecure": "test/contract/installation/test_secure_metrics.py",
    r"docker (build|push)": "no test: needs Docker",
    r"helm |kubectl label namespace kruise-system": "hack/e2e-installed helm",
    r"kubectl apply --server-side --kustomize": "hack/e2e-installed kustomize",
    r"(pipx|uv tool|pip) (install|inject)": "test/release installs the wheels",
    r"kruise-probe manifests --webhook \| kubectl delete": "hack/e2e-installed",
    r"kubectl (exec|scale)": "the playground has no Deployments; test_recipes.py does the same by hand, and waits for what follows",
}
"""Commands that do not run on the playground, and where they run instead."""


class Block(NamedTuple):
    """One fenced block; `heading` is the nearest one above it."""

    page: str
    number: int
    language: str
    heading: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}-{self.number}"

    @property
    def documents(self) -> list[Json]:
        """The whole objects of a YAML block."""
        documents = yaml.safe_load_all(self.text)
        dicts = [document for document in documents if isinstance(document, dict)]
        return [document for document in dicts if {"kind", "apiVersion"} <= document.keys()]

    @property
    def script(self) -> str:
        """The commands of the block, without those that run elsewhere; a line that installs kubectl is shortened."""
        lines = self.text.splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        kept = [line for line in lines if not re.match("|".join(ELSEWHERE), line)]
        return re.sub(r"(kruise-probe manifests.*?) \| kubectl.*", r"\1", "\n".join(kept))


def blocks(*languages: str) -> list[Block]:
    """All blocks in these languages, page by page."""
    found = chain(*map(blocks_of, PAGES))
    return [block for block in found if block.language in languages]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for number, match in enumerate(_FENCE.finditer(text), start=1):
        before = text[: match.start()]
        heading = ["", *re.findall(r"^#+ (.*)$", before, re.MULTILINE)][-1]
        found.append(Block(page.name, number, match[1], heading, match[2]))
    return found


def block(page: str, heading: str, language: str = "yaml") -> Block:
    """The first block of a language below a heading."""
    for found in blocks_of(ROOT / "docs" / page):
        if found.heading == heading and found.language == language:
            return found
    raise LookupError(f"{page} has no block in {language} below {heading}")
