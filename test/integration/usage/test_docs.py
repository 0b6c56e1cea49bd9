"""Every YAML and every command of the pages that people read, on the playground."""

import re
import shutil
from collections.abc import Awaitable, Callable
from operator import attrgetter
from pathlib import Path

import pytest
import yaml
from integration.usage_namespace import NEEDS_PROMTOOL, UsageNamespace
from support.cases import cases
from support.pages import ROOT, Block, block, blocks, blocks_of
from support.playground import ControlledPlayground
from support.shell import Ran, run

from kruise_probe_playground.documents import SAMPLE, objects_for

RunScript = Callable[[str], Awaitable[Ran]]
TRANSLATED = "README.zh-CN.md"  # its blocks are held to README.md's
SCRIPTS = [
    block for block in blocks("sh", "console") if block.script.strip() and block.page != TRANSLATED
]
NOT_OF_THE_PLAYGROUND = {
    "AdmissionConfiguration": "hostile/test_e11_mutate_pod.py plays an API server with that certificate",
    "Config": "as AdmissionConfiguration",
    "AuthorizationConfiguration": "contract/installation/test_own_node_reads.py",
    "ResourceQuota": "contract/installation/test_quota.py",
    "Application": "no test: needs Argo CD",
    "OCIRepository": "no test: needs Flux",
    "HelmRelease": "no test: needs Flux",
    "Kustomization": "no test: fetches a released version",
}
"""Kinds that it does not serve, and who tries what the pages say of them."""
YAML = [block for block in blocks("yaml") if block.page != TRANSLATED]
SET_BY_HACK_CLUSTER = "export KRUISE_PROBE_CRI_ENDPOINT=unix:///run/containerd/containerd.sock"
BESIDE_THE_DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "test").glob("*.md")])
ALERTS = yaml.safe_load((ROOT / "config/prometheus/alerts.yaml").read_text())["spec"]
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


@pytest.fixture
def shell(playground: ControlledPlayground, tmp_path: Path) -> RunScript:
    """Runs a script as a person who pasted the playground's KUBECONFIG."""
    return lambda script: run(script, kubeconfig=playground.kubeconfig, folder=tmp_path)


@pytest.fixture
def hello(tmp_path: Path) -> str:
    """What the first page shows; a reader has saved it as hello.yaml."""
    text = block("get-started.md", "Your first marker").text
    (tmp_path / "hello.yaml").write_text(text)
    return text


