"""Apps with pending pods, as raw objects: the rules that a pod may have about its node and about other pods.

Each app is drawn as small numbers: up to three of the rules below, each of which reads one number of its own, so that
hypothesis shrinks a failure to the few objects that matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

Raw = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
ARCH = "kubernetes.io/arch"
FAMILY = "karpenter.k8s.aws/instance-family"
CPU = "karpenter.k8s.aws/instance-cpu"
SPREAD = "karpenter.sh/capacity-spread"
TEAM = "example.com/team"
ZONES = ("z-a", "z-b", "z-c")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
MOST_APPS = 5
SIZES = (("100m", "128Mi"), ("500m", "1Gi"), ("1", "6Gi"), ("3", "2Gi"), ("7", "8Gi"), ("250m", "3Gi"))


def expression(key: str, operator: str, *values: str) -> Raw:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def terms(*expressions: Raw) -> Raw:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}}}


def _any_of(*expressions: Raw) -> Raw:
    terms = [{"matchExpressions": [e]} for e in expressions]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def _preferred(*expressions: Raw) -> Raw:
    terms = [{"weight": 10 + i, "preference": {"matchExpressions": [e]}} for i, e in enumerate(expressions)]
    return {"affinity": {"nodeAffinity": {PREFERRED: terms}}}


def _spread(app: str, key: str, **more: object) -> Raw:
    selector = {"matchLabels": {"app": app}}
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [{**rule, **more}]}


def affinity_rule(kind: str, app: str, key: str, **more: object) -> Raw:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {kind: {REQUIRED: [term]}}}


def _preferred_affinity(kind: str, app: str, key: str) -> Raw:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {PREFERRED: [{"weight": 5, "podAffinityTerm": term}]}}}


def _another_app(app: str, n: int) -> str:
    return f"app{(int(app[3:]) + 1 + n) % MOST_APPS}"


def _pick(n: int, *choices: Any) -> Any:
    return choices[n % len(choices)]


def _extra(name: str, resources: Raw, **more: object) -> Raw:
    return {"initContainers": [{"name": name, "resources": {"requests": resources}, **more}]}


AFFINITY, ANTI = "podAffinity", "podAntiAffinity"
RULES: dict[str, Callable[[str, int], Raw]] = {
    "zone": lambda _, n: {"nodeSelector": {ZONE: _pick(n, *ZONES)}},
    "old zone label": lambda _, n: {"nodeSelector": {"failure-domain.beta.kubernetes.io/zone": _pick(n, *ZONES)}},
    "capacity type": lambda _, n: {"nodeSelector": {CAPACITY_TYPE: _pick(n, "spot", "on-demand", "reserved")}},
    "arch": lambda _, n: {"nodeSelector": {ARCH: _pick(n, "amd64", "arm64")}},
    "team": lambda _, n: {"nodeSelector": {TEAM: _pick(n, "red", "blue", "none")}},
    "not a family": lambda _, n: terms(expression(FAMILY, "NotIn", _pick(n, "c1", "m1", "g1"))),
    "bounds": lambda _, n: terms(
        _pick(
            n,
            expression(CPU, "Gt", "4"),
            expression(CPU, "Lt", "8"),
            expression(CPU, "Gte", "8"),
            expression(CPU, "Lte", "4"),
        )
    ),
    "team or none": lambda _, n: terms(expression(TEAM, _pick(n, "Exists", "DoesNotExist"))),
    "either zone": lambda _, n: _any_of(
        expression(ZONE, "In", _pick(n, *ZONES)), expression(ZONE, "In", _pick(n + 1, *ZONES))
    ),
    "either kind": lambda _, n: _any_of(expression(ARCH, "In", _pick(n, "arm64", "s390x")), expression(TEAM, "Exists")),
    "likes zone": lambda _, n: _preferred(expression(ZONE, "In", _pick(n, *ZONES, "z-q"))),
    "likes two things": lambda _, n: _preferred(
        expression(CAPACITY_TYPE, "In", "on-demand"), expression(ARCH, "In", _pick(n, "arm64", "amd64"))
    ),
    "tolerates all": lambda *_: {"tolerations": [{"operator": "Exists"}]},
    "tolerates one": lambda *_: {"tolerations": [{"key": "k", "operator": "Exists"}]},
    "zonal spread": lambda app, n: _spread(app, ZONE, maxSkew=_pick(n, 1, 2, 5)),
    "zonal spread of another": lambda app, n: _spread(_another_app(app, n), ZONE, maxSkew=2),
    "minDomains": lambda app, n: _spread(app, ZONE, minDomains=_pick(n, 2, 3, 4)),
    "host spread": lambda app, n: _spread(app, HOST, maxSkew=_pick(n, 1, 2, 4)),
    "capacity type spread": lambda app, n: _spread(app, CAPACITY_TYPE, maxSkew=_pick(n, 1, 3)),
    "capacity spread": lambda app, n: _spread(app, SPREAD, maxSkew=_pick(n, 1, 2)),
    "spread in taints": lambda app, n: _spread(app, ZONE, nodeTaintsPolicy=_pick(n, "Honor", "Ignore")),
    "spread beyond affinity": lambda app, n: _spread(app, ZONE, nodeAffinityPolicy="Ignore", maxSkew=_pick(n, 1, 4)),
    "spread by version": lambda app, n: _spread(app, _pick(n, ZONE, HOST), matchLabelKeys=["version"]),
    "soft zonal spread": lambda app, n: _spread(app, ZONE, whenUnsatisfiable="ScheduleAnyway", maxSkew=_pick(n, 1, 3)),
    "soft host spread": lambda app, *_: _spread(app, HOST, whenUnsatisfiable="ScheduleAnyway"),
    "together in a zone": lambda app, *_: affinity_rule(AFFINITY, app, ZONE),
    "together on a host": lambda app, *_: affinity_rule(AFFINITY, app, HOST),
    "apart in zones": lambda app, *_: affinity_rule(ANTI, app, ZONE),
    "apart on hosts": lambda app, *_: affinity_rule(ANTI, app, HOST),
    "near another": lambda app, n: affinity_rule(AFFINITY, _another_app(app, n), _pick(n // 2, ZONE, HOST)),
    "far from another": lambda app, n: affinity_rule(
        ANTI, _another_app(app, n), _pick(n // 2, ZONE, HOST, CAPACITY_TYPE)
    ),
    "far in a namespace": lambda app, n: affinity_rule(
        ANTI, _another_app(app, n), HOST, namespaces=[_pick(n, "default", "blue")]
    ),
    "near by namespace label": lambda app, n: affinity_rule(
        AFFINITY, app, ZONE, namespaceSelector=_pick(n, {}, {"matchLabels": {"team": "blue"}})
    ),
    "likes being together": lambda app, n: _preferred_affinity(AFFINITY, app, _pick(n, ZONE, HOST)),
    "likes being apart": lambda app, n: _preferred_affinity(ANTI, app, _pick(n, HOST, ZONE)),
    "host port": lambda _, n: {"ports": [{"containerPort": 80, "hostPort": _pick(n, 80, 81)}]},
    "host port of an address": lambda _, n: {
        "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": _pick(n, "10.0.0.1", "10.0.0.2")}]
    },
    "init container": lambda _, n: _extra("init", {"cpu": _pick(n, "1", "2", "5")}),
    "sidecar": lambda *_: _extra("sidecar", {"cpu": "300m", "memory": "512Mi"}, restartPolicy="Always"),
    "overhead": lambda *_: {"overhead": {"cpu": "250m", "memory": "100Mi"}},
    "new volume": lambda _, n: {"claims": _pick(n, "wait", "zonal")},
    "bound volume": lambda *_: {"claims": "bound"},
    "shared volume": lambda *_: {"claims": "shared"},
    "gpu": lambda *_: {"requests": {"nvidia.com/gpu": "1"}},
    "ephemeral": lambda _, n: {"requests": {"ephemeral-storage": _pick(n, "5Gi", "12Gi")}},
    "unsized": lambda *_: {"unsized": True},
}
PREFERENCES = {r for r in RULES if r.startswith(("likes", "soft"))}


@st.composite
def apps(draw: st.DrawFn, rules: tuple[str, ...], most: int) -> list[Raw]:
    return [
        {
            "app": f"app{i}",
            "count": draw(st.integers(1, most)),
            "size": draw(st.sampled_from(SIZES)),
            "namespace": draw(st.sampled_from(("default", "default", "blue"))),
            "rules": [
                (rule, draw(st.integers(0, 5)))
                for rule in draw(st.lists(st.sampled_from(rules), max_size=3, unique=True))
            ],
        }
        for i in range(draw(st.integers(1, MOST_APPS)))
    ]


def _storage(name: str, zones: tuple[str, ...]) -> Raw:
    objects: Raw = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if zones:
        terms = [{"key": "topology.ebs.csi.aws.com/zone", "values": list(zones)}]
        objects["allowedTopologies"] = [{"matchLabelExpressions": terms}]
    return objects


def _volume(name: str, zone: str) -> Raw:
    where = {"nodeSelectorTerms": [{"matchExpressions": [expression("topology.ebs.csi.aws.com/zone", "In", zone)]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": name}, "nodeAffinity": {"required": where}},
    }


STORAGE = [_storage("wait", ()), _storage("zonal", ZONES[:2])]


def _claim(name: str, namespace: str, spec: Raw) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def pods(app: Raw) -> list[Raw]:
    spec, extra, ports, claims, unsized = _spec(app)
    cpu, memory = app["size"]
    wanted = extra if unsized else {"cpu": cpu, "memory": memory, **extra}
    container: Raw = {"name": "app", "resources": {"requests": wanted}}
    if ports:
        container["ports"] = ports
    objects: list[Raw] = []
    for i in range(app["count"]):
        name = f"{app['app']}-{i:02d}"
        own = dict(spec, containers=[container])
        claim = ""
        if claims:
            claim = f"{app['app']}-data" if claims == "shared" else f"{name}-data"
            own["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        if claim and (claims != "shared" or not i):
            claimed = {"storageClassName": claims if claims in {"wait", "zonal"} else "wait"}
            if claims == "bound":
                claimed["volumeName"] = f"pv-{name}"
                objects.append(_volume(f"pv-{name}", ZONES[i % 3]))
            objects.append(_claim(claim, app["namespace"], claimed))
        labels = {"app": app["app"], "version": str(i % 2)}
        meta = {"name": name, "namespace": app["namespace"], "labels": labels}
        objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": own})
    return objects


def _spec(app: Raw) -> tuple[Raw, Raw, list[Raw], str, bool]:
    """The rules of an app put together: its spec, requests, ports, claims, and whether it has no size."""
    spec: Raw = {}
    extra: Raw = {}
    ports: list[Raw] = []
    claims, unsized = "", False
    for rule, n in app["rules"]:
        part = RULES[rule](app["app"], n)
        extra.update(part.pop("requests", {}))
        ports += part.pop("ports", [])
        claims = part.pop("claims", claims)
        unsized = part.pop("unsized", unsized)
        _join(spec, part)
    rules = spec.get("topologySpreadConstraints", ())
    if rules:  # the API server takes one of a kind by key
        spec["topologySpreadConstraints"] = list(
            {(r["topologyKey"], r["whenUnsatisfiable"]): r for r in rules}.values()
        )
    return spec, extra, ports, claims, unsized


def _join(into: Raw, part: Raw) -> None:
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _join(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list):
            into[key] = into[key] + value
        else:
            into[key] = value
