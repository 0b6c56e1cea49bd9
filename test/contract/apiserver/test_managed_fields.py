"""managedFields after creations, patches and replacements: what the manager learns from them must be so."""

from support.contract_api import Api, Json, managed, marker, pod

LABEL = "example.com/mark"
HEALTHY = "example.com/healthy"
HEALTHY_KEY = f'k:{{"type":"{HEALTHY}"}}'


def condition(kind: str = HEALTHY, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "lastProbeTime": "2026-01-02T03:04:05Z"}


async def test_the_creator_of_a_pod_manages_what_it_set_and_what_was_defaulted(api: Api) -> None:
    body = pod("p", labels={"app": "a"}, annotations={"x": "y"}, finalizers=["example.com/f"])
    body["spec"]["containers"][0] |= {
        "ports": [{"containerPort": 80, "name": "http"}],
        "env": [{"name": "A", "value": "b"}],
        "resources": {"requests": {"cpu": "1m"}},
        "command": ["x"],
    }
    body["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    body["spec"]["readinessGates"] = [{"conditionType": HEALTHY}]
    body["spec"]["nodeSelector"] = {"n": "o"}
    body["spec"]["imagePullSecrets"] = [{"name": "s"}]
    created = await api.create("pods", body, fieldManager="author")
    await api.merge(api.path("pods", "p"), {"metadata": {"finalizers": None}})
    assert managed(created.body) == {
        ("author", ""): {
            "f:metadata": {
                "f:annotations": {".": {}, "f:x": {}},
                "f:finalizers": {".": {}, 'v:"example.com/f"': {}},
                "f:labels": {".": {}, "f:app": {}},
            },
            "f:spec": {
                "f:automountServiceAccountToken": {},
                "f:containers": {
                    'k:{"name":"c"}': {
                        ".": {},
                        "f:command": {},
                        "f:env": {
                            ".": {},
                            'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}},
                        },
                        "f:image": {},
                        "f:imagePullPolicy": {},
                        "f:name": {},
                        "f:ports": {
                            ".": {},
                            'k:{"containerPort":80,"protocol":"TCP"}': {
                                ".": {},
                                "f:containerPort": {},
                                "f:name": {},
                                "f:protocol": {},
                            },
                        },
                        "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}}},
                        "f:terminationMessagePath": {},
                        "f:terminationMessagePolicy": {},
                    }
                },
                "f:dnsPolicy": {},
                "f:enableServiceLinks": {},
                "f:imagePullSecrets": {".": {}, 'k:{"name":"s"}': {}},
                "f:nodeName": {},
                "f:nodeSelector": {},
                "f:readinessGates": {},
                "f:restartPolicy": {},
                "f:schedulerName": {},
                "f:securityContext": {},
                "f:terminationGracePeriodSeconds": {},
                "f:volumes": {
                    ".": {},
                    'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}},
                },
            },
        }
    }


async def test_an_entry_says_who_how_and_when(api: Api) -> None:
    await api.create("pods", pod("p"))
    patch = {"status": {"conditions": [condition()]}}
    patched = await api.strategic(api.path("pods", "p") + "/status", patch, fieldManager="prober")
    entry = next(each for each in patched.meta["managedFields"] if each["manager"] == "prober")
    assert entry.keys() == {
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
        "subresource",
    }
    assert entry["operation"] == "Update"
    assert entry["apiVersion"] == "v1"
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["subresource"] == "status"


async def test_without_a_field_manager_the_user_agent_gives_the_name(api: Api) -> None:
    created = await api.create("pods", pod("p"))
    assert managed(created.body).keys() == {("contract", "")}


async def test_what_a_status_patch_writes_is_its_managers(api: Api) -> None:
    await api.create("pods", pod("p", labels={"app": "a"}), fieldManager="author")
    patch = {
        "metadata": {"labels": {LABEL: "1"}, "annotations": {LABEL: "2"}},
        "status": {"conditions": [condition()]},
    }
    patched = await api.strategic(api.path("pods", "p") + "/status", patch, fieldManager="prober")
    assert managed(patched.body)["prober", "status"] == {
        "f:metadata": {
            "f:annotations": {".": {}, f"f:{LABEL}": {}},
            "f:labels": {f"f:{LABEL}": {}},
        },
        "f:status": {
            "f:conditions": {
                ".": {},
                HEALTHY_KEY: {
                    ".": {},
                    "f:lastProbeTime": {},
                    "f:lastTransitionTime": {},
                    "f:status": {},
                    "f:type": {},
                },
            }
        },
    }


async def test_a_field_moves_to_who_changes_it(api: Api) -> None:
    await api.create("pods", pod("p", labels={"a": "1"}), fieldManager="author")
    path = api.path("pods", "p")
    await api.strategic(
        f"{path}/status", {"metadata": {"labels": {LABEL: "1"}}}, fieldManager="prober"
    )
    patched = await api.merge(path, {"metadata": {"labels": {LABEL: "2"}}}, fieldManager="user")
    after = managed(patched.body)
    assert ("prober", "status") not in after
    assert after["user", ""] == {"f:metadata": {"f:labels": {f"f:{LABEL}": {}}}}


async def test_a_field_stays_with_its_manager_when_another_writes_the_same_value(api: Api) -> None:
    await api.create("pods", pod("p"), fieldManager="author")
    path = api.path("pods", "p")
    patch = {"metadata": {"labels": {LABEL: "1"}}}
    await api.strategic(f"{path}/status", patch, fieldManager="prober")
    patched = await api.merge(path, patch, fieldManager="user")
    assert ("user", "") not in managed(patched.body)
    assert ("prober", "status") in managed(patched.body)


async def test_a_removed_field_has_no_manager(api: Api) -> None:
    await api.create("pods", pod("p", labels={"a": "1"}), fieldManager="author")
    path = api.path("pods", "p") + "/status"
    first = {
        "metadata": {"labels": {LABEL: "1"}},
        "status": {"conditions": [condition(), condition("example.com/other")]},
    }
    await api.strategic(path, first, fieldManager="prober")
    second = {
        "metadata": {"labels": {LABEL: None}},
        "status": {"conditions": [{"type": HEALTHY, "$patch": "delete"}]},
    }
    patched = await api.strategic(path, second, fieldManager="prober")
    fields = managed(patched.body)["prober", "status"]
    assert "f:metadata" not in fields
    assert fields["f:status"]["f:conditions"].keys() == {".", 'k:{"type":"example.com/other"}'}
    third = {"status": {"conditions": [{"type": "example.com/other", "$patch": "delete"}]}}
    patched = await api.strategic(path, third, fieldManager="somebody")
    assert managed(patched.body).keys() <= {("author", ""), ("prober", "status")}
    assert HEALTHY not in patched.text


async def test_a_changed_condition_changes_only_its_own_fields(api: Api) -> None:
    await api.create("pods", pod("p"), fieldManager="author")
    path = api.path("pods", "p") + "/status"
    await api.strategic(path, {"status": {"conditions": [condition()]}}, fieldManager="prober")
    patch = {"status": {"conditions": [{"type": HEALTHY, "status": "False"}]}}
    patched = await api.strategic(path, patch, fieldManager="kubelet")
    after = managed(patched.body)
    key = HEALTHY_KEY
    assert after["kubelet", "status"] == {"f:status": {"f:conditions": {key: {"f:status": {}}}}}
    assert after["prober", "status"]["f:status"]["f:conditions"][key].keys() == {
        ".",
        "f:lastProbeTime",
        "f:lastTransitionTime",
        "f:type",
    }


async def test_the_creator_of_a_marker_manages_its_spec(api: Api) -> None:
    created = await api.create("podprobemarkers", marker(), fieldManager="author")
    assert managed(created.body) == {
        ("author", ""): {"f:spec": {".": {}, "f:probes": {}, "f:selector": {}}}
    }


async def test_lists_without_keys_are_one_field(api: Api) -> None:
    await api.create("podprobemarkers", marker(), fieldManager="author")
    path = api.path("podprobemarkers", "m")
    probe = {**marker()["spec"]["probes"][0], "name": "renamed"}
    patched = await api.merge(path, {"spec": {"probes": [probe]}}, fieldManager="editor")
    after = managed(patched.body)
    assert after["author", ""] == {"f:spec": {".": {}, "f:selector": {}}}
    assert after["editor", ""] == {"f:spec": {"f:probes": {}}}


async def test_the_finalizer_of_a_marker_is_a_field_of_its_own(api: Api) -> None:
    await api.create("podprobemarkers", marker(), fieldManager="author")
    path = api.path("podprobemarkers", "m")
    patch = {"metadata": {"finalizers": ["kruise.io/node-pod-probe-cleanup"]}}
    patched = await api.merge(path, patch, fieldManager="controller")
    assert managed(patched.body)["controller", ""] == {
        "f:metadata": {"f:finalizers": {".": {}, 'v:"kruise.io/node-pod-probe-cleanup"': {}}}
    }
    await api.merge(path, {"metadata": {"finalizers": None}})


async def test_owner_references_are_keyed_by_uid(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "8f0a"}
    body = marker()
    namespace = (await api.get(api.path("namespaces", api.namespace))).meta
    owner = {**owner, "name": api.namespace, "uid": namespace["uid"]}
    body["metadata"]["ownerReferences"] = [owner]
    created = await api.create("podprobemarkers", body, fieldManager="author")
    assert managed(created.body)["author", ""]["f:metadata"] == {
        "f:ownerReferences": {".": {}, f'k:{{"uid":"{namespace["uid"]}"}}': {}}
    }


async def test_managed_fields_that_were_reset_stay_away(api: Api) -> None:
    await api.create("pods", pod("p", labels={"a": "b"}), fieldManager="author")
    path = api.path("pods", "p")
    reset = await api.merge(path, {"metadata": {"managedFields": [{}]}}, fieldManager="admin")
    assert "managedFields" not in reset.meta
    patched = await api.merge(path, {"metadata": {"labels": {"a": "c"}}}, fieldManager="user")
    assert "managedFields" not in patched.meta


async def test_an_empty_list_resets_the_managed_fields_of_built_in_kinds_only(api: Api) -> None:
    patch: Json = {"metadata": {"managedFields": []}}
    for resource, body, kept in (("pods", pod("m"), False), ("podprobemarkers", marker(), True)):
        await api.create(resource, body)
        patched = await api.merge(api.path(resource, "m"), patch)
        assert (patched.code, "managedFields" in patched.meta) == (200, kept)


async def test_managed_fields_cannot_be_set_through_status(api: Api) -> None:
    await api.create("pods", pod("p"), fieldManager="author")
    path = api.path("pods", "p") + "/status"
    patched = await api.strategic(path, {"metadata": {"managedFields": [{}]}}, fieldManager="x")
    assert managed(patched.body).keys() == {("author", "")}


async def test_a_replacement_without_managed_fields_keeps_them(api: Api) -> None:
    body = (await api.create("pods", pod("p"), fieldManager="author")).body
    del body["metadata"]["managedFields"]
    body["metadata"]["labels"] = {"a": "b"}
    replaced = await api.put(api.path("pods", "p"), body, fieldManager="user")
    assert managed(replaced.body).keys() == {("author", ""), ("user", "")}
    assert managed(replaced.body)["user", ""] == {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}


async def test_an_event_is_managed_without_the_fields_that_are_always_there(api: Api) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": api.namespace, "uid": "u"},
        "reason": "R",
        "message": "m",
        "type": "Normal",
        "count": 1,
        "source": {"component": "c", "host": "h"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }
    created = await api.create("events", event, fieldManager="author")
    assert managed(created.body) == {
        ("author", ""): {
            "f:count": {},
            "f:firstTimestamp": {},
            "f:involvedObject": {},
            "f:lastTimestamp": {},
            "f:message": {},
            "f:reason": {},
            "f:source": {"f:component": {}, "f:host": {}},
            "f:type": {},
        }
    }
    assert created.body["eventTime"] is None
    assert created.body["reportingComponent"] == ""


async def test_a_lease_is_managed_field_by_field(api: Api) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 5}}
    await api.create("leases", lease, fieldManager="a")
    patched = await api.merge(
        api.path("leases", "l"), {"spec": {"holderIdentity": "b"}}, fieldManager="b"
    )
    assert managed(patched.body) == {
        ("a", ""): {"f:spec": {"f:leaseDurationSeconds": {}}},
        ("b", ""): {"f:spec": {"f:holderIdentity": {}}},
    }


async def test_the_oldest_of_many_updaters_are_merged(api: Api) -> None:
    await api.create("pods", pod("p"), fieldManager="m00")
    for number in range(1, 13):
        patch = {"metadata": {"labels": {f"l{number}": "x"}}}
        await api.merge(api.path("pods", "p"), patch, fieldManager=f"m{number:02}")
    names = {manager for manager, _ in managed((await api.get(api.path("pods", "p"))).body)}
    assert len(names) == 10
    assert "ancient-changes" in names


async def test_a_status_of_a_wrong_type_is_dropped_with_the_managed_fields(api: Api) -> None:
    """The server compares the object as it was sent, and cannot."""
    body = {**marker(), "status": {"matchedPods": "x"}}
    body["metadata"]["managedFields"] = []
    created = await api.create("podprobemarkers", body)
    assert ("status" in created.body, "managedFields" in created.meta) == (False, False)
    path = api.path("podprobemarkers", "m")
    await api.delete(path)
    await api.create("podprobemarkers", marker())
    wrong = {"metadata": {"labels": {"a": "b"}}, "status": {"matchedPods": "x"}}
    patched = await api.merge(path, wrong)
    assert (patched.code, "managedFields" in patched.meta) == (200, False)
