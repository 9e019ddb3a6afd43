"""Random nodes, pods that run on them, and waiting pods that may run on one of them each, so that one answer is right.

No waiting pod is selected by another's rules, and none takes what another needs: the order of placement can't matter.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field, replace
from typing import Any

from shared.api.labels import HOSTNAME, ZONE

Json = dict[str, Any]
Rng = random.Random

NODES = tuple(f"n{i}" for i in range(1, 9))
ZONES = "abc"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_BOUND_PODS = 14
_PODS_EACH = 12
_NAMESPACES: dict[str, Json] = {"default": {}, "team-a": {"team": "a"}, "team-b": {"team": "b"}}


@dataclass(frozen=True)
class PlacementProblem:
    """Objects to create. Each of ``pods`` is tried on each of ``tried_on``, as a pod of its own."""

    nodes: tuple[Json, ...]
    bound: tuple[Json, ...]
    pods: tuple[Json, ...]
    tried_on: tuple[str, ...] = NODES
    volumes: tuple[Json, ...] = ()
    claims: tuple[Json, ...] = ()
    namespaces: tuple[Json, ...] = field(
        default_factory=lambda: tuple({"metadata": {"name": n, "labels": labels}} for n, labels in _NAMESPACES.items())
    )

    def waiting(self) -> list[Json]:
        """The pods to create: each of ``pods`` once for each node, restricted to it."""
        waiting = []
        for pod in self.pods:
            for node in self.tried_on:
                own = copy.deepcopy(pod)
                own["metadata"]["name"] += f"-on-{node}"
                own["spec"]["nodeSelector"] = {**own["spec"].get("nodeSelector", {}), HOSTNAME: node}
                waiting.append(own)
        return waiting

    def only(self, pod: str, node: str) -> PlacementProblem:
        """The problem with nothing but that pod on that node to decide."""
        return replace(self, pods=tuple(p for p in self.pods if p["metadata"]["name"] == pod), tried_on=(node,))


def random_problem(seed: int) -> PlacementProblem:
    """The problem of that seed."""
    rng = random.Random(seed)  # noqa: S311 - a problem of a test
    claims, volumes = _claims(rng)
    names = [claim["metadata"]["name"] for claim in claims]
    return PlacementProblem(
        nodes=tuple(_node(rng, name) for name in NODES),
        bound=tuple(_bound_pod(rng, f"bound-{index}") for index in range(_BOUND_PODS)),
        pods=tuple(_waiting_pod(rng, index, names) for index in range(_PODS_EACH)),
        volumes=volumes,
        claims=claims,
    )


def _node(rng: Rng, name: str) -> Json:
    labels = {HOSTNAME: name, ZONE: rng.choice(ZONES), "size": rng.choice(("1", "2", "10", "x", "03"))}
    if rng.random() < 0.15:
        del labels[ZONE]
    if rng.random() < 0.6:
        labels["disk"] = rng.choice(("ssd", "hdd", ""))
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    taints = [
        {
            "key": key,
            "effect": rng.choice(effects),
            **({"value": value} if (value := rng.choice(("x", "y", ""))) else {}),
        }
        for key in ("team", "gpu")
        if rng.random() < 0.3
    ]
    allocatable = {
        "cpu": rng.choice(("2", "3900m", "8")), "memory": rng.choice(("4Gi", "16Gi")),
        "pods": "500", "ephemeral-storage": "20Gi",
    }  # fmt: skip
    return {"name": name, "labels": labels, "taints": taints, "allocatable": allocatable}


def _labels(rng: Rng) -> Json:
    labels = {"app": rng.choice(("web", "db", "cache"))}
    return labels | ({"tier": rng.choice("xy")} if rng.random() < 0.5 else {})


def _container(requests: Json | None = None) -> Json:
    container: Json = {"name": "main", "image": "web:1"}
    if requests:
        container["resources"] = {"requests": requests}
    return container


def _requests(rng: Rng) -> Json:
    requests = {"cpu": rng.choice(("100m", "500m", "0.3"))}
    if rng.random() < 0.5:
        requests["memory"] = rng.choice(("64Mi", "1e8", "1G"))
    if rng.random() < 0.1:
        requests["ephemeral-storage"] = rng.choice(("1Gi", "30Gi"))
    return requests


def _bound_pod(rng: Rng, name: str) -> Json:
    spec: Json = {
        "nodeName": rng.choice(NODES),
        "containers": [_container(_requests(rng))],
        "tolerations": [{"operator": "Exists"}],
    }
    if rng.random() < 0.3:
        port = {"containerPort": 80, "hostPort": rng.choice((8000, 8001, 8002, 8003))}
        spec["containers"][0]["ports"] = [port | _port_details(rng)]
    if rng.random() < 0.15:
        # It keeps the waiting pods away from its node or zone.
        selector = rng.choice(({"matchLabels": {"waits": "yes"}}, {"matchLabels": {"waits": "yes", "odd": "1"}}))
        term: Json = {"topologyKey": rng.choice((HOSTNAME, ZONE)), "labelSelector": selector}
        if rng.random() < 0.4:
            term |= _namespaces(rng)
        spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [term]}}
    return {
        "metadata": {"name": name, "namespace": rng.choice(list(_NAMESPACES)), "labels": _labels(rng)},
        "spec": spec,
    }


def _port_details(rng: Rng) -> Json:
    return rng.choice(({}, {}, {"protocol": "UDP"}, {"hostIP": "127.0.0.1"}, {"hostIP": "0.0.0.0"}))  # noqa: S104


def _waiting_pod(rng: Rng, index: int, claims: list[str]) -> Json:
    spec: Json = {"containers": [_container()], "affinity": {}}
    if rng.random() < 0.75:
        spec["tolerations"] = [_toleration(rng) for _ in range(rng.choice((1, 2, 2)))]
    if rng.random() < 0.2:
        spec["nodeSelector"] = rng.choice(({"disk": "ssd"}, {"disk": ""}, {"size": "10"}))
    _add_affinity(rng, spec["affinity"])
    if rng.random() < 0.45:
        constraints = [_spread(rng) for _ in range(rng.choice((1, 1, 2)))]
        unlike = {(c["topologyKey"], c["whenUnsatisfiable"]): c for c in constraints}
        spec["topologySpreadConstraints"] = list(unlike.values())
    _add_sizes(rng, spec, index)
    if claims and rng.random() < 0.25:
        names = rng.sample(claims, rng.choice((1, 1, 2)))
        volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(names)]
        spec["volumes"] = volumes
    labels = {"waits": "yes", **({"odd": "1"} if rng.random() < 0.5 else {})}
    # Claims are in the default namespace.
    namespace = "default" if "volumes" in spec else rng.choice(list(_NAMESPACES))
    return {"metadata": {"name": f"pod-{index}", "namespace": namespace, "labels": labels}, "spec": spec}


def _add_affinity(rng: Rng, affinity: Json) -> None:
    if rng.random() < 0.4:
        terms = [_node_term(rng) for _ in range(rng.choice((1, 2, 2)))]
        affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
    if rng.random() < 0.2:
        affinity.setdefault("nodeAffinity", {})[_PREFERRED] = [{"weight": 50, "preference": _node_term(rng)}]
    for kind, share in (("podAffinity", 0.2), ("podAntiAffinity", 0.3)):
        if rng.random() < share:
            affinity[kind] = {_REQUIRED: [_near(rng) for _ in range(rng.choice((1, 1, 2)))]}
        if rng.random() < 0.15:
            affinity.setdefault(kind, {})[_PREFERRED] = [{"weight": 100, "podAffinityTerm": _near(rng)}]


def _add_sizes(rng: Rng, spec: Json, index: int) -> None:
    """Add what may not fit: requests that only fit or don't fit alone, and host ports that no other waiting pod has."""
    if rng.random() < 0.1:
        # All but the waiting pods are small, so that this never fits, whatever else has been placed.
        spec["containers"][0] |= {"resources": {"requests": {"cpu": "64"}}}
    elif rng.random() < 0.1:
        requests = rng.choice(({"memory": "1Ti"}, {"example.com/absent": "1"}, {"ephemeral-storage": "21Gi"}))
        limits = {name: amount for name, amount in requests.items() if "/" in name}
        spec["containers"][0] |= {"resources": {"requests": requests, "limits": limits}}
    if rng.random() < 0.3:
        port = {"containerPort": 80, "hostPort": 8000 + index}
        spec["containers"][0]["ports"] = [port | _port_details(rng)]


