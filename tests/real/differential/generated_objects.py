"""Objects of built-in and Karpenter's kinds, generated from their published schemas; each has a few changed fields.

A small valid object is changed at random places. Most values are valid, some are odd, some are wrong.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes.registry import published_types
from shared.api import crds
from tests.real.differential import generated_values as values

if TYPE_CHECKING:
    import random

Json = dict[str, Any]

_POD: Json = {"containers": [{"name": "main", "image": "web:1"}]}
_LABELED: Json = {"metadata": {"labels": {"app": "web"}}, "spec": _POD}
_WORKLOAD: Json = {"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": _LABELED}}
_CLASS_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_REQUIREMENT = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
_NODE_SPEC: Json = {"nodeClassRef": _CLASS_REF, "requirements": [_REQUIREMENT]}
_BY_TAG = [{"tags": {"a": "b"}}]
_KARPENTER = "karpenter.sh/v1"
BASES: dict[tuple[str, str], Json] = {
    ("v1", "Pod"): {"spec": _POD},
    ("v1", "PodTemplate"): {"template": _LABELED},
    ("v1", "Node"): {"spec": {}},
    ("v1", "Service"): {"spec": {"ports": [{"port": 80}]}},
    ("v1", "PersistentVolumeClaim"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    ("v1", "PersistentVolume"): {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
        }
    },
    ("apps/v1", "DaemonSet"): _WORKLOAD,
    ("apps/v1", "Deployment"): _WORKLOAD,
    ("apps/v1", "ReplicaSet"): _WORKLOAD,
    ("apps/v1", "StatefulSet"): {"spec": {**_WORKLOAD["spec"], "serviceName": "web"}},
    ("batch/v1", "Job"): {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
    ("policy/v1", "PodDisruptionBudget"): {"spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}},
    ("storage.k8s.io/v1", "StorageClass"): {"provisioner": "ebs.csi.aws.com"},
    ("storage.k8s.io/v1", "CSINode"): {"spec": {"drivers": []}},
    ("storage.k8s.io/v1", "CSIDriver"): {"spec": {}},
    ("scheduling.k8s.io/v1", "PriorityClass"): {"value": 10},
    ("node.k8s.io/v1", "RuntimeClass"): {"handler": "runc"},
    (_KARPENTER, "NodePool"): {"spec": {"template": {"spec": _NODE_SPEC}}},
    (_KARPENTER, "NodeClaim"): {"spec": _NODE_SPEC},
    ("karpenter.sh/v1alpha1", "NodeOverlay"): {"spec": {"requirements": [_REQUIREMENT], "price": "0.5"}},
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): {
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": _BY_TAG,
            "securityGroupSelectorTerms": _BY_TAG,
            "role": "node",
        }
    },
}
"""A small valid object of each kind, without its metadata."""
SHARES = {"Pod": 12, "NodePool": 3, "EC2NodeClass": 3, "DaemonSet": 2, "Node": 2, "PodDisruptionBudget": 2}
"""How much more often than others a kind is generated."""
_OFTEN = {
    "containers": 6, "affinity": 6, "topologySpreadConstraints": 6, "tolerations": 4, "nodeSelector": 3, "volumes": 3,
    "initContainers": 3, "overhead": 2, "resources": 4, "ports": 3, "requests": 2, "limits": 2, "taints": 3, "spec": 8,
    "template": 6, "requirements": 3, "disruption": 3, "budgets": 2, "metadata": 1, "status": 0, "hostNetwork": 2,
}  # fmt: skip
_ITEM_BASES: dict[str, Json] = {
    "containers": {"name": "side", "image": "web:1"},
    "initContainers": {"name": "init", "image": "web:1"},
}
_MAX_DEPTH = 7
_FIXED = frozenset(("apiVersion", "kind", "resourceVersion", "generation", "status"))
"""Fields that aren't generated: a dry run doesn't look at a new object's version, and status is a subresource."""
_NAMES = (*["generated"] * 20, "a.b", "A", "a_b", "-a")


