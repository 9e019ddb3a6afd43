"""The least that any set of machines could cost that has room for some pods: a linear program's optimum.

Machines may be bought in fractions, in their cheapest offering, and only the sums of what pods ask for must fit, with
one machine for each pod that bears no like of it on a host. Ignored are topology otherwise, selectors, taints, daemons,
and that no pod can be cut in two; so any real answer is dearer.
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
    alone: dict[str, int] = {}
    for p in pods:
        asked = parse_resources(p["spec"]["containers"][0]["resources"]["requests"])
        need[:3] += [asked["cpu"], asked["memory"], 1]
        terms = (p["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            if term["topologyKey"] == _HOST and _selects(term["labelSelector"], p):
                key = repr(term["labelSelector"])
                alone[key] = alone.get(key, 0) + 1
    need[3] = max(alone.values(), default=0)
    gives, price = [], []
    for t in document["instanceTypes"]:
        has, lost = parse_resources(t["capacity"]), parse_resources(t["overhead"])
        gives.append([*(has[r] - lost.get(r, 0) for r in resources), 1])
        price.append(min(o["price"] for o in t["offerings"]))
    return covering(np.array(gives, np.float64), np.array(price), need)


def _selects(selector: Raw, pod: Raw) -> bool:
    return bool(selector["matchLabels"].items() <= pod["metadata"]["labels"].items())


def covering(gives: np.ndarray[Any, Any], price: np.ndarray[Any, Any], need: np.ndarray[Any, Any]) -> float:
    """The least of price · x with gives.T · x >= need, x >= 0: by its dual, whose any solution is a bound.

    The dual (most of need · y with gives · y <= price, y >= 0) has few variables and starts from y = 0, as prices are
    not negative; it is solved by the simplex method with Bland's rule, which ends.
    """
    scale = np.maximum(gives.max(0), 1)
    gives, need = gives / scale, need / scale
    types, kinds = gives.shape
    table = np.hstack([gives, np.eye(types), price[:, None]])
    gain = np.concatenate([need, np.zeros(types)])
    worth = 0.0
    while (gain > _TINY).any():
        enters = int(np.flatnonzero(gain > _TINY)[0])
        column = table[:, enters]
        ratio = np.where(column > _TINY, table[:, -1] / np.where(column > _TINY, column, 1), np.inf)
        leaves = int(ratio.argmin())
        if not np.isfinite(ratio[leaves]):
            return float("inf")  # some resource is asked for that no type has
        table[leaves] /= table[leaves, enters]
        others = np.arange(types) != leaves
        table[others] -= np.outer(table[others, enters], table[leaves])
        worth += float(gain[enters] * table[leaves, -1])
        gain = gain - gain[enters] * table[leaves, :-1]
    assert kinds == len(need)
    return worth
