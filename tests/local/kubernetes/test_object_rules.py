"""What a real server refuses of built-in kinds, and what it doesn't. tests/real/differential compares both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from local.kubernetes.registry.store import Store

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def causes(store: Store, kind: kinds.Kind, body: dict[str, Any]) -> list[str]:
    """The fields and reasons of the errors; empty if the object is accepted."""
    try:
        store.create(kind, {"metadata": {"name": "x"}, **body}, dry_run=True)
    except ApiError as error:
        return sorted(f"{cause['field']}: {cause['reason'][10:]}" for cause in error.details["causes"])
    return []


def node_term(**requirement: object) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}}}


def spread(**constraint: object) -> dict[str, Any]:
    whole = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **constraint}
    return {"topologySpreadConstraints": [whole]}


def near(**term: object) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", **term}]}}}


def claim_of(storage: str) -> dict[str, Any]:
    return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}}


def resources(**own: dict[str, str]) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "web:1", "resources": own}]}


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        # accepted, though odd
        (node_term(key="size", operator="Gt", values=["many"]), []),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}, []),
        (spread(), []),
        (spread(topologyKey="not a label"), []),
        ({"tolerations": [{"operator": "Exists"}]}, []),
        ({"terminationGracePeriodSeconds": -1}, []),
        (resources(requests={"cpu": "0"}), []),
        # refused
        ({"tolerations": [{}]}, ["spec.tolerations[0].operator: Invalid"]),
        ({"tolerations": [{"key": "a", "operator": "Gt"}]}, ["spec.tolerations[0].operator: NotSupported"]),
        ({"tolerations": [{"key": "a", "tolerationSeconds": 1}]}, ["spec.tolerations[0].effect: Invalid"]),
        ({"nodeSelector": {"a b": "c", "d": "-"}}, ["spec.nodeSelector: Invalid", "spec.nodeSelector: Invalid"]),
        (spread(minDomains=0), ["spec.topologySpreadConstraints[0].minDomains: Invalid"]),
        (spread(matchLabelKeys=["app"]), ["spec.topologySpreadConstraints[0].matchLabelKeys: Forbidden"]),
        (near(topologyKey=""), [
            f"spec.affinity.podAffinity.{REQUIRED}[0].topologyKey: Invalid",
            f"spec.affinity.podAffinity.{REQUIRED}[0].topologyKey: Required",
        ]),
        (near(namespaces=["Team"]), [f"spec.affinity.podAffinity.{REQUIRED}[0].namespace: Invalid"]),
        (resources(requests={"nvidia.com/gpu": "1"}), ["spec.containers[0].resources.limits: Required"]),
        (resources(limits={"nvidia.com/gpu": "1.5"}), [
            "spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid",
            "spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid",
        ]),
        (resources(requests={"gpu": "1"}), [
            "spec.containers[0].resources.requests[gpu]: Invalid",
            "spec.containers[0].resources.requests[gpu]: Invalid",
        ]),
        (resources(requests={"cpu": "2"}, limits={"cpu": "1"}), ["spec.containers[0].resources.requests: Invalid"]),
        ({"containers": [{"name": "a", "image": "i"}] * 2}, ["spec.containers[1].name: Duplicate"]),
        ({"schedulingGates": [{"name": "a"}], "nodeName": "n"}, ["spec.nodeName: Forbidden"]),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": ""}}]}, [
            "spec.volumes[0].persistentVolumeClaim.claimName: Required"
        ]),
    ],
)  # fmt: skip
def test_pods(store: Store, spec: dict[str, Any], errors: list[str]) -> None:
    assert causes(store, kinds.PODS, {"spec": {"containers": [{"name": "main", "image": "web:1"}], **spec}}) == errors


@pytest.mark.parametrize(
    ("kind", "body", "errors"),
    [
        (kinds.NODES, {"spec": {"taints": [{"key": "a"}]}}, ["metadata.taints[0].effect: Required"]),
        (kinds.POD_DISRUPTION_BUDGETS, {"spec": {}}, []),
        (kinds.POD_DISRUPTION_BUDGETS, {"spec": {"maxUnavailable": "101%"}}, ["spec.maxUnavailable: Invalid"]),
        (kinds.POD_DISRUPTION_BUDGETS, {"spec": {"minAvailable": "5"}}, ["spec.minAvailable: Invalid"]),
        (kinds.PERSISTENT_VOLUME_CLAIMS, {"spec": {}}, [
            "spec.accessModes: Required", "spec.resources[storage]: Required",
        ]),
        (kinds.PERSISTENT_VOLUME_CLAIMS, claim_of("1"), []),
        (kinds.PERSISTENT_VOLUME_CLAIMS, claim_of("0"), ["spec.resources[storage]: Invalid"]),
        (kinds.STORAGE_CLASSES, {}, ["provisioner: Required"]),
        (kinds.PRIORITY_CLASSES, {"value": 2_000_000_000}, ["value: Forbidden"]),
        (kinds.RUNTIME_CLASSES, {"handler": "Not Lower"}, ["handler: Invalid"]),
        (kinds.CSI_NODES, {"spec": {"drivers": [{"name": "ebs.csi.aws.com"}]}}, ["spec.drivers[0].nodeID: Required"]),
        (kinds.DEPLOYMENTS, {"spec": {"selector": {}, "template": {"spec": {}}}}, [
            "spec.selector: Invalid", "spec.template.spec.containers: Required",
        ]),
    ],
)  # fmt: skip
def test_other_kinds(store: Store, kind: kinds.Kind, body: dict[str, Any], errors: list[str]) -> None:
    assert causes(store, kind, body) == errors


def test_a_job_with_a_selector_of_its_own_and_no_labels_is_accepted(store: Store) -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "web:1"}], "restartPolicy": "Never"}}
    spec = {"manualSelector": True, "selector": {}, "template": template}

    created = store.create(kinds.JOBS, {"metadata": {"name": "x"}, "spec": spec})

    assert "labels" not in created["metadata"]


def test_a_resize_is_refused_for_its_metadata_too(store: Store) -> None:
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    store.create(kinds.PODS, pod)

    labels = {"metadata": {"labels": {"a b": "c"}}}
    with pytest.raises(ApiError) as error:
        store.patch(kinds.PODS, "x", labels, namespace="default", subresource="resize", patch_type="merge")

    assert error.value.details["causes"][0]["field"] == "metadata.labels"
