"""Markers of other controllers: the API server stores them exactly as they were sent."""

from copy import deepcopy

from contract.contract_api import Api, Session, pod
from support.other_controllers import GAME, HASH, SANDBOX


def test_exec_probe_comes_back_exactly_as_it_was_sent(with_api: Session) -> None:
    """openkruise/agents encodes both specs and updates the marker as long as they differ."""

    async def create(api: Api) -> None:
        # Kubernetes deletes what an absent pod owns.
        owner = await api.create("pods", pod("box", node=""))
        sandbox = deepcopy(SANDBOX)
        sandbox["metadata"]["ownerReferences"][0]["uid"] = owner.meta["uid"]
        for marker in (GAME, sandbox):
            path = api.path("podprobemarkers", marker["metadata"]["name"])
            created = await api.create("podprobemarkers", marker)
            stored = (await api.get(path)).body

            assert stored["spec"] == marker["spec"]
            assert stored["metadata"]["ownerReferences"] == marker["metadata"]["ownerReferences"]

            again = await api.put(path, {**stored, "spec": marker["spec"]})
            assert again.code == 200, again
            assert again.meta["generation"] == created.meta["generation"] == 1

    with_api(create)


def test_new_hash_without_a_new_spec_is_no_new_generation(with_api: Session) -> None:
    """kruise-game writes hash and spec in one update, and then waits for status.observedGeneration."""

    async def edit(api: Api) -> None:
        path = api.path("podprobemarkers", "minecraft")
        await api.create("podprobemarkers", GAME)
        same = await api.merge(path, {"metadata": {"annotations": {HASH: "0"}}})
        probe = {
            **GAME["spec"]["probes"][0],
            "probe": {"exec": {"command": ["true"]}},
        }
        edited = await api.merge(path, {"spec": {"probes": [probe]}})

        assert same.meta["generation"] == 1
        assert edited.meta["generation"] == 2

    with_api(edit)
