"""Variations of recorded scenarios: the same rules with other counts, sizes, prices and limits.

Every mutation is drawn from one seed, so a failure can be repeated. Two scenarios may be joined in one cluster, so that
their rules meet.
"""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

Raw = dict[str, Any]
_CPU = ("50m", "100m", "250m", "400m", "750m", "1", "1500m", "2200m", "3", "6")
_MEMORY = ("64Mi", "200Mi", "512Mi", "900Mi", "1Gi", "2Gi", "3500Mi", "6Gi", "10Gi", "24Gi")
MOST = 160


def mutated(document: Raw, seed: int, joined: Raw | None = None) -> Raw:
    """The document changed in a few ways, joined with ``other`` if there is one."""
    draw = random.Random(seed)  # noqa: S311 (a test's choices)
    variation = copy.deepcopy({k: v for k, v in document.items() if k != "instanceTypes"})
    variation["instanceTypes"] = copy.deepcopy(document["instanceTypes"])
    if joined is not None:
        _join(variation, joined)
    _change_counts(variation, draw)
    if draw.random() < 0.7:
        _change_sizes(variation, draw)
    if draw.random() < 0.8:
        _change_prices(variation, draw)
    if draw.random() < 0.3:
        _drop_instance_types(variation, draw)
    if draw.random() < 0.25:
        _change_weights(variation, draw)
    if draw.random() < 0.15:
        _add_limits(variation, draw)
    return variation


def _join(document: Raw, joined: Raw) -> None:
    """Adds the other document's objects; objects of the same name are added once."""
    have = {_name(o) for o in document["objects"]}
    for original in joined["objects"]:
        raw = json.loads(re.sub(r'"app": "([^"]*)"', r'"app": "\1-b"', json.dumps(original)))
        if raw["kind"] == "Pod":
            raw["metadata"]["name"] += "-b"
            if raw["metadata"].get("uid"):
                raw["metadata"]["uid"] += "-b"
        elif _name(raw) in have:
            continue
        document["objects"].append(raw)


def _name(raw: Raw) -> tuple[str, str, str]:
    return raw["kind"], raw["metadata"].get("namespace") or "", raw["metadata"]["name"]


def pending(document: Raw) -> list[Raw]:
    """The pending pods."""
    return [
        o
        for o in document["objects"]
        if o["kind"] == "Pod"
        and not o["spec"].get("nodeName")
        and not any(r.get("kind") == "DaemonSet" for r in o["metadata"].get("ownerReferences") or [])
    ]


def _grouped(pods: list[Raw]) -> list[list[Raw]]:
    groups: dict[str, list[Raw]] = {}
    for p in pods:
        rules = {k: v for k, v in p["spec"].items() if k != "volumes"}
        groups.setdefault(json.dumps([p["metadata"].get("labels"), rules], sort_keys=True), []).append(p)
    return list(groups.values())


def _change_counts(document: Raw, draw: random.Random) -> None:
    groups = _grouped(pending(document))
    total = sum(len(g) for g in groups)
    scale = min(1.0, MOST / max(1, total))
    gone: set[int] = set()
    for group in groups:
        wanted = max(1, round(len(group) * scale * draw.choice((0.3, 0.6, 0.9, 1.0, 1.1, 1.5))))
        for p in group[wanted:]:
            gone.add(id(p))
        if group[0]["spec"].get("volumes"):
            continue
        for i in range(wanted - len(group)):
            more = copy.deepcopy(group[i % len(group)])
            more["metadata"]["name"] += f"-m{i}"
            if more["metadata"].get("uid"):
                more["metadata"]["uid"] += f"-m{i}"
            document["objects"].append(more)
    document["objects"] = [o for o in document["objects"] if id(o) not in gone]


def _change_sizes(document: Raw, draw: random.Random) -> None:
    for group in _grouped(pending(document)):
        if draw.random() < 0.5:
            continue
        cpu, memory = draw.choice(_CPU), draw.choice(_MEMORY)
        for p in group:
            for c in p["spec"]["containers"][:1]:
                requests = (c.get("resources") or {}).get("requests")
                if requests and "cpu" in requests and not c["resources"].get("limits"):
                    requests.update({"cpu": cpu, "memory": memory})


def _change_prices(document: Raw, draw: random.Random) -> None:
    families: dict[str, float] = {}
    zones: dict[tuple[str, str], float] = {}
    for t in document["instanceTypes"]:
        family = families.setdefault(t["name"].split(".")[0], draw.uniform(0.7, 1.4))
        for o in t["offerings"]:
            zone = zones.setdefault((o["zone"], o["capacityType"]), draw.uniform(0.9, 1.15))
            spot = draw.uniform(0.85, 1.2) if o["capacityType"] == "spot" else 1.0
            factor = zone if o["capacityType"] == "spot" else 1.0
            o["price"] = round(o["price"] * family * factor * spot, 5)
            if draw.random() < 0.03:
                o["available"] = False


def _drop_instance_types(document: Raw, draw: random.Random) -> None:
    kept = draw.choice((0.1, 0.3, 0.6))
    document["instanceTypes"] = [t for t in document["instanceTypes"] if draw.random() < kept] or document[
        "instanceTypes"
    ]


def _change_weights(document: Raw, draw: random.Random) -> None:
    for o in document["objects"]:
        if o["kind"] == "NodePool":
            o["spec"]["weight"] = draw.choice((1, 1, 10, 50))


def _add_limits(document: Raw, draw: random.Random) -> None:
    pools = [o for o in document["objects"] if o["kind"] == "NodePool"]
    pool = draw.choice(pools)
    pool["spec"]["limits"] = draw.choice(
        ({"cpu": "16"}, {"cpu": "64"}, {"memory": "100Gi"}, {"nodes": "3"}, {"cpu": "30", "memory": "90Gi"})
    )
