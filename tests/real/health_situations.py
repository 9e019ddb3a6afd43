"""Situations of node classes, NodePools, NodeClaims and CapacityBuffers: what is true in each, and what checkers say.

Whether a situation is as its name says is checked on EC2 and in the cluster, not by conditions.
"""

from __future__ import annotations

import contextlib
import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3

from local.kubernetes import kinds
from local.world import Options, World, sample_objects
from shared.api.labels import CAPACITY_TYPE, INSTANCE_TYPE
from shared.base.struct import Struct
from tests.e2e.world_state import running
from tests.real.health_checkers import Kubectl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.real.health_checkers import Watch

Json = dict[str, Any]
Ref = tuple[str, str, str]
"""apiVersion, kind and name."""

CLASS, POOL = ("karpenter.k8s.aws/v1", "EC2NodeClass"), ("karpenter.sh/v1", "NodePool")
CLAIM, BUFFER = ("karpenter.sh/v1", "NodeClaim"), ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
RESOURCES = {CLASS: "ec2nodeclasses", POOL: "nodepools", CLAIM: "nodeclaims", BUFFER: "capacitybuffers"}
TAINT = {"key": "example.com/agent", "effect": "NoSchedule"}
NO_CAPACITY = ("InsufficientInstanceCapacity", "We currently do not have sufficient capacity.")
REFUSED = ("UnauthorizedOperation", "You are not authorized to perform this operation.")
TYPES = {
    "web": "m5.large",
    "edited": "m5.large",
    "tainted": "m5a.large",
    "limited": "c5.large",
    "refused": "m5.xlarge",
    "full": "r5.large",
    "impossible": "x9.large",
}
"""The one instance type of each NodePool; "orphan" has that of "web"."""
REQUESTS = {"cpu": "900m"}
MINUTE = timedelta(minutes=1)


class Observation(Struct, kw_only=True):
    """An object in its situation, which ``is_true`` or isn't, with what kubectl says of it."""

    obj: Json
    is_true: bool
    waits: bool
    ready: str
    reasons: frozenset[str]


class Observer:
    """Asks kubectl about objects when they are in their situations; ``ready`` is what column READY should have then."""

    def __init__(
        self, world: World, kubectl: Kubectl, watches: Mapping[str, Watch], ready: Callable[[str], str]
    ) -> None:
        self.world = world
        self.observations: dict[str, Observation] = {}
        self._kubectl = kubectl
        self._watches = watches
        self._ready = ready

    def observe(
        self,
        situation: str,
        kind: tuple[str, str],
        name: str,
        *,
        is_true: bool,
        explained_by: tuple[str, str] = ("", ""),
    ) -> None:
        """Ask about an object; ``explained_by`` is the kind and name of the one with the events, if it is another."""
        namespace = "default" if kind == BUFFER else ""
        obj = copy.deepcopy(self.world.store.get(self.world.store.kind(*kind), name, namespace=namespace))
        resource, event_kind, event_name = RESOURCES[kind], *explained_by
        condition = "ReadyForProvisioning" if kind == BUFFER else "Ready"
        self.observations[situation] = Observation(
            obj=obj,
            is_true=is_true,
            waits=self._kubectl.waits_for(resource, name, condition),
            ready=self._watches[resource].ready(name, self._ready(situation)),
            reasons=frozenset(self._kubectl.event_reasons(event_kind or kind[1], event_name or name)),
        )


def observations(folder: Path, ready: Callable[[str], str]) -> dict[str, Observation]:
    """Each situation, by its name; ``ready`` is what column READY of ``kubectl get -w`` should have in it."""
    with World(cluster="demo", options=Options()) as world, contextlib.ExitStack() as stack:
        kubectl = Kubectl(world, folder)
        watches = {name: stack.enter_context(kubectl.watch(name)) for name in RESOURCES.values()}
        observer = Observer(world, kubectl, watches, ready)
        world.apply(_objects(world))
        _nodes_that_come(observer)
        _objects_at_rest(observer)
        _edits_and_deletions(observer)
        assert world.failures() == []
        return observer.observations


