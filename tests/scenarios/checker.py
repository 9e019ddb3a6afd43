"""Checks a decision against Kubernetes' rules alone: brute force over raw objects, sharing no code with the core.

A claim may come up as any listed type in any available offering that its requirements allow, and must be right in each
of them. Rules between pods are in ``topology_checker``.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.scenarios.cluster import Cluster
from tests.scenarios.kubernetes_rules import (
    CAPACITY_TYPE,
    ZONE,
    HostPorts,
    Raw,
    amounts,
    canonical,
    expression,
    key_of,
    labels_of,
    largest,
    owned_by_daemon_set,
    plus,
    ports_conflict,
    ports_of,
    repelled,
    requests,
)
from tests.scenarios.topology_checker import Host, TopologyChecker

if TYPE_CHECKING:
    from tests.scenarios.cluster import Variant

MOST_TYPES = 60


class Checker:
    """A decision laid over its cluster."""

    def __init__(self, document: Raw, decision: Raw) -> None:
        self.cluster = Cluster(document)
        self._decision = decision
        self._problems: list[str] = []
        self._hosts: list[Host] = []
        self._may_run: dict[Any, bool] = {}

    def check(self) -> list[str]:
        """Every rule that the decision breaks."""
        self._check_each_pod_is_decided_once()
        for claim in self._decision["nodeClaims"]:
            _ClaimCheck(self, claim).run()
        for name in self.cluster.nodes:
            keys = self._decision["existingNodes"].get(name, [])
            self._check_node(name, [self.cluster.pods[k] for k in keys])
        for name in set(self._decision["existingNodes"]) - set(self.cluster.nodes):
            self.say(f"{name} is not a node")
        self._check_limits()
        self._problems += TopologyChecker(self.cluster, self._hosts).problems()
        return self._problems

    def preferences_met(self) -> int:
        """How many preferences of pods hold; after :meth:`check`."""
        return TopologyChecker(self.cluster, self._hosts).preferences_met()

    def say(self, text: str) -> None:
        """Record a broken rule."""
        self._problems.append(text)

    def add(self, host: Host) -> None:
        """Record a host of the final state."""
        self._hosts.append(host)

    def one_of_each(self, pods: list[Raw]) -> list[Raw]:
        """The first of the pods that may run on the same nodes."""
        first: dict[int | str, Raw] = {}
        for pod in pods:
            first.setdefault(self._scheduling_id(pod), pod)
        return list(first.values())

    def _scheduling_id(self, pod: Raw) -> int | str:
        """Equal for pods that may run on the same nodes."""
        return self.cluster.spec_id(pod) if not pod["spec"].get("volumes") else key_of(pod)

    def may_run(self, pod: Raw, labels: Raw, memo: tuple[object, ...]) -> bool:
        """As the cluster's; ``memo`` is equal for equal labels."""
        key = (self._scheduling_id(pod), memo)
        if key not in self._may_run:
            self._may_run[key] = self.cluster.may_run(pod, labels)
        return self._may_run[key]

    def _check_each_pod_is_decided_once(self) -> None:
        pending = self.cluster.pending
        decided: Counter[str] = Counter()
        for claim in self._decision["nodeClaims"]:
            decided.update(claim["pods"])
        for keys in self._decision["existingNodes"].values():
            decided.update(keys)
        decided.update(k for k in self._decision["errors"] if k in pending)
        for key in pending:
            if decided[key] != 1:
                self.say(f"{key} is placed or refused {decided[key]} times")
        for key in decided:
            if key not in pending:
                self.say(f"{key} is not a pending pod")

    # --- existing nodes ---

    def _check_node(self, name: str, pods: list[Raw]) -> None:
        cluster = self.cluster
        labels, running = cluster.node_labels(name), cluster.bound.get(name, [])
        taints = cluster.nodes[name]["spec"].get("taints") or []
        self.add(Host(name, [labels], [*running, *pods], taints))
        if name not in self._decision["existingNodes"]:
            return
        load, ports = cluster.daemon_load(labels, taints)
        self._check_room(name, running, pods, load)
        taken = [ports_of(p["spec"]) for p in running] + [ports]
        for pod in pods:
            if not cluster.may_run(pod, labels):
                self.say(f"{key_of(pod)} may not run on {name}")
            if repelled(pod["spec"], taints):
                self.say(f"{key_of(pod)} doesn't tolerate the taints of {name}")
            if any(ports_conflict(ports_of(pod["spec"]), taken_ports) for taken_ports in taken):
                self.say(f"{key_of(pod)}: its host port is taken on {name}")
            taken.append(ports_of(pod["spec"]))
        self._check_attached(name, [*running, *pods])

    def _check_room(self, name: str, running: list[Raw], pods: list[Raw], daemon_load: Counter[str]) -> None:
        """DaemonSets' pods that don't run yet still need their room."""
        present = plus(*(requests(p["spec"]) for p in running if owned_by_daemon_set(p)))
        coming = Counter({resource: max(Fraction(0), v - present[resource]) for resource, v in daemon_load.items()})
        need = plus(*(requests(p["spec"]) for p in (*running, *pods)), coming)
        allocatable = amounts(self.cluster.nodes[name]["status"]["allocatable"])
        short = [resource for resource, v in need.items() if v > allocatable[resource] and v > 0]
        if short:
            self.say(f"{name} is too small in {short}")

    def _check_attached(self, name: str, pods: list[Raw]) -> None:
        mounted = {
            (pod["metadata"].get("namespace"), volume["persistentVolumeClaim"]["claimName"])
            for pod in pods
            for volume in pod["spec"].get("volumes") or []
            if volume.get("persistentVolumeClaim")
        }
        for driver in (self.cluster.csi.get(name) or {"spec": {"drivers": []}})["spec"]["drivers"]:
            limit = (driver.get("allocatable") or {}).get("count")
            if limit is not None and len(mounted) > limit:
                self.say(f"{name} attaches {len(mounted)} volumes, {limit} allowed")

    # --- NodePool limits ---

    def _check_limits(self) -> None:
        for name, pool in self.cluster.pools.items():
            self._check_limits_of([name], amounts(pool["spec"].get("limits")))
            shared = pool["metadata"].get("annotations", {}).get("tenon.sh/cluster-limits", "")
            limits = dict(part.strip().split("=") for part in shared.split(",") if part)
            self._check_limits_of(list(self.cluster.pools), amounts(limits))

    def _check_limits_of(self, pools: list[str], limits: Counter[str]) -> None:
        claims = [c for c in self._decision["nodeClaims"] if c["nodePool"] in pools]
        if not limits or not claims:
            return
        nodes = [n for n in self.cluster.nodes.values() if labels_of(n).get("karpenter.sh/nodepool") in pools]
        used = plus(
            *(largest(*(self.cluster.sizes(t)[0] for t in c["instanceTypes"])) for c in claims),
            *(amounts(n["status"].get("capacity")) for n in nodes),
        )
        used["nodes"] = len(claims) + len(nodes)
        for resource, limit in limits.items():
            if used[resource] > limit:
                names = ", ".join(pools)
                self.say(f"pools {names} have {float(used[resource])} {resource}, limit {float(limit)}")


