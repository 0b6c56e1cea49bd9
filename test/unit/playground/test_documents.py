"""Files of objects. How files, folders and YAML are read is tested with `lint`."""

from pathlib import Path

import pytest

from kruise_probe_playground.documents import BadFile, load

DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "file.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("a: [b\nc: d", "line 2, column 2: not valid YAML: ", id="no-yaml"),
        pytest.param("word", "document 1: is not an object", id="no-object"),
        pytest.param("metadata: {}", "has no apiVersion and no kind", id="nothing-said"),
        pytest.param("apiVersion: v1\nkind: Pod", "the Pod has no metadata.name", id="no-name"),
        pytest.param("# nothing", "contains no object", id="empty"),
        pytest.param("apiVersion: v1\nkind: List\nitems: 5", "items of the List is not a list", id="a-list-of-nothing"),
        pytest.param(f"{DEPLOYMENT}\nspec: {{template: {{metadata: web, spec: {{}}}}}}", "spec.template.metadata is not a mapping", id="no-metadata"),
        pytest.param(f"{DEPLOYMENT}\nspec: {{}}", "has no spec.template.spec", id="no-template"),
        pytest.param(f"{DEPLOYMENT}\nspec: {{replicas: 1000, template: {{spec: {{}}}}}}", "0 to 100", id="too-many-pods"),
    ],
)  # fmt: skip
def test_error_names_file_and_document(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadFile) as caught:
        load([file])
    assert str(caught.value).startswith(str(file))
    assert complaint in str(caught.value)


def test_deployment_becomes_a_replica_set(tmp_path: Path) -> None:
    selector, template = "{matchLabels: {app: web}}", "{metadata: {labels: {app: web}}, spec: {}}"
    spec = f"{{replicas: 2, selector: {selector}, template: {template}, strategy: {{}}}}"
    (found,) = load([written(tmp_path, f"{DEPLOYMENT}\nspec: {spec}")])
    assert (found.object["kind"], found.object["metadata"]["name"]) == ("ReplicaSet", "web")
    assert found.object["spec"].keys() == {"replicas", "selector", "template"}


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("apps/v1", "StatefulSet"),
        ("apps.kruise.io/v1alpha1", "CloneSet"),
        ("apps.kruise.io/v1beta1", "StatefulSet"),
        ("game.kruise.io/v1alpha1", "GameServerSet"),
        ("batch/v1", "Job"),
        ("argoproj.io/v1alpha1", "Rollout"),
    ],
)
def test_workload_becomes_its_pods(tmp_path: Path, version: str, kind: str) -> None:
    template = "{metadata: {labels: {app: web}}, spec: {containers: []}}"
    workload = DEPLOYMENT.replace("apps/v1", version).replace("Deployment", kind)
    file = written(tmp_path, f"{workload}\nspec: {{replicas: 2, template: {template}}}")
    pods = [each.object for each in load([file])]
    labels = {"namespace": "shop", "labels": {"app": "web"}}
    assert [each["metadata"] for each in pods] == [{"name": f"web-{n}", **labels} for n in (0, 1)]
    assert {(each["apiVersion"], each["kind"]) for each in pods} == {("v1", "Pod")}
    assert [each["spec"] for each in pods] == [{"containers": []}] * 2
