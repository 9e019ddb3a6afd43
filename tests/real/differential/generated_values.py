"""Values for generated objects by the names and types of their fields: valid ones, odd ones and wrong ones."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

LONG = "x" * 64
_KEYS = (
    "app", "zone", "topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/team", "UPPER",
    "node.kubernetes.io/not-ready", "karpenter.sh/capacity-type", "node.kubernetes.io/instance-type",
    "kubernetes.io/arch", "", "-bad", "a b", LONG, "example.com/", "/x", "a/b/c",
)  # fmt: skip
_LABEL_VALUES = ("web", "a", "1", "", "true", "x.y_z", "5", "10", "0x10", "1.5", "-bad", "a b", LONG, "-5", "+3")
_NAMES = ("a", "main", "web", "side", "data", "http", "other", "80", "a.b", "A", "", "a_b", LONG, "-a")
_QUANTITIES = (
    "1", "100m", "0", "2", "1Gi", "1e3", "1.5", "0.5Gi", "1k", "1n", "1E", "1Ei", "100000000000", "01", ".5",
    "5.", "1e-3", "500u", "1024Ki", "0.1", 1, 0.1, 3, "1Mi", "8Gi", "100Mi", "1100m", "1e19", "9Ei",
    "-1", "", "x", "1 Gi", "1mi", "1KI", "1e", "1.2.3", "0x1",
)  # fmt: skip
_RESOURCES = (
    "cpu", "cpu", "memory", "memory", "ephemeral-storage", "pods", "nvidia.com/gpu", "hugepages-2Mi",
    "example.com/fpga", "storage", "requests.cpu", "Cpu", "bad name", "attachable-volumes-aws-ebs", "kubernetes.io/x",
    "aws.amazon.com/neuron", "hugepages-3Ki",
)  # fmt: skip
_INTEGERS = (0, 1, 2, 3, 5, 30, 80, 100, 443, 8080, 300, -1, -5, 65535, 65536, 70000, 2147483647, 2147483648, 1.5, "1")
_TEXTS = (
    "a", "web", "tcp", "", "x y", "/srv", "../up", "127.0.0.1", "10.0.0.256", "::1", "50%", "101%", "0%", "5", "v1",
    "metadata.name", "example.com/x", LONG, "Ä",
)  # fmt: skip
_TIMES = ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00.123456Z", "2026-11-21T08:00:00+01:00", "yesterday", "")
_DURATIONS = ("30s", "Never", "1h", "0s", "-1s", "1d", "720h", "10m30s", "1h30m", "", "5", "0.5h")
_SCHEDULES = ("@daily", "0 9 * * mon-fri", "* * * * *", "x", "@midnight", "61 * * * *", "@every 5m", "0 22-6 * * *", "")
_BY_NAME: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"key|topologyKey|matchLabelKeys|mismatchLabelKeys|topologyKeys", _KEYS),
    (r"values?", _LABEL_VALUES),
    (r"expireAfter|consolidateAfter|terminationGracePeriod|duration|evictionSoftGracePeriod", _DURATIONS),
    (r"schedule", _SCHEDULES),
    (r"nodes", ("10%", "0", "5", "100%", "101%", "-1", "x", "")),
    (r"alias", ("al2023@latest", "bottlerocket@v1.2.3", "al2@latest", "al2023", "custom@latest", "x@y", "")),
    (r"id", ("ami-0123456789abcdef0", "subnet-1", "subnet-0a", "sg-0", "sg-x", "cr-0", "cr-1", "")),
    (r"maxUnavailable|minAvailable|maxSurge", (0, 1, "50%", "0%", "100%", "101%", -1, "x", "5", 1.5, "")),
    (r"operator", ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "", "in", "Gte", "Lte")),
    (r"effect", ("NoSchedule", "NoExecute", "PreferNoSchedule", "", "noschedule")),
    (r"restartPolicy", ("Always", "OnFailure", "Never", "", "Sometimes")),
    (r"accessModes", ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod", "", "RWO")),
    (r"preemptionPolicy", ("Never", "PreemptLowerPriority", "Always", "")),
    (r"unhealthyPodEvictionPolicy", ("IfHealthyBudget", "AlwaysAllow", "Never", "")),
    (r"image", ("web:1", "web", "example.com:5000/web", "web@sha256:abc", "", " web")),
    (r"namespaces?", ("default", "kube-system", "absent", "", "A")),
    (r"priorityClassName", ("system-node-critical", "absent", "")),
    (r"(.*N|n)ame|claimName|runtimeClassName|storageClassName|schedulerName|nodeName", _NAMES),
    (r"signal|finalizers|drivers", ("example.com/hold", "x", "kubernetes.io/pvc-protection", "")),
)
_PATTERNS = tuple((re.compile(name), values) for name, values in _BY_NAME)
_BY_TYPE: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False), "integer": _INTEGERS, "number": _INTEGERS, "date-time": _TIMES, "byte": ("", "b25l", "?"),
    "string": _TEXTS,
}  # fmt: skip
"""By the schema's format, else by its type."""
_WRONG: tuple[Any, ...] = ("text", 5, True, [], {}, ["x"], {"x": 1}, 1.5)
_LABEL_MAPS = frozenset(("labels", "matchLabels", "nodeSelector", "annotations", "selector", "tags"))


def leaf(rng: random.Random, name: str, schema: dict[str, Any]) -> Any:
    """A value for a field without fields of its own."""
    if (allowed := schema.get("enum")) and rng.random() < 0.9:
        return rng.choice(allowed)
    if is_quantity(schema) and rng.random() < 0.95:
        return _first_ones(rng, _QUANTITIES)
    for pattern, values in _PATTERNS:
        if pattern.fullmatch(name) and (schema.get("type") in {"string", None} or "int" in str(schema)):
            return _first_ones(rng, values)
    kind = schema.get("format") if schema.get("format") in _BY_TYPE else schema.get("type")
    return _first_ones(rng, _BY_TYPE.get(str(kind), (0, 1, "50%", "x", 80, "http")))


def _first_ones(rng: random.Random, values: Sequence[Any]) -> Any:
    """One of the values, more often an early one: these are valid in most places."""
    return values[int(len(values) * rng.random() ** 2)]


def is_quantity(schema: dict[str, Any]) -> bool:
    """Whether the field holds a quantity."""
    return str(schema.get("$ref", "")).endswith(".Quantity") or "Ei" in str(schema.get("pattern", ""))


def map_key(rng: random.Random, name: str, schema: dict[str, Any]) -> str:
    """A key for the map of that name, whose values have that schema."""
    if is_quantity(schema):
        return str(_first_ones(rng, _RESOURCES))
    return str(_first_ones(rng, _KEYS if name in _LABEL_MAPS else (*_NAMES, "memory.available", "cpu", "memory")))


def wrong(rng: random.Random) -> Any:
    """A value of any type."""
    return copy.deepcopy(rng.choice(_WRONG))
