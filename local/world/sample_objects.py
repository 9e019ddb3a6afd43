"""Objects for worlds: Deployments, PodDisruptionBudgets, NodePools and node classes, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api.labels import HOSTNAME, ZONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.world.world import World
    from shared.api.json_types import Json

Obj = dict[str, Any]


def deployment(
    name: str,
    replicas: int,
    requests: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    **pod: Json,
) -> Obj:
    """A Deployment of pods with one container and the label ``app``; ``annotations`` are those of the pods."""
    devices = {name: amount for name, amount in requests.items() if "/" in name}  # which need limits
    resources = {"requests": dict(requests), **({"limits": devices} if devices else {})}
    container = {"name": "c", "image": "x", "resources": resources}
    template = {
        "metadata": {"labels": {"app": name}, "annotations": dict(annotations or {})},
        "spec": {"containers": [container], **pod},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def one_per_node(app: str) -> Obj:
    """The affinity of pods of that ``app`` that need a node each."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def zone_spread(app: str, *, when: str = "DoNotSchedule") -> Obj:
    """The constraint that spreads the pods of that ``app`` over zones."""
    selector = {"matchLabels": {"app": app}}
    return {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": selector}


def daemon_set(name: str, requests: Mapping[str, str], *, annotations: Mapping[str, str] | None = None) -> Obj:
    """A DaemonSet of pods with one container and the label ``app``; ``annotations`` are those of the pods."""
    pods = deployment(name, 0, requests, annotations=annotations)
    spec = {key: value for key, value in pods["spec"].items() if key != "replicas"}
    return {**pods, "kind": "DaemonSet", "spec": spec}


def budget(name: str, max_unavailable: int | str) -> Obj:
    """A PodDisruptionBudget with maxUnavailable for the pods of that ``app``."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "maxUnavailable": max_unavailable},
    }


def node_class(world: World, **spec: Json) -> Obj:
    """The EC2NodeClass "default", with the discovery tags of a world."""
    terms = [{"tags": {"karpenter.sh/discovery": world.cluster}}]
    default_spec = {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": f"TenonNodeRole-{world.cluster}",
        "subnetSelectorTerms": terms,
        "securityGroupSelectorTerms": terms,
    }
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {**default_spec, **spec},
    }


def node_pool(
    requirements: Mapping[str, Sequence[str]],
    *,
    name: str = "default",
    annotations: Mapping[str, str] | None = None,
    template: Mapping[str, Any] | None = None,
    **spec: Json,
) -> Obj:
    """A NodePool of the class "default" with a requirement In for each label."""
    template_spec = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [{"key": k, "operator": "In", "values": list(v)} for k, v in requirements.items()],
        **(template or {}),
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"template": {"spec": template_spec}, **spec},
    }
