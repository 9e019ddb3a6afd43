"""NodePools, NodeClaims and NodeOverlays that API servers admit or refuse by the definitions' rules, as Karpenter's do.

The embedded API server and a real one are asked the same. Names say which rule a refused object breaks.
"""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]
TYPE = "node.kubernetes.io/instance-type"


def pool(*requirements: Raw, labels: Raw | None = None, **spec: Any) -> Raw:
    """A NodePool with these requirements, labels of its nodes and other fields of its spec."""
    template = {
        "metadata": {"labels": labels or {}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": list(requirements),
        },
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "case"},
        "spec": {"template": template, **spec},
    }


def claim(*requirements: Raw) -> Raw:
    """A NodeClaim with these requirements."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "case"},
        "spec": pool(*requirements)["spec"]["template"]["spec"],
    }


def overlay(*requirements: Raw, **spec: Any) -> Raw:
    """A NodeOverlay with these requirements and other fields of its spec."""
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "case"},
        "spec": {"requirements": list(requirements), **spec},
    }


def required(key: str, operator: str, *values: str, least: int | None = None) -> Raw:
    """A requirement, with ``least`` as its minValues."""
    requirement: Raw = {"key": key, "operator": operator, "values": list(values)}
    return requirement if least is None else {**requirement, "minValues": least}


_BAD_KEYS = (
    "karpenter.sh/custom",
    "sub.karpenter.sh/custom",
    "karpenter.k8s.aws/custom",
    "karpenter.k8s.aws/instance-pods",
    "kubernetes.io/hostname",
)
_GOOD_KEYS = (
    "karpenter.sh/capacity-type",
    "karpenter.sh/capacity-spread",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/placement-group-id",
    "node-restriction.kubernetes.io/custom",
    "sub.node-restriction.kubernetes.io/custom",
    "example.com/karpenter.sh",
    "team",
    TYPE,
)
_BAD_REQUIREMENTS = {
    "In without values": required(TYPE, "In"),
    "In without the field values": {"key": TYPE, "operator": "In"},
    **{f"{operator} with two values": required("example.com/n", operator, "1", "2") for operator in ("Gt", "Lt")},
    **{f"{operator} with two values": required("example.com/n", operator, "1", "2") for operator in ("Gte", "Lte")},
    "Gt without a value": required("example.com/n", "Gt"),
    "Lt with a word": required("example.com/n", "Lt", "many"),
    "Gte with a fraction": required("example.com/n", "Gte", "1.5"),
    "minValues above the values": required(TYPE, "In", "a", "b", least=3),
    "minValues 0": required(TYPE, "In", "a", least=0),
    "minValues 51": required(TYPE, "Exists", least=51),
    "an unknown operator": required(TYPE, "Within", "a"),
    "a key that is none": required("no key", "Exists"),
    "a value that is none": required(TYPE, "In", "???"),
}
_GOOD_REQUIREMENTS = {
    "NotIn without values": required(TYPE, "NotIn"),
    "Exists with values": required(TYPE, "Exists", "a"),
    "Gt 0": required("example.com/n", "Gt", "0"),
    "Lte 5": required("example.com/n", "Lte", "5"),
    "minValues of the values": required(TYPE, "In", "a", "b", least=2),
    "minValues without values": required(TYPE, "Exists", least=50),
}

REFUSED: dict[str, Raw] = {
    **{f"NodePool: label {key}": pool(labels={key: "x"}) for key in (*_BAD_KEYS, "karpenter.sh/nodepool")},
    **{f"NodePool: requirement {k}": pool(required(k, "Exists")) for k in (*_BAD_KEYS, "karpenter.sh/nodepool")},
    **{f"NodeClaim: requirement {k}": claim(required(k, "Exists")) for k in _BAD_KEYS},
    **{f"NodePool: {name}": pool(requirement) for name, requirement in _BAD_REQUIREMENTS.items()},
    **{f"NodeClaim: {name}": claim(requirement) for name, requirement in _BAD_REQUIREMENTS.items()},
    **{f"NodeOverlay: requirement {k}": overlay(required(k, "Exists")) for k in _BAD_KEYS},
    "NodeOverlay: In without values": overlay(required(TYPE, "In")),
    "NodeOverlay: NotIn without values": overlay(required(TYPE, "NotIn")),
    "NodeOverlay: Gt of a word": overlay(required("karpenter.k8s.aws/instance-cpu", "Gt", "many")),
    "NodeOverlay: price and priceAdjustment": overlay(price="1", priceAdjustment="+1"),
    "NodeOverlay: a price below 0": overlay(price="-1"),
    "NodeOverlay: an adjustment without a sign": overlay(priceAdjustment="10%"),
    "NodeOverlay: an adjustment below -100%": overlay(priceAdjustment="-101%"),
    "NodeOverlay: cpu": overlay(capacity={"cpu": "1"}),
    "NodeOverlay: weight 0": overlay(weight=0),
    "NodePool: replicas with a limit of cpu": pool(replicas=1, limits={"cpu": "1"}),
    "NodePool: replicas with a weight": pool(replicas=1, weight=5),
    "NodePool: a schedule without a duration": pool(
        disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "1", "schedule": "@daily"}]}
    ),
    "NodePool: a negative consolidateAfter": pool(disruption={"consolidateAfter": "-1s"}),
}
ADMITTED: dict[str, Raw] = {
    **{f"NodePool: label {key}": pool(labels={key: "x"}) for key in _GOOD_KEYS},
    **{f"NodePool: requirement {key}": pool(required(key, "Exists")) for key in _GOOD_KEYS},
    **{f"NodeClaim: requirement {key}": claim(required(key, "Exists")) for key in _GOOD_KEYS},
    "NodeClaim: its NodePool": claim(required("karpenter.sh/nodepool", "In", "default")),
    **{f"NodePool: {name}": pool(requirement) for name, requirement in _GOOD_REQUIREMENTS.items()},
    **{f"NodeClaim: {name}": claim(requirement) for name, requirement in _GOOD_REQUIREMENTS.items()},
    **{f"NodeOverlay: requirement {key}": overlay(required(key, "Exists")) for key in _GOOD_KEYS},
    "NodeOverlay: its NodePool": overlay(required("karpenter.sh/nodepool", "In", "default"), price="0.5"),
    "NodeOverlay: all fields": overlay(
        required("karpenter.k8s.aws/instance-cpu", "Gte", "8"),
        priceAdjustment="-15.5%",
        capacity={"nvidia.com/gpu": 4, "hugepages-2Mi": "100Mi"},
        weight=10_000,
    ),
    "NodePool: replicas with a limit of nodes": pool(replicas=1, limits={"nodes": "3"}),
    "NodePool: a hundred labels": pool(labels={f"example.com/{n}": "x" for n in range(100)}),
}
CHANGES: dict[str, tuple[Raw, Raw]] = {
    "a NodePool loses replicas": (pool(replicas=1), {"spec": {"replicas": None}}),
    "a NodePool gets replicas": (pool(), {"spec": {"replicas": 1}}),
    "the group of a node class": (
        pool(),
        {"spec": {"template": {"spec": {"nodeClassRef": {"group": "example.com"}}}}},
    ),
    "the kind of a node class": (pool(), {"spec": {"template": {"spec": {"nodeClassRef": {"kind": "Other"}}}}}),
}
"""Objects, and merge patches of them that are refused."""
