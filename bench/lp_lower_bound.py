"""A lower bound for the price of nodes that can run some pods: the optimum of a linear program.

Fractions of nodes at their cheapest offering are allowed, and only the summed requests must fit, with one node for each
pod with anti-affinity to itself on hosts. Other topology, selectors, taints, DaemonSets, and that a pod can't be split
are ignored, so any real solution costs more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shared.api.quantity import parse_resources

Raw = dict[str, Any]
_TINY = 1e-12
_HOST = "kubernetes.io/hostname"


def least_price(document: Raw) -> float:
    """USD per hour for the pending pods of a document without nodes."""
    pods = [o for o in document["objects"] if o["kind"] == "Pod" and not o["spec"].get("nodeName")]
    resources = ("cpu", "memory", "pods")
    need = np.zeros(len(resources) + 1)
    exclusive: dict[str, int] = {}
    for p in pods:
        requests = parse_resources(p["spec"]["containers"][0]["resources"]["requests"])
        need[:3] += [requests["cpu"], requests["memory"], 1]
        terms = (p["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            if term["topologyKey"] == _HOST and _selects(term["labelSelector"], p):
                key = repr(term["labelSelector"])
                exclusive[key] = exclusive.get(key, 0) + 1
    need[3] = max(exclusive.values(), default=0)
    capacity, price = [], []
    for t in document["instanceTypes"]:
        total, overhead = parse_resources(t["capacity"]), parse_resources(t["overhead"])
        capacity.append([*(total[r] - overhead.get(r, 0) for r in resources), 1])
        price.append(min(o["price"] for o in t["offerings"]))
    return covering(np.array(capacity, np.float64), np.array(price), need)


def _selects(selector: Raw, pod: Raw) -> bool:
    return bool(selector["matchLabels"].items() <= pod["metadata"]["labels"].items())


def covering(capacity: np.ndarray[Any, Any], price: np.ndarray[Any, Any], need: np.ndarray[Any, Any]) -> float:
    """The minimum of price · x with capacity.T · x >= need, x >= 0, by the dual, whose feasible solutions are bounds.

    The dual (the maximum of need · y with capacity · y <= price, y >= 0) has few variables, and y = 0 is feasible, as
    prices are not negative. It is solved by the simplex method with Bland's rule, which terminates.
    """
    scale = np.maximum(capacity.max(0), 1)
    capacity, need = capacity / scale, need / scale
    types, kinds = capacity.shape
    table = np.hstack([capacity, np.eye(types), price[:, None]])
    gain = np.concatenate([need, np.zeros(types)])
    value = 0.0
    while (gain > _TINY).any():
        enters = int(np.flatnonzero(gain > _TINY)[0])
        column = table[:, enters]
        ratio = np.where(column > _TINY, table[:, -1] / np.where(column > _TINY, column, 1), np.inf)
        leaves = int(ratio.argmin())
        if not np.isfinite(ratio[leaves]):
            return float("inf")  # no instance type has a requested resource
        table[leaves] /= table[leaves, enters]
        other_rows = np.arange(types) != leaves
        table[other_rows] -= np.outer(table[other_rows, enters], table[leaves])
        value += float(gain[enters] * table[leaves, -1])
        gain = gain - gain[enters] * table[leaves, :-1]
    assert kinds == len(need)
    return value