def _objects(world: World) -> list[Json]:
    never = {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}
    nowhere = sample_objects.node_class(world, subnetSelectorTerms=[{"tags": {"karpenter.sh/discovery": "nowhere"}}])
    nowhere["metadata"]["name"] = "nowhere"
    missing = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "missing"}}
    fields: dict[str, Json] = {"tainted": {"template": {"startupTaints": [TAINT]}}, "limited": {"limits": {"cpu": "2"}}}
    pools = [
        sample_objects.node_pool(_requirements(type_), name=name, disruption=never, **fields.get(name, {}))
        for name, type_ in TYPES.items()
    ]
    orphan = sample_objects.node_pool(_requirements("m5.large"), name="orphan", disruption=never, template=missing)
    pods = [
        sample_objects.deployment(name, count, REQUESTS, nodeSelector={"karpenter.sh/nodepool": name})
        for name, count in {"web": 1, "tainted": 1, "limited": 3, "refused": 1, "full": 1}.items()
    ]
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "warm", "namespace": "default"},
        "template": sample_objects.deployment("warm", 1, {"cpu": "100m"})["spec"]["template"],
    }
    buffers = [_buffer("warm", "warm"), _buffer("without-template", "missing")]
    _fail(world, "refused", REFUSED)
    _fail(world, "full", NO_CAPACITY)
    class_ = sample_objects.node_class(world)
    return [class_, nowhere, *pools, orphan, sample_objects.budget("web", 0), *pods, template, *buffers]


def _requirements(instance_type: str) -> dict[str, list[str]]:
    return {CAPACITY_TYPE: ["on-demand"], INSTANCE_TYPE: [instance_type]}


def _buffer(name: str, template: str) -> Json:
    return {
        "apiVersion": BUFFER[0],
        "kind": BUFFER[1],
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"podTemplateRef": {"name": template}, "replicas": 1},
    }


def _fail(world: World, pool: str, error: tuple[str, str]) -> None:
    world.aws.capacity.fail("on-demand", TYPES[pool], "*", error)


def _nodes_that_come(observer: Observer) -> None:
    """A NodeClaim from its launch on, until all pods run that can."""
    world = observer.world
    world.run_until(lambda: any(c.get("status") for c in _claims(world, "web")), limit=2 * MINUTE)
    (claim,) = _claims(world, "web")
    observer.observe(
        "NodeClaim, its instance boots",
        CLAIM,
        _name(claim),
        is_true=_has_instance(world, claim) and not world.nodes("web"),
    )
    world.run_until(lambda: bool(running(world, "web")), limit=5 * MINUTE)
    world.run_for(4 * MINUTE)


def _objects_at_rest(observer: Observer) -> None:
    world, observe = observer.world, observer.observe
    ec2 = boto3.client("ec2", region_name=world.region)

    def subnets(tag: str) -> list[Any]:
        matches: list[Any] = ec2.describe_subnets(Filters=[{"Name": "tag:karpenter.sh/discovery", "Values": [tag]}])[
            "Subnets"
        ]
        return matches

    offers = ec2.describe_instance_type_offerings(Filters=[{"Name": "instance-type", "Values": [TYPES["impossible"]]}])
    observe("EC2NodeClass, all that it selects is there", CLASS, "default", is_true=bool(subnets("demo")))
    observe("EC2NodeClass, no subnet has its tags", CLASS, "nowhere", is_true=not subnets("nowhere"))
    observe("NodePool, it launches nodes", POOL, "web", is_true=bool(world.nodes("web")))
    is_missing = world.store.find(world.store.kind(*CLASS), "missing") is None
    observe("NodePool, its class doesn't exist", POOL, "orphan", is_true=is_missing)
    observe("NodePool, no such instance type exists", POOL, "impossible", is_true=not offers["InstanceTypeOfferings"])
    for situation, name, nodes in (
        ("NodePool, its limits are reached", "limited", 1),
        ("NodePool, EC2 has no capacity", "full", 0),
    ):
        (pod,) = [p for p in world.pending() if p["metadata"]["labels"]["app"] == name]
        is_true = [i.instance_type for i in world.instances()].count(TYPES[name]) == nodes
        observe(situation, POOL, name, is_true=is_true, explained_by=("Pod", _name(pod)))
    _claims_at_rest(observer)
    fits = bool(running(world, "web"))
    observe("CapacityBuffer, its chunk fits on a node", BUFFER, "warm", is_true=fits)
    no_template = world.store.find(kinds.POD_TEMPLATES, "missing", namespace="default") is None
    observe("CapacityBuffer, its template doesn't exist", BUFFER, "without-template", is_true=no_template)


