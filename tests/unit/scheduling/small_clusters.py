"""Builders of small clusters: pods, NodePools and instance types in a line each."""

from __future__ import annotations

from typing import Any

GI = 1 << 30


def instance_type(
    name: str, cpu: int, memory: int, price: float, zones: str = "abc", arch: str = "amd64"
) -> dict[str, Any]:
    return {
        "name": name,
        "arch": arch,
        "os": ["linux"],
        "capacity": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110"},
        "overhead": {"cpu": "100m", "memory": "256Mi"},
        "labels": {"karpenter.k8s.aws/instance-family": name.split(".", maxsplit=1)[0]},
        "offerings": [
            {"zone": f"z-{z}", "capacityType": kind, "price": round(price * factor * (1 + 0.01 * i), 6)}
            for i, z in enumerate(zones)
            for kind, factor in (("spot", 0.4), ("on-demand", 1.0))
        ],
    }


TYPES = [
    instance_type(f"{family}.{size}", cpu, cpu * ratio, cpu * per_cpu, arch=arch)
    for family, ratio, per_cpu, arch in (("c1", 2, 0.04, "amd64"), ("m1", 4, 0.05, "amd64"), ("g1", 4, 0.045, "arm64"))
    for size, cpu in (("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16))
]


def pool(name: str = "default", *, requirements: list[dict[str, Any]] | None = None, **spec: object) -> dict[str, Any]:
    template = {
        "metadata": {"labels": spec.pop("labels", {})},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": requirements or [],
            "taints": spec.pop("taints", []),
        },
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def pods(app: str, count: int, cpu: str = "500m", memory: str = "1Gi", **spec: object) -> list[dict[str, Any]]:
    container = {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{app}-{i:04d}", "namespace": "default", "labels": {"app": app}},
            "spec": {"containers": [container], **spec},
        }
        for i in range(count)
    ]


def node(name: str, cpu: int = 4, memory: int = 16, zone: str = "z-a", **more: object) -> dict[str, Any]:
    """A node of no pool, with these ``labels`` and ``taints``."""
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "karpenter.sh/capacity-type": "on-demand",
        "node.kubernetes.io/instance-type": "m1.xlarge",
    }
    extra = more.get("labels")
    size = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, **(extra if isinstance(extra, dict) else {})}},
        "spec": {"taints": more.get("taints", [])},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def document(*objects: dict[str, Any] | list[dict[str, Any]], **options: str) -> dict[str, Any]:
    flat: list[dict[str, Any]] = []
    for o in objects:
        flat += o if isinstance(o, list) else [o]
    return {"options": options, "objects": flat, "instanceTypes": TYPES}
