"""The pytest plugin as its users have it: their files in a folder of their own, and a pytest that found it by its entry point."""

from pathlib import Path

import pytest
from support.kit_pages import write_tests

from kruise_probe_playground.testing.definitions import definition_of, read_definitions

FLEET = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.example.com}
spec:
  group: example.com
  names: {plural: fleets, kind: Fleet}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, default: 3}}}
          status: {type: object, properties: {ready: {type: integer}}}
"""

HEAD = """
import asyncio, threading
from pathlib import Path

import kubernetes
import msgspec
import pytest
from kubernetes.client import ApiException

CRD = Path(__file__).parent / "fleet.yaml"


def fleet(name="a", **spec):
    return {"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": name}, "spec": spec}


class Spec(msgspec.Struct):
    size: int = 3


class Status(msgspec.Struct):
    ready: int | None = None


class Fleet(msgspec.Struct):
    group = "example.com"
    spec: Spec
    status: Status | None = None


@pytest.fixture
def client(kubeconfig):
    with kubernetes.config.new_client_from_config(str(kubeconfig)) as made:
        yield made


@pytest.fixture
def fleets(client, kube_api):
    kube_api.define(CRD)
    return kubernetes.client.CustomObjectsApi(client)


@pytest.fixture
def core(client):
    return kubernetes.client.CoreV1Api(client)
"""

OTHER_PLUGINS = [
    f"-pno:{each}" for each in ("cacheprovider", "looptime_plugin", "asyncio", "xdist")
]

CASES = {
    "a-kind-from-yaml": """
def test_it(fleets, kube_api):
    made = fleets.create_namespaced_custom_object("example.com", "v1", "default", "fleets", fleet())
    assert made["spec"] == {"size": 3}
    assert kube_api.object("fleets.example.com", "a") == made
    assert kube_api.objects("fleets.example.com", "other") == []
    assert kube_api.requests["create", "fleets", 201] == 1
""",
    "a-kind-from-a-struct-for-all-tests": """
@pytest.fixture
def kube_crds():
    return [Fleet]

def test_it(kube_api):
    assert kube_api.create(fleet())["spec"] == {"size": 3}
    with pytest.raises(Exception, match="spec.size"):
        kube_api.create(fleet("b", size="many"))
""",
    "the-kubeconfig-is-private-and-needed": """
import ssl, urllib.error, urllib.request

def test_it(kube_api, kubeconfig):
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    context = ssl._create_unverified_context()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{kube_api.url}/api/v1/pods", context=context)
""",
    "each-test-has-a-new-server": """
def test_one(kube_api):
    kube_api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})

def test_two(kube_api):
    assert kube_api.objects("configmaps") == []
""",
    "fail": """
def test_it(core, kube_api):
    kube_api.fail("list", "pods", times=2, code=429, reason="TooManyRequests")
    for _ in range(2):
        with pytest.raises(ApiException) as refused:
            core.list_namespaced_pod("default")
        assert refused.value.status == 429
    assert core.list_namespaced_pod("default").items == []
    kube_api.fail(times=None)
    with pytest.raises(ApiException):
        core.list_node()
    kube_api.heal()
    assert core.list_node().items == []
""",
    "expire": """
def test_it(core, kube_api):
    version = core.list_namespaced_pod("default").metadata.resource_version
    kube_api.expire()
    watch = kubernetes.watch.Watch()
    with pytest.raises(ApiException) as gone:
        for _ in watch.stream(core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=5):
            pass
    assert gone.value.status == 410
""",
    "drop_watches": """
def test_it(core, kube_api):
    seen = []
    def watch():
        for event in kubernetes.watch.Watch().stream(core.list_namespaced_config_map, "default", timeout_seconds=60):
            seen.append(event["object"].metadata.name)
            break
        response = core.list_namespaced_config_map("default", watch=True, _preload_content=False)
        watching.set()
        response.read()
    watching = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    kube_api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert watching.wait(60)
    kube_api.drop_watches()
    thread.join(60)
    assert seen == ["a"] and not thread.is_alive()
""",
    "black_hole": """
def test_it(core, kube_api):
    response = core.list_namespaced_config_map("default", watch=True, _preload_content=False)
    kube_api.black_hole()
    kube_api.fail(times=None)
    with pytest.raises(Exception, match="timed out"):
        core.list_node(_request_timeout=0.2)
    kube_api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    response.connection.sock.settimeout(0.2)
    with pytest.raises(Exception, match="timed out"):
        response.read(1)
    kube_api.heal()
    assert core.list_node().items == []

def test_the_server_ends_in_a_black_hole(core, kube_api):
    kube_api.black_hole()
    with pytest.raises(Exception, match="timed out"):
        core.list_node(_request_timeout=0.2)
""",
    "waiting": """
def test_for_a_change(fleets, kube_api):
    timer = threading.Timer(0.05, lambda: kube_api.create(fleet()))
    timer.start()
    assert kube_api.wait_for("fleets.example.com", "a", bool)["spec"]["size"] == 3
    with pytest.raises(TimeoutError, match='fleets.example.com default/a: the condition is not met after 0.01 s: {'):
        kube_api.wait_for("fleets.example.com", "a", lambda it: it is None, seconds=0.01)
    timer.join()

def test_in_an_asynchronous_test(kube_api):
    async def test():
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(kube_api.until("configmaps", "a", bool))
            await asyncio.sleep(0)
            kube_api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        assert waiting.result()["metadata"]["name"] == "a"
    asyncio.run(test())
""",
}


def test_users_of_the_plugin_can_rely_on_it(pytester: pytest.Pytester) -> None:
    (pytester.path / "fleet.yaml").write_text(FLEET)
    pytester.makeini("[pytest]\nfilterwarnings = error")
    for case, text in CASES.items():
        pytester.makepyfile(**{f"test_{case.replace('-', '_')}": HEAD + text})
    ran = pytester.runpytest_subprocess(*OTHER_PLUGINS)
    ran.assert_outcomes(passed=sum(text.count("\ndef test_") for text in CASES.values()))


def test_the_tests_of_the_documentation_pass(pytester: pytest.Pytester) -> None:
    count = write_tests(pytester.path)
    plugins = [each for each in OTHER_PLUGINS if not each.endswith(":asyncio")]
    pytester.runpytest_subprocess(*plugins).assert_outcomes(passed=count)


def test_the_plugin_imports_no_server_before_it_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_it():\n    assert not {'aiohttp', 'kruise_probe'} & set(sys.modules)"
    )
    pytester.runpytest_subprocess(*OTHER_PLUGINS).assert_outcomes(passed=1)


def test_a_file_without_definitions_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap")
    with pytest.raises(ValueError, match=r"x\.yaml: contains no CustomResourceDefinition"):
        list(read_definitions(file))


def test_a_struct_without_a_group_is_an_error() -> None:
    namespace: dict[str, object] = {}
    exec("import msgspec\nclass Fleet(msgspec.Struct): pass", namespace)
    with pytest.raises(ValueError, match="Fleet has no group"):
        definition_of(namespace["Fleet"])  # type: ignore[arg-type]
