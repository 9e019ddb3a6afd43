"""Random clusters with pending pods, as raw documents: for properties that hold for every decision."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.scenarios.workloads import (
    ANTI,
    ARCH,
    CAPACITY_TYPE,
    CPU,
    FAMILY,
    HOST,
    MOST_APPS,
    RULES,
    SPREAD,
    STORAGE,
    TEAM,
    ZONE,
    ZONES,
    affinity_rule,
    apps,
    expression,
    pods,
    terms,
)

Raw = dict[str, Any]


def _type(name: str, cpu: int, memory: int, price: float, arch: str, extra: Raw, zones: str = "abc") -> Raw:
    return {
        "name": name,
        "arch": arch,
        "os": ["linux"],
        "capacity": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "29", "ephemeral-storage": "20Gi", **extra},
        "overhead": {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "1Gi"},
        "labels": {FAMILY: name.split(".", maxsplit=1)[0], CPU: str(cpu)},
        "offerings": [
            {"zone": f"z-{z}", "capacityType": kind, "price": round(price * factor * (1 + 0.01 * i), 6)}
            for i, z in enumerate(zones)
            for kind, factor in (("spot", 0.4), ("on-demand", 1.0))
        ],
    }


TYPES = [
    _type(f"{family}.{size}", cpu, cpu * ratio, cpu * per_cpu, arch, {})
    for family, ratio, per_cpu, arch in (("c1", 2, 0.04, "amd64"), ("m1", 4, 0.05, "amd64"), ("g1", 4, 0.045, "arm64"))
    for size, cpu in (("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16))
] + [_type("p1.2xlarge", 8, 32, 1.2, "amd64", {"nvidia.com/gpu": "1"}, "ab")]

POOLS: tuple[Raw, ...] = (
    {},
    {"requirements": [expression(CAPACITY_TYPE, "In", "on-demand")]},
    {"requirements": [expression(ZONE, "In", "z-a", "z-b")]},
    {"requirements": [expression(ARCH, "In", "amd64"), expression(CPU, "Lt", "16")]},
    {"requirements": [expression(SPREAD, "In", "1", "2", "3")]},
    {"requirements": [expression(TEAM, "In", "red", "blue")], "labels": {"tier": "front"}},
    {"requirements": [{**expression(FAMILY, "Exists"), "minValues": 2}]},
    {"labels": {TEAM: "red"}, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
    {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]},
    {"startupTaints": [{"key": "boot", "effect": "NoSchedule"}]},
    {"limits": {"cpu": "20"}},
    {"limits": {"memory": "40Gi"}},
    {"limits": {"nodes": "2"}},
)


def pool(name: str, weight: int, shape: Raw) -> Raw:
    kept = {k: v for k, v in shape.items() if k in {"requirements", "taints", "startupTaints"}}
    spec: Raw = {
        "template": {
            "metadata": {"labels": shape.get("labels", {})},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, **kept},
        }
    }
    if weight:
        spec["weight"] = weight
    if "limits" in shape:
        spec["limits"] = shape["limits"]
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


DAEMONS: tuple[Raw, ...] = (
    {"requests": {"cpu": "100m", "memory": "64Mi"}},
    {"requests": {"cpu": "200m"}, "tolerations": [{"operator": "Exists"}]},
    {"requests": {"memory": "1Gi"}, "nodeSelector": {ARCH: "arm64"}},
    {"requests": {"cpu": "500m"}, **terms(expression(CAPACITY_TYPE, "In", "spot"))},
    {"requests": {"cpu": "1"}, **terms(expression(CPU, "Gt", "4"))},
    {"requests": {"cpu": "50m"}, "ports": [{"containerPort": 81, "hostPort": 81}]},
)


def _daemon(number: int, shape: Raw) -> Raw:
    spec = {k: v for k, v in shape.items() if k in {"tolerations", "nodeSelector", "affinity"}}
    spec["containers"] = [
        {"name": "agent", "resources": {"requests": shape["requests"]}, "ports": shape.get("ports", [])}
    ]
    labels = {"agent": str(number)}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": f"agent-{number}", "namespace": "kube-system", "uid": f"agent-{number}"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


@st.composite
def nodes(draw: st.DrawFn) -> list[Raw]:
    return [
        {
            "type": draw(st.integers(0, len(TYPES) - 2)),
            "zone": draw(st.sampled_from(ZONES)),
            "capacity": draw(st.sampled_from(("spot", "on-demand"))),
            "taint": draw(st.sampled_from(("", "", "NoSchedule", "PreferNoSchedule"))),
            "managed": draw(st.booleans()),
            "running": draw(st.lists(st.integers(0, MOST_APPS - 1), max_size=4)),
            "guard": draw(st.sampled_from((None, None, None, (0, ZONE), (1, HOST)))),
            "volumes": draw(st.sampled_from((None, None, 1, 2))),
        }
        for _ in range(draw(st.integers(0, 4)))
    ]


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    rules: tuple[str, ...] = tuple(RULES),
    pools: tuple[Raw, ...] = POOLS,
    weights: tuple[int, ...] = (0, 0, 10, 50),
    most_pods: int = 8,
) -> Raw:
    """A document for ``tenon simulate``."""
    drawn = draw(apps(rules, most_pods))
    shapes = draw(st.lists(st.sampled_from(pools), min_size=1, max_size=3))
    cluster_objects: list[Raw] = [pool(f"pool-{i}", draw(st.sampled_from(weights)), s) for i, s in enumerate(shapes)]
    cluster_objects += [_daemon(i, d) for i, d in enumerate(draw(st.lists(st.sampled_from(DAEMONS), max_size=2)))]
    cluster_objects += _nodes(draw(nodes()), shapes)
    missing = draw(st.sets(st.integers(0, len(TYPES) - 1), max_size=4))
    return document(cluster_objects, drawn, [t for i, t in enumerate(TYPES) if i not in missing])


def document(objects: list[Raw], drawn: list[Raw], types: list[Raw]) -> Raw:
    """The pods of apps and their claims, in addition to the other objects."""
    cluster_objects = list(objects)
    for app in drawn:
        cluster_objects += pods(app)
    cluster_objects += [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n, "labels": {"team": n}}}
        for n in ("default", "blue")
    ]
    cluster_objects += STORAGE
    return {"options": {}, "objects": cluster_objects, "instanceTypes": types}


def _nodes(drawn: list[Raw], shapes: list[Raw]) -> list[Raw]:
    node_objects: list[Raw] = []
    guarded: set[tuple[int, str, str]] = set()
    standing: set[tuple[int, str, str]] = set()
    for i, node in enumerate(drawn):
        name, kind = f"node-{i}", TYPES[node["type"]]
        labels = {
            **kind["labels"],
            ZONE: node["zone"],
            CAPACITY_TYPE: node["capacity"],
            ARCH: kind["arch"],
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": kind["name"],
            HOST: name,
        }
        if node["managed"]:
            labels |= {
                **shapes[0].get("labels", {}),
                "karpenter.sh/nodepool": "pool-0",
                "karpenter.sh/initialized": "true",
                "karpenter.sh/registered": "true",
            }
        size = {"cpu": kind["capacity"]["cpu"], "memory": kind["capacity"]["memory"]}
        size |= {"pods": "29", "ephemeral-storage": "20Gi"}
        spec: Raw = {"taints": [{"key": "k", "effect": node["taint"]}]} if node["taint"] else {}
        status = {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
        meta = {"name": name, "labels": labels}
        node_objects.append({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status})
        here = ((ZONE, node["zone"]), (HOST, name))
        for j, app in enumerate(node["running"]):
            if all((app, *d) not in guarded for d in here):
                standing |= {(app, *d) for d in here}
                node_objects.append(_running(f"run-{i}-{j}", name, {"app": f"app{app}", "version": "0"}, {}))
        if node["guard"] is not None:
            app, key = node["guard"]
            if (app, key, dict(here)[key]) not in standing:
                guarded.add((app, key, dict(here)[key]))
                node_objects.append(
                    _running(f"guard-{i}", name, {"guard": "yes"}, affinity_rule(ANTI, f"app{app}", key))
                )
        if node["volumes"] is not None:
            drivers = [{"name": "ebs.csi.aws.com", "nodeID": name, "allocatable": {"count": node["volumes"]}}]
            node_objects.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {"name": name},
                    "spec": {"drivers": drivers},
                }
            )
    return node_objects


def _running(name: str, node: str, labels: Raw, rules: Raw) -> Raw:
    container = {"name": "app", "resources": {"requests": {"cpu": "200m", "memory": "200Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"nodeName": node, "containers": [container], **rules},
        "status": {"phase": "Running"},
    }