class _ClaimCheck:
    """One claim, checked in every form in which it may come up."""

    def __init__(self, checker: Checker, claim: Raw) -> None:
        self._checker = checker
        self._cluster = checker.cluster
        self._claim = claim
        self._pool = claim["nodePool"]
        self._name = f"claim {self._pool} of {claim['pods'][0] if claim['pods'] else '?'}"
        self._taints = self._cluster.pool_taints(self._pool)
        self._pods = [self._cluster.pods[k] for k in claim["pods"]]
        self._requirements = self._cluster.pool_requirements(self._cluster.pools[self._pool])
        self._variants = self._cluster.variants(claim)
        self._labels = json.dumps(claim["labels"], sort_keys=True)
        self._different_pods = checker.one_of_each(self._pods)
        self._total = plus(*(requests(p["spec"]) for p in self._pods))
        self._short: dict[tuple[str, tuple[int, ...]], list[str]] = {}

    def _say(self, text: str) -> None:
        self._checker.say(f"{self._name}: {text}")

    def run(self) -> None:
        """Check everything; a claim whose types are wrong is not looked at any further."""
        if not (self._types_are_right() and self._prices_are_right() and self._every_variant_is_right()):
            return
        self._check_host_ports()
        for pod in self._pods:
            if repelled(pod["spec"], self._taints):
                self._say(f"{key_of(pod)} doesn't tolerate its taints")
        self._check_min_values()
        self._checker.add(Host(self._name, [labels for _, labels, _ in self._variants], self._pods, self._taints))

    def _types_are_right(self) -> bool:
        types = self._claim["instanceTypes"]
        if not types or len(types) > MOST_TYPES or len(set(types)) != len(types):
            self._say(f"{len(types)} types")
            return False
        allowed = self._cluster.allowed.get(self._pool)
        if allowed is not None and not set(types) <= set(allowed):
            self._say("types that the pool doesn't have")
        return True

    def _prices_are_right(self) -> bool:
        types = self._claim["instanceTypes"]
        by_type: dict[str, float] = {}
        for name, _, price in self._variants:
            by_type[name] = min(price, by_type.get(name, price))
        if set(by_type) != set(types):
            self._say(f"no available offering for {set(types) - set(by_type)}")
            return False
        if types != sorted(types, key=lambda t: ("metal" in t, by_type[t], types.index(t))):
            self._say("not cheapest first, or bare metal, which launches avoid, before other types")
        launched = [by_type[t] for t in types if "metal" not in t] or [by_type[t] for t in types]
        if abs(self._claim["cheapest"]["price"] - min(launched)) > 1e-9:
            self._say(f"cheapest is {min(launched)}, not {self._claim['cheapest']['price']}")
        return True

    def _every_variant_is_right(self) -> bool:
        used_ports = [ports_of(p["spec"]) for p in self._pods if ports_of(p["spec"])]
        return all(self._variant_is_right(variant, used_ports) for variant in self._variants)

    def _variant_is_right(self, variant: Variant, used_ports: list[HostPorts]) -> bool:
        name, labels, _ = variant
        offering = (name, labels[ZONE], labels[CAPACITY_TYPE])
        if not all(expression(r, labels) for r in self._requirements):
            self._say(f"{offering} is not allowed by the pool")
            return False
        daemons = self._cluster.daemons_on(labels, self._taints, self._cluster.sizes(name)[0])
        if short := self._too_small_in(name, daemons):
            self._say(f"{offering} is too small in {short}")
            return False
        if any(ports_conflict(self._cluster.load_of(daemons)[1], used) for used in used_ports):
            self._say(f"a host port conflicts with a DaemonSet's on {offering}")
        memo = (self._pool, self._labels, *offering)
        for pod in self._different_pods:
            if not self._checker.may_run(pod, labels, memo):
                self._say(f"{key_of(pod)} may not run on {offering}")
                return False
        return True

    def _too_small_in(self, name: str, daemons: tuple[int, ...]) -> list[str]:
        """The resources of which a type has too few for the pods and these DaemonSets."""
        if (name, daemons) not in self._short:
            size, overhead = self._cluster.sizes(name)
            need = plus(self._total, self._cluster.load_of(daemons)[0])
            self._short[name, daemons] = [r for r, v in need.items() if v > size[r] - overhead[r] and v > 0]
        return self._short[name, daemons]

    def _check_host_ports(self) -> None:
        used = [ports_of(p["spec"]) for p in self._pods if ports_of(p["spec"])]
        for i, ports in enumerate(used):
            if any(ports_conflict(ports, earlier_ports) for earlier_ports in used[:i]):
                self._say("host ports conflict")

    def _check_min_values(self) -> None:
        if self._cluster.options.get("minValuesPolicy", "Strict") != "Strict":
            return
        for r in self._requirements:
            if r.get("minValues"):
                key = canonical(r["key"])
                values = {labels.get(key) for _, labels, _ in self._variants}
                if len(values) < r["minValues"]:
                    self._say(f"{len(values)} values of {key}, minValues {r['minValues']}")


def check(document: Raw, decision: Raw) -> list[str]:
    """Every rule that the decision breaks, in words; empty if it is right."""
    return Checker(document, decision).check()


def violations_and_preferences(document: Raw, decision: Raw) -> tuple[list[str], int]:
    """Every rule that the decision breaks, and how many preferences of pods hold."""
    checker = Checker(document, decision)
    return checker.check(), checker.preferences_met()