class ObjectGenerator:
    """Makes one object after the other from the random numbers of ``rng``."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._kinds = [kind for kind in BASES for _ in range(SHARES.get(kind[1], 1))]

    def following(self) -> Json:
        """The next object, with its apiVersion, kind and name."""
        rng = self._rng
        api_version, kind = rng.choice(self._kinds)
        obj = {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": "generated"},
            **copy.deepcopy(BASES[api_version, kind]),
        }
        schema = schema_of(api_version, kind)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
            self._change(obj, schema)
        if isinstance(obj["metadata"], dict):
            obj["metadata"] = {**obj["metadata"], "name": rng.choice(_NAMES)}
            obj["metadata"].pop("namespace", None)
        return obj

    def _change(self, obj: Json, schema: Json) -> None:
        """Change one field of the object or below, in place."""
        properties = {n: s for n, s in schema["properties"].items() if n not in _FIXED}
        name = self._picked(properties)
        inner, value = resolved(properties[name]), obj.get(name)
        if isinstance(value, dict) and "properties" in inner and self._rng.random() < 0.9:
            self._change(value, inner)
        elif isinstance(value, list) and "items" in inner and self._rng.random() < 0.85:
            self._change_list(value, name, inner)
        elif name != "metadata":
            self._replace(obj, name, properties[name])

    def _replace(self, obj: Json, name: str, schema: Json) -> None:
        """Remove a field, add one that is unheard of, or set or extend the field, in place."""
        if name in obj and self._rng.random() < 0.15:
            del obj[name]
            return
        if self._rng.random() < 0.02:
            obj["unheardOf"] = values.wrong(self._rng)
            return
        value = self._value(name, schema, 0, required=True)
        before = obj.get(name)
        if isinstance(before, dict) and isinstance(value, dict) and self._rng.random() < 0.7:
            value = {**before, **value}
        obj[name] = value

    def _change_list(self, items: list[Any], name: str, schema: Json) -> None:
        item = resolved(schema["items"])
        if items and isinstance(items[0], dict) and "properties" in item and self._rng.random() < 0.8:
            chosen = self._rng.choice(items)
            if isinstance(chosen, dict):
                self._change(chosen, item)
        elif items and self._rng.random() < 0.2:
            items.pop()
        else:
            items.append(self._value(name, schema["items"], 1, required=True))

    def _picked(self, properties: Json) -> str:
        names = list(properties)
        return self._rng.choices(names, [_OFTEN.get(name, 1) + 0.001 for name in names])[0]

    def _value(self, name: str, schema: Json, depth: int, *, required: bool = False) -> Any:
        """A value for the field; ``required`` if a map or list must not be empty."""
        rng = self._rng
        if rng.random() < 0.02:
            return values.wrong(rng) if rng.random() < 0.7 else None
        if values.is_quantity(schema):
            return values.leaf(rng, name, schema)
        inner = resolved(schema)
        if "properties" in inner:
            return self._struct(name, inner, depth + 1)
        if isinstance(inner.get("additionalProperties"), dict):
            count = rng.choice((0, 1, 1, 2)) or int(required)
            values_of = inner["additionalProperties"]
            keys = [values.map_key(rng, name, values_of) for _ in range(count)]
            return {key: self._value("value", values_of, depth + 1) for key in keys}
        if inner.get("type") == "array":
            count = rng.choice((0, 1, 1, 1, 2)) or int(required)
            return [self._value(name, inner["items"], depth + 1) for _ in range(count)]
        return values.leaf(rng, name, inner)

    def _struct(self, name: str, schema: Json, depth: int) -> Json:
        obj: Json = copy.deepcopy(_ITEM_BASES.get(name, {}))
        properties = {n: s for n, s in schema["properties"].items() if n not in _FIXED or depth > 2}
        share = 0.0 if depth > _MAX_DEPTH else min(0.6, 2.5 / max(1, len(properties)))
        needed = schema.get("required") or ()
        for field, inner in properties.items():
            probability = 0.96 if field in needed else share
            if field not in obj and self._rng.random() < probability:
                obj[field] = self._value(field, inner, depth)
        return obj


@cache
def _published() -> Json:
    schemas: Json = msgspec.json.decode(published_types.FILE.read_bytes())
    return schemas


@cache
def _definitions() -> list[Json]:
    return crds.load()


@cache
def schema_of(api_version: str, kind: str) -> Json:
    """The kind's published schema."""
    group, _, version = api_version.rpartition("/")
    name = _published()["kinds"].get(f"{group}/{version}/{kind}")
    if name is not None:
        schema: Json = _published()["types"][name]
        return schema
    for definition in _definitions():
        spec = definition["spec"]
        if (spec["group"], spec["names"]["kind"]) == (group, kind):
            (schema,) = [v["schema"]["openAPIV3Schema"] for v in spec["versions"] if v["name"] == version]
            metadata = {"$ref": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
            return {**schema, "properties": {**schema["properties"], "metadata": metadata}}
    raise LookupError(f"{api_version} {kind}")


def resolved(schema: Json) -> Json:
    """The schema that a reference leads to."""
    referred: Json = _published()["types"][schema["$ref"]] if "$ref" in schema else schema
    return referred