def _toleration(rng: Rng) -> Json:
    if rng.random() < 0.1:
        return {"operator": "Exists"}
    toleration: Json = {"key": rng.choice(("team", "gpu"))}
    toleration |= rng.choice(({"operator": "Exists"}, {"operator": "Equal", "value": rng.choice("xy")}, {}))
    return toleration | rng.choice(({"effect": "NoSchedule"}, {"effect": "NoExecute"}, {}, {}))


def _node_term(rng: Rng) -> Json:
    if rng.random() < 0.08:
        return {}  # matches nothing
    term: Json = {"matchExpressions": [_requirement(rng) for _ in range(rng.choice((1, 1, 2)))]}
    if rng.random() < 0.15:
        field_of_name = {"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": [rng.choice(NODES)]}
        term["matchFields"] = [field_of_name]
    return term


def _requirement(rng: Rng) -> Json:
    return rng.choice((
        {"key": "disk", "operator": rng.choice(("In", "NotIn")), "values": rng.choice((["ssd"], ["ssd", ""], ["hdd"]))},
        {"key": "disk", "operator": rng.choice(("Exists", "DoesNotExist"))},
        {"key": "size", "operator": rng.choice(("Gt", "Lt")), "values": [rng.choice(("2", "5", "1", "x", "02"))]},
        {"key": ZONE, "operator": rng.choice(("In", "NotIn")), "values": ["a", "b"]},
        {"key": "absent", "operator": rng.choice(("NotIn", "In")), "values": ["v"]},
    ))  # fmt: skip


