"""A scenario's document as a cluster: its objects by name, and what nodes of its pools may be."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.scenarios.kubernetes_rules import (
    CAPACITY_TYPE,
    HOSTNAME,
    ZONE,
    HostPorts,
    Raw,
    amounts,
    canonical,
    expression,
    key_of,
    labels_of,
    namespace_of,
    node_affinity_matches,
    owned_by_daemon_set,
    plus,
    ports_of,
    repelled,
    requests,
    selector_matches,
)

if TYPE_CHECKING:
    from collections import Counter

_SCHEDULING_FIELDS = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
Variant = tuple[str, Raw, float]
"""A type, its node's labels and its price: one of the nodes that a claim may come up as."""


def _terms_of_volume(volume: Raw) -> list[list[Raw]]:
    """The alternatives of a volume's node affinity, each with the zones of its label."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    labels = volume["metadata"].get("labels") or {}
    zones = [{"key": k, "operator": "In", "values": labels[k].split("__")} for k in labels if canonical(k) == ZONE]
    terms = [t.get("matchExpressions") or [] for t in required.get("nodeSelectorTerms") or []]
    return [[*term, *zones] for term in terms] or ([zones] if zones else [])


def _lacks_device(needed: Counter[str], size: Counter[str]) -> bool:
    return any(v and "/" in resource and not size[resource] for resource, v in needed.items())


class Cluster:
    """The document's objects."""

    def __init__(self, document: Raw) -> None:
        self.options = document.get("options") or {}
        self._objects: dict[str, list[Raw]] = {}
        for obj in document["objects"]:
            self._objects.setdefault(obj["kind"], []).append(obj)
        self.pods = {key_of(p): p for p in self._objects.get("Pod", [])}
        self.nodes = self._by_name("Node")
        self.pools = self._by_name("NodePool")
        self.daemons = self._objects.get("DaemonSet", [])
        self.claims = {key_of(c): c for c in self._objects.get("PersistentVolumeClaim", [])}
        self.volumes = self._by_name("PersistentVolume")
        self.classes = self._by_name("StorageClass")
        self.csi = self._by_name("CSINode")
        self.namespaces = {name: labels_of(n) for name, n in self._by_name("Namespace").items()}
        self.types = {t["name"]: t for t in document["instanceTypes"]}
        self.allowed = document.get("instanceTypesForNodePool") or {}
        self.bound: dict[str, list[Raw]] = {}
        for pod in self.pods.values():
            if pod["spec"].get("nodeName"):
                self.bound.setdefault(pod["spec"]["nodeName"], []).append(pod)
        self.pending = {
            key: pod
            for key, pod in self.pods.items()
            if not pod["spec"].get("nodeName") and not owned_by_daemon_set(pod)
        }
        self._spec_ids: dict[str, int] = {}
        self._ids: dict[int, int] = {}
        self._variants: dict[str, list[Variant]] = {}
        self._daemon_specs = [d["spec"]["template"]["spec"] for d in self.daemons]
        self._daemon_requests = [requests(spec) for spec in self._daemon_specs]

    def _by_name(self, kind: str) -> dict[str, Raw]:
        return {obj["metadata"]["name"]: obj for obj in self._objects.get(kind, [])}

    def spec_id(self, pod: Raw) -> int:
        """Equal for pods of one namespace with equal labels and scheduling fields."""
        known = self._ids.get(id(pod))
        if known is None:
            spec = {k: v for k, v in pod["spec"].items() if k in _SCHEDULING_FIELDS}
            text = json.dumps([pod["metadata"].get("namespace"), labels_of(pod), spec], sort_keys=True)
            known = self._ids[id(pod)] = self._spec_ids.setdefault(text, len(self._spec_ids))
        return known

    # --- nodes ---

    @cache  # noqa: B019 (a cluster lives as long as its check)
    def sizes(self, name: str) -> tuple[Counter[str], Counter[str]]:
        """Capacity and overhead of an instance type."""
        return amounts(self.types[name]["capacity"]), amounts(self.types[name].get("overhead"))

    def node_labels(self, name: str) -> Raw:
        """An existing node's labels, by today's names."""
        return {HOSTNAME: name, **{canonical(k): v for k, v in labels_of(self.nodes[name]).items()}}

    def type_labels(self, name: str) -> Raw:
        """What an instance type's nodes are labelled, apart from their offering."""
        instance_type = self.types[name]
        os = instance_type.get("os") or []
        return {
            **{canonical(k): v for k, v in (instance_type.get("labels") or {}).items()},
            "node.kubernetes.io/instance-type": name,
            "kubernetes.io/arch": instance_type.get("arch"),
            "kubernetes.io/os": os if isinstance(os, str) else (os[0] if os else None),
        }

    def pool_requirements(self, pool: Raw) -> list[Raw]:
        """The requirements of the pool's template."""
        return list(pool["spec"]["template"]["spec"].get("requirements") or [])

    def pool_labels(self, name: str) -> Raw:
        """The labels of the pool's template, and the pool's own."""
        metadata = self.pools[name]["spec"]["template"].get("metadata") or {}
        return {**(metadata.get("labels") or {}), "karpenter.sh/nodepool": name}

    def pool_taints(self, name: str) -> list[Raw]:
        """The taints of the pool's nodes."""
        return self.pools[name]["spec"]["template"]["spec"].get("taints") or []

    def offerings(self, name: str) -> list[Raw]:
        """The available offerings of an instance type."""
        return [o for o in self.types[name]["offerings"] if o.get("available", True)]

    def variants(self, claim: Raw) -> list[Variant]:
        """Every node as which the claim may come up."""
        fields = ("nodePool", "labels", "instanceTypes", "requirements")
        text = json.dumps([claim[field] for field in fields], sort_keys=True)
        if text not in self._variants:
            self._variants[text] = self._variants_of(claim)
        return self._variants[text]

    def _variants_of(self, claim: Raw) -> list[Variant]:
        own = {**self.pool_labels(claim["nodePool"]), **claim["labels"]}
        own["karpenter.sh/nodepool"] = claim["nodePool"]
        variants = []
        for name in claim["instanceTypes"]:
            base = {**own, **self.type_labels(name)}
            for o in self.offerings(name):
                labels = {**base, ZONE: o["zone"], CAPACITY_TYPE: o["capacityType"], **(o.get("labels") or {})}
                if all(expression(r, labels) for r in claim["requirements"]):
                    variants.append((name, labels, o["price"]))
        return variants

    def daemon_load(
        self, labels: Raw, taints: list[Raw], size: Counter[str] | None = None
    ) -> tuple[Counter[str], HostPorts]:
        """What DaemonSets take of a node: requests and host ports.

        ``size`` is that of a new node: the pod of a DaemonSet whose device it doesn't have stays pending.
        """
        return self.load_of(self.daemons_on(labels, taints, size))

    def daemons_on(self, labels: Raw, taints: list[Raw], size: Counter[str] | None = None) -> tuple[int, ...]:
        """The indices of the DaemonSets that run on a node."""
        return tuple(
            index
            for index, spec in enumerate(self._daemon_specs)
            if node_affinity_matches(spec, labels)
            and not repelled(spec, taints)
            and not (size is not None and _lacks_device(self._daemon_requests[index], size))
        )

    @cache  # noqa: B019 (a cluster lives as long as its check)
    def load_of(self, daemons: tuple[int, ...]) -> tuple[Counter[str], HostPorts]:
        """Requests and host ports of DaemonSets by their indices."""
        total = plus(*(self._daemon_requests[index] for index in daemons))
        return total, [port for index in daemons for port in ports_of(self._daemon_specs[index])]

    # --- volumes ---

    def volume_terms(self, pod: Raw) -> list[list[list[Raw]]] | None:
        """For each volume its alternatives, each a list of expressions; None if one can't be mounted."""
        terms = []
        for volume in pod["spec"].get("volumes") or []:
            source = volume.get("persistentVolumeClaim")
            if source is None:
                continue
            claim = self.claims.get(f"{namespace_of(pod)}/{source['claimName']}")
            alternatives = None if claim is None else self._claim_terms(claim)
            if alternatives is None:
                return None
            if alternatives:
                terms.append(alternatives)
        return terms

    def _claim_terms(self, claim: Raw) -> list[list[Raw]] | None:
        """The alternatives of a PersistentVolumeClaim; empty if it may be mounted anywhere, None if nowhere."""
        name = claim["spec"].get("volumeName")
        if name:
            volume = self.volumes.get(name)
            if volume is None:
                return None
            return _terms_of_volume(volume)
        by_annotation = (claim["metadata"].get("annotations") or {}).get("volume.beta.kubernetes.io/storage-class")
        storage = self.classes.get(by_annotation or claim["spec"].get("storageClassName"))
        if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
            return None
        return [
            [{"operator": "In", **e} for e in t["matchLabelExpressions"]]
            for t in storage.get("allowedTopologies") or []
        ]

    def may_run(self, pod: Raw, labels: Raw) -> bool:
        """Whether the pod's node affinity and volumes allow a node with these labels."""
        if not node_affinity_matches(pod["spec"], labels):
            return False
        if not pod["spec"].get("volumes"):
            return True
        terms = self.volume_terms(pod)
        return terms is not None and all(
            any(all(expression(e, labels) for e in alternative) for alternative in volume) for volume in terms
        )

    # --- pods' rules ---

    def namespaces_of(self, term: Raw, pod: Raw) -> set[str]:
        """The namespaces whose pods an affinity term of the pod selects."""
        selector = term.get("namespaceSelector")
        if selector is None:
            return set(term.get("namespaces") or [namespace_of(pod)])
        return set(term.get("namespaces") or []) | {
            name for name, labels in self.namespaces.items() if selector_matches(selector, labels)
        }

    def domain_allowed(self, pod: Raw, key: str, value: str) -> bool:
        """Whether the pod's nodeSelector, any term of its affinity, and each volume allow this value of the key."""

        def any_of(terms: list[list[Raw]]) -> bool:
            return any(all(expression(e, {key: value}) for e in t if canonical(e["key"]) == key) for t in terms)

        selector = (pod["spec"].get("nodeSelector") or {}).items()
        required: Any = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        terms = [t.get("matchExpressions") or [] for t in required["nodeSelectorTerms"]] if required else [[]]
        return (
            all(v == value for k, v in selector if canonical(k) == key)
            and any_of(terms)
            and all(any_of(volume) for volume in self.volume_terms(pod) or [])
        )