def _claims_at_rest(observer: Observer) -> None:
    world = observer.world
    (ready,), (node,) = _claims(world, "web"), world.nodes("web")
    observer.observe("NodeClaim, pods run on its node", CLAIM, _name(ready), is_true=bool(world.pods(node=_name(node))))
    (tainted,), (node,) = _claims(world, "tainted"), world.nodes("tainted")
    has_taint = TAINT["key"] in {taint["key"] for taint in node["spec"]["taints"]}
    observer.observe("NodeClaim, a startup taint is left on its node", CLAIM, _name(tainted), is_true=has_taint)
    (refused,) = _claims(world, "refused")
    is_refused = not _has_instance(world, refused)
    observer.observe("NodeClaim, its launch isn't permitted", CLAIM, _name(refused), is_true=is_refused)


def _edits_and_deletions(observer: Observer) -> None:
    world = observer.world
    pool = copy.deepcopy(world.store.get(world.store.kind(*POOL), "web"))
    pool["spec"]["template"].setdefault("metadata", {})["labels"] = {"team": "new"}
    edited = copy.deepcopy(world.store.get(world.store.kind(*POOL), "edited"))
    edited["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "missing"
    world.apply([_manifest(pool), _manifest(edited)])
    is_missing = world.store.find(world.store.kind(*CLASS), "missing") is None
    observer.observe("NodePool, just edited to a class that doesn't exist", POOL, "edited", is_true=is_missing)
    world.run_for(MINUTE)
    observer.observe("NodePool, the same a minute later", POOL, "edited", is_true=is_missing)

    (claim,), (node,) = _claims(world, "web"), world.nodes("web")
    drifted = ("Drifted", "True") in {(c["type"], c["status"]) for c in claim["status"]["conditions"]}
    is_old = drifted and "team" not in node["metadata"]["labels"] and bool(running(world, "web"))
    observer.observe("NodeClaim, drifted", CLAIM, _name(claim), is_true=is_old)
    world.store.delete(world.store.kind(*CLAIM), _name(claim))
    world.run_for(MINUTE)
    drains = bool(running(world, "web")) and node["spec"].get("unschedulable", True)
    explained_by = ("Node", _name(node))
    observer.observe(
        "NodeClaim, deleted, and a budget holds its pod", CLAIM, _name(claim), is_true=drains, explained_by=explained_by
    )

    world.apply(_standalone_claim())
    (alone,) = [c for c in world.claims() if _name(c) == "alone"]
    observer.observe("NodeClaim, just created", CLAIM, "alone", is_true=not _has_instance(world, alone))


def _standalone_claim() -> Json:
    terms = [{"key": key, "operator": "In", "values": values} for key, values in _requirements("c5.xlarge").items()]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": CLAIM[0],
        "kind": CLAIM[1],
        "metadata": {"name": "alone"},
        "spec": {"nodeClassRef": reference, "requirements": terms},
    }


def _manifest(obj: Json) -> Json:
    """The object as its owner has it in a file."""
    metadata = {key: obj["metadata"][key] for key in ("name", "annotations") if key in obj["metadata"]}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, "spec": obj["spec"]}


def _claims(world: World, pool: str) -> list[Json]:
    return [c for c in world.claims() if c["metadata"]["labels"].get("karpenter.sh/nodepool") == pool]


def _has_instance(world: World, claim: Json) -> bool:
    """Whether EC2 has an instance of the NodeClaim's instance type, which no other NodeClaim has."""
    (types,) = [r["values"] for r in claim["spec"]["requirements"] if r["key"] == INSTANCE_TYPE]
    return any(instance.instance_type in types for instance in world.instances())


def _name(obj: Json) -> str:
    name: str = obj["metadata"]["name"]
    return name
