"""Random objects of Karpenter's kinds and of a definition of the tests' own; many of them are refused."""

from __future__ import annotations

import copy

from tests.real.differential.random_objects import Json, RandomKind, Rng, random_condition


def _node_claim(rng: Rng) -> Json:
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    spec: Json = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [requirement] if rng.random() < 0.8 else [],
    }
    if rng.random() < 0.3:
        spec["resources"] = {"requests": {"cpu": rng.choice(("1", 2))}}
    if rng.random() < 0.3:
        spec["taints"] = [{"key": "k", "effect": rng.choice(("NoSchedule", "Sometimes"))}]
    return {"spec": spec}


def _node_claim_status(rng: Rng) -> Json:
    return rng.choice((
        {"providerID": "aws:///a/i-1", "capacity": {"cpu": "2"}},
        {"conditions": [random_condition(rng, "Launched")]},
        {"conditions": [{"type": "Launched", "status": "Perhaps"}]},
        {"unknown": 1},
    ))  # fmt: skip


def _node_pool(rng: Rng) -> Json:
    operator = rng.choice(("In", "NotIn", "Exists", "Gt", "Near"))
    values = rng.choice((["spot"], ["spot", "on-demand"], [], ["5"]))
    template = {
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": operator, "values": values}],
        }
    }
    spec: Json = {"template": template}
    if rng.random() < 0.3:
        spec["limits"] = rng.choice(({"cpu": "10"}, {"cpu": 10}, {"cpu": None}))
    if rng.random() < 0.3:
        spec["weight"] = rng.choice((1, 100, 101, "x"))
    if rng.random() < 0.4:
        nodes = rng.choice(("10%", "5", "101%", "x"))
        budget = {"nodes": nodes} | rng.choice(({}, {"schedule": "@daily"}, {"schedule": "@daily", "duration": "1h"}))
        spec["disruption"] = {"consolidateAfter": rng.choice(("30s", "Never", "soon")), "budgets": [budget]}
    return {"spec": spec}


def _node_pool_change(rng: Rng) -> Json:
    return rng.choice((
        {"weight": rng.choice((5, 0))},
        {"limits": {"cpu": "20"}},
        {"disruption": {"consolidateAfter": rng.choice(("10s", "1x"))}},
        {"unknown": "pruned"},
        {"template": {"spec": {"expireAfter": rng.choice(("Never", "720h", "x"))}}},
        {"template": {"spec": {"nodeClassRef": {"kind": "Another"}}}},
    ))  # fmt: skip


def _node_class(rng: Rng) -> Json:
    spec: Json = {
        "amiSelectorTerms": [{"alias": rng.choice(("al2023@latest", "al2023"))}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}] if rng.random() < 0.8 else [],
        "securityGroupSelectorTerms": [rng.choice(({"id": "sg-1"}, {"tags": {"a": "b"}}, {"id": "sg-1", "name": "x"}))],
    }
    spec |= rng.choice(({"role": "node"}, {"instanceProfile": "node"}, {"role": "node", "instanceProfile": "x"}, {}))
    return {"spec": spec}


def _node_class_change(rng: Rng) -> Json:
    return rng.choice((
        {"role": rng.choice(("other", ""))},
        {"tags": {rng.choice(("team", "kubernetes.io/cluster/x", "karpenter.sh/nodepool")): "x"}},
        {"metadataOptions": {"httpTokens": rng.choice(("required", "optional", "never"))}},
        {"kubelet": {"maxPods": rng.choice((10, -1))}},
    ))  # fmt: skip


def _widget(rng: Rng) -> Json:
    """An object of the tests' own definition."""
    spec: Json = {"size": rng.choice((1, 5, 11, "x"))} if rng.random() < 0.7 else {}
    for name, values in {
        "mode": ("fast", "slow", "odd"),
        "port": (80, "http", 1.5),
        "items": (["a", "b"], ["a", "a"], []),
        "parts": ([{"name": "p", "count": 1}], [{"name": "p"}, {"name": "p"}], [{"count": 2}]),
        "note": (None, "text"),
        "free": ({"any": {"thing": [1]}}, 5),
        "replicas": (0, 2),
        "low": (1, 7),
    }.items():
        if rng.random() < 0.3:
            spec[name] = copy.deepcopy(rng.choice(values))
    return {"spec": spec} if rng.random() < 0.95 else {}


def _widget_change(rng: Rng) -> Json:
    changed: Json = _widget(rng).get("spec", {})
    return changed


def _widget_status(rng: Rng) -> Json:
    return {"replicas": rng.choice((1, 2)), "selector": "app=web", **({"unknown": 1} if rng.random() < 0.3 else {})}


_KARPENTER, _AWS = "karpenter.sh/v1", "karpenter.k8s.aws/v1"
CUSTOM_KINDS = (
    RandomKind(_KARPENTER, "NodeClaim", "nodeclaims", _node_claim, _node_claim, _node_claim_status, namespaced=False),
    RandomKind(_KARPENTER, "NodePool", "nodepools", _node_pool, _node_pool_change, namespaced=False),
    RandomKind(_AWS, "EC2NodeClass", "ec2nodeclasses", _node_class, _node_class_change, namespaced=False),
    RandomKind("example.com/v1", "Widget", "widgets", _widget, _widget_change, _widget_status, scale=True),
)
"""Karpenter's kinds, and the tests' own."""

_PART = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1, "minimum": 1}},
}
_WIDGET_SPEC = {
    "type": "object",
    "default": {},
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
        "port": {"x-kubernetes-int-or-string": True},
        "items": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": _PART,
        },
        "note": {"type": "string", "nullable": True, "maxLength": 10},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "replicas": {"type": "integer"},
        "low": {"type": "integer"},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.low) || !has(self.size) || self.low <= self.size", "message": "low must not be above size"},
        {"rule": "!has(oldSelf.low) || has(self.low)", "message": "low can't be removed"},
    ],
}
WIDGETS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "selectableFields": [{"jsonPath": ".spec.mode"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": _WIDGET_SPEC,
                            "status": {
                                "type": "object",
                                "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}
"""A definition with defaults, list types, CEL rules, a nullable field, status and scale."""
