import msgspec
import pytest

from kruise_probe.api.resources import NODE_POD_PROBES


def node_pod_probe(*entries: dict[str, object]) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "node-1"}, "spec": {"podProbes": entries}})


def entry(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "namespace": "default", "uid": name, "IP": "10.0.0.1", **more}


def probe(name: str) -> dict[str, object]:
    return {"name": name, "containerName": "main", "probe": {"exec": {"command": ["true"]}}}


def test_equal_probes_are_shared() -> None:
    asked = [probe("game#idle"), probe("game#healthy")]

    found = NODE_POD_PROBES.decode(
        node_pod_probe(
            entry("web-0", probes=asked),
            entry("web-1", probes=asked),
            entry("web-2", probes=asked[:1]),
        )
    )

    first, second, third = found.spec.pod_probes or ()
    assert first.probes is second.probes
    assert [each.name for each in first.probes or ()] == ["game#idle", "game#healthy"]
    assert [each.name for each in third.probes or ()] == ["game#idle"]


@pytest.mark.parametrize("more", [{}, {"probes": None}])
def test_absent_probes_decode_as_none(more: dict[str, object]) -> None:
    found = NODE_POD_PROBES.decode(node_pod_probe(entry("web-0", **more)))

    assert [each.probes for each in found.spec.pod_probes or ()] == [None]


def test_nodepodprobe_round_trips() -> None:
    data = node_pod_probe(entry("web-0", probes=[probe("game#idle")]))

    spec = NODE_POD_PROBES.decode(data).spec

    assert msgspec.json.decode(msgspec.json.encode(spec)) == msgspec.json.decode(data)["spec"]


def test_invalid_probe_makes_only_its_object_undecodable() -> None:
    bad = {
        "metadata": {"name": "bad"},
        "spec": {"podProbes": [entry("web-0", probes=[{"name": 1}])]},
    }
    good = {"metadata": {"name": "good"}}

    page = NODE_POD_PROBES.decode_list(msgspec.json.encode({"items": [bad, good]}))

    assert [each.key.name for each in page.items] == ["good"]
    assert [each.key.name for each in page.undecodable] == ["bad"]