def _selector(rng: Rng) -> Json:
    """A selector of running pods; waiting ones have none of its labels."""
    return rng.choice((
        {"matchLabels": {"app": rng.choice(("web", "db", "absent"))}},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "tier", "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}], "matchLabels": {"tier": "x"}},
    ))  # fmt: skip


def _namespaces(rng: Rng) -> Json:
    return rng.choice((
        {"namespaces": ["team-a", "default"]},
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchLabels": {"team": "a"}}},
        {"namespaceSelector": {"matchLabels": {"team": "b"}}, "namespaces": ["default"]},
    ))  # fmt: skip


def _near(rng: Rng) -> Json:
    term = {"topologyKey": rng.choice((HOSTNAME, ZONE, ZONE, "disk")), "labelSelector": _selector(rng)}
    return term | (_namespaces(rng) if rng.random() < 0.35 else {})


def _spread(rng: Rng) -> Json:
    action = rng.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))
    spread: Json = {
        "topologyKey": rng.choice((HOSTNAME, ZONE, ZONE, "disk")), "maxSkew": rng.choice((1, 1, 2)),
        "whenUnsatisfiable": action,
    }  # fmt: skip
    if rng.random() < 0.9:
        spread["labelSelector"] = _selector(rng)
    if rng.random() < 0.25 and action == "DoNotSchedule":
        spread["minDomains"] = rng.choice((2, 4))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.4:
            spread[policy] = rng.choice(("Honor", "Ignore"))
    return spread


def _claims(rng: Rng) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
    """Claims that are bound to volumes of a zone, of a node, or of anywhere."""
    claims, volumes = [], []
    for index in range(4):
        name = f"data-{index}"
        term = rng.choice((
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": rng.choice((["a"], ["b"], ["a", "c"]))}]},
            {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [rng.choice(NODES)]}]},
            None,
        ))  # fmt: skip
        spec: Json = {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
            "claimRef": {"namespace": "default", "name": name},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{index}"},
        }  # fmt: skip
        if term is not None:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        volumes.append({"metadata": {"name": f"volume-{index}"}, "spec": spec})
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
        }
        claims.append({
            "metadata": {"name": name, "namespace": "default"}, "spec": {**claim, "volumeName": f"volume-{index}"}
        })  # fmt: skip
    return tuple(claims), tuple(volumes)