def blocks_as(name: str, found: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(name, found, ids=attrgetter("id"))


@blocks_as("commands", SCRIPTS)
async def test_every_command_runs(
    shell: RunScript, ns: UsageNamespace, hello: str, commands: Block
) -> None:
    if "kubectl" in commands.script and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    for text in (SAMPLE.read_text(), hello):
        await ns.apply(text, namespace="default")

    ran = await shell(f"{SET_BY_HACK_CLUSTER}\n{commands.script}")

    assert ran.code == 0, ran.err
    assert "rror" not in ran.err


@blocks_as("shown", YAML)
async def test_every_yaml_is_accepted_by_the_server(ns: UsageNamespace, shown: Block) -> None:
    for document in shown.documents:
        if document["kind"] not in NOT_OF_THE_PLAYGROUND:
            await ns.apply_objects(objects_for(document))


async def test_the_explanation_that_is_shown_is_what_is_said(
    shell: RunScript, ns: UsageNamespace, hello: str
) -> None:
    await ns.apply(hello.replace("containerName: main", "containerName: mian"))
    await ns.explained("hello", "ContainerNotFound", probe="mood")

    ran = await shell(f"kruise-probe explain -n {ns.namespace} hello")

    shown = block("get-started.md", "A mistake in it", "console").text.partition("\n")[2]
    said = ran.out.replace(ns.namespace, "default")
    assert _comparable(said) == _comparable(shown)


async def test_the_marker_of_the_readme_works_beside_that_of_the_sample(
    shell: RunScript, ns: UsageNamespace, tmp_path: Path
) -> None:
    await ns.apply(SAMPLE.read_text())
    marker = _of_the_readme("kind: PodProbeMarker")
    commands = _of_the_readme("kubectl apply -f game.yaml")
    script = re.sub("^(kubectl|kruise-probe \\w+)", rf"\1 -n {ns.namespace}", commands, flags=re.M)
    file = tmp_path / "game.yaml"

    file.write_text(marker)
    assert (await shell(script)).code == 0
    await ns.explained("game-0", "", probe="empty")

    file.write_text(marker.replace("containerName: server", "containerName: sever"))
    assert (await shell(script)).code == 0
    await ns.explained("game-0", "ContainerNotFound", probe="empty")


def _of_the_readme(text: str) -> str:
    """The first block that contains this text."""
    found = blocks_of(ROOT / "README.md")
    return next(block.text for block in found if text in block.text)


def _comparable(text: str) -> list[str]:
    """The lines without what differs between clusters, and without empty ones."""
    text = ADDRESS.sub("IP", re.sub(r"node-\d", "NODE", text))
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@cases(
    "english chinese",
    readme=("README.md", TRANSLATED),
    install=("docs/install.md", "docs/zh/install.md"),
)
def test_a_chinese_page_has_the_same_commands_and_yaml(english: str, chinese: str) -> None:
    assert _code_of(english) == _code_of(chinese)


def test_the_shorter_chinese_page_has_commands_and_yaml_of_the_english_one() -> None:
    chinese = set(_code_of("docs/zh/get-started.md"))
    assert chinese - set(_code_of("docs/get-started.md")) == set()


def _code_of(page: str) -> list[tuple[str, str]]:
    """Language and text of each block, without comments."""
    found = blocks_of(ROOT / page)
    return [(block.language, re.sub(r"\s+#.*", "", block.text)) for block in found]


def test_the_chinese_readme_names_the_same_things() -> None:
    assert _named_in("README.zh-CN.md") == _named_in("README.md")


def _named_in(readme: str) -> list[set[str]]:
    """Commands, fields and files within sentences, and the pages to which links lead, of either language."""
    text = re.sub(r"```.*?```", "", (ROOT / readme).read_text(), flags=re.DOTALL)
    code = set(re.findall(r"`([^`]+)`", text))
    pages = set()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        page, _, _ = link.partition("#")
        pages.add(page.replace("docs/zh/", "docs/"))
    return [code, pages - {"README.md", "README.zh-CN.md"}]


@pytest.mark.parametrize("page", BESIDE_THE_DOCS, ids=attrgetter("name"))
def test_links_of_pages_beside_the_docs_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


FAMILIES = (
    "kruise_probe|workqueue|controller_runtime|rest_client|prober|leader_election|certwatcher"
)


def test_every_metric_that_is_named_exists_and_every_one_that_exists_is_explained() -> None:
    files = (ROOT / "kruise_probe").rglob("*.py")
    source = "\n".join(file.read_text() for file in files)
    exposed = {
        name.removesuffix("_total")
        for name in re.findall(rf"\"((?:{FAMILIES})_[a-z_]+)\"", source)
        if not name.startswith("kruise_probe_version")
    }

    def named_on(page: str) -> set[str]:
        text = (ROOT / "docs" / page).read_text()
        names = re.findall(rf"\b(?:{FAMILIES})_[a-z_]+", text)
        return {re.sub("_(total|bucket)$", "", name) for name in names}

    named = named_on("operating.md")
    assert named
    assert named <= exposed
    assert named_on("metrics.md") == exposed


def test_every_alert_has_a_part_of_the_page_of_alerts() -> None:
    page = (ROOT / "docs/alerts.md").read_text()
    parts = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    (group,) = ALERTS["groups"]
    assert parts == [rule["alert"] for rule in group["rules"]]
    for rule in group["rules"]:
        part = rule["alert"].lower()
        assert rule["annotations"]["runbook_url"].endswith(f"/alerts.md#{part}")


@NEEDS_PROMTOOL
async def test_the_alerts_fire_when_they_should(shell: RunScript, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(ALERTS))
    shutil.copy(ROOT / "test" / "data" / "alerts-test.yaml", tmp_path)
    ran = await shell("promtool check rules alerts.yaml && promtool test rules alerts-test.yaml")
    assert ran.code == 0, ran.out + ran.err
