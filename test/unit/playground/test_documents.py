"""Files of objects. How files, folders and YAML are read is tested with `lint`."""

from pathlib import Path

import pytest
from support.cases import cases
from support.wire import Json

from kruise_probe_playground.documents import BadFile, load

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


@cases(
    "text complaint",
    no_yaml=("a: [b\nc: d", "line 2, column 2: not valid YAML: "),
    no_object=("word", "document 1: is not an object"),
    nothing_said=("metadata: {}", "has no apiVersion and no kind"),
    no_name=("apiVersion: v1\nkind: Pod", "the Pod has no metadata.name"),
    empty=("# nothing", "contains no object"),
    a_list_of_nothing=(
        "apiVersion: v1\nkind: List\nitems: 5",
        "items of the List is not a list",
    ),
    no_metadata=(
        DEPLOYMENT + "spec: {template: {metadata: web, spec: {}}}",
        "spec.template.metadata is not a mapping",
    ),
    no_template=(DEPLOYMENT + "spec: {}", "has no spec.template.spec"),
    too_many_pods=(DEPLOYMENT + "spec: {replicas: 1000, template: {spec: {}}}", "0 to 100"),
)
def test_error_names_file_and_document(file: Path, text: str, complaint: str) -> None:
    file.write_text(text)
    with pytest.raises(BadFile) as caught:
        load([file])
    message = str(caught.value)
    assert message.startswith(str(file))
    assert complaint in message


def test_deployment_becomes_a_replica_set(file: Path) -> None:
    spec = """
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {}}
  strategy: {}
"""
    file.write_text(DEPLOYMENT + spec)

    (found,) = load([file])

    assert found.object["kind"] == "ReplicaSet"
    assert found.object["metadata"]["name"] == "web"
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
def test_workload_becomes_its_pods(file: Path, version: str, kind: str) -> None:
    template = "{metadata: {labels: {app: web}}, spec: {containers: []}}"
    workload = DEPLOYMENT.replace("apps/v1", version).replace("Deployment", kind)
    file.write_text(f"{workload}spec: {{replicas: 2, template: {template}}}")

    first, second = load([file])

    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": []},
    }
    assert first.object == pod
    pod["metadata"]["name"] = "web-1"
    assert second.object == pod
