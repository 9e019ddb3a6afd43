"""Settings and feature gates of Karpenter's Deployment that Tenon treats differently, and what to do about each.

Karpenter reads a setting from its flag, else from the variable of the same name
(https://karpenter.sh/v1.15/reference/settings/). A value that is Karpenter's default differs from nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.migrate import flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cli.migrate.autoscaler_deployment import AutoscalerDeployment

_GATES = ("feature-gates", "aws-feature-gates")
_ON = "true"

_NOTES = {
    ("preference-policy", "Ignore"): "Tenon respects preferences of pods where it can",
    ("min-values-policy", "BestEffort"): "Tenon holds to minValues, and launches nothing where too few values are left",
    ("ignore-dra-requests", "false"): "Tenon launches nothing for pods with resourceClaims; an event names the field",
    ("legacy-node-repair", "true"): "Tenon has the newer method of node repair only: annotation tenon.sh/repair",
}
"""By setting and the value that differs."""
_GATE_NOTES = {
    ("NodeRepair", "true"): 'give each NodePool annotation tenon.sh/repair: "true", or its nodes aren\'t repaired',
    ("RebootForRepair", "true"): 'deploy with -c reboot=on, and give NodePools annotation tenon.sh/repair: "reboot"',
    ("TerminateFirstDrift", "true"): 'give NodePools annotation tenon.sh/terminate-first: "true"',
    ("TerminateFirstRepair", "true"): 'give NodePools annotation tenon.sh/terminate-first: "true"',
    ("PodDeletionCostManagement", "true"): "Tenon has soft taints instead, and writes no pod deletion costs",
    ("ReservedCapacity", "false"): "Tenon uses the reservations that an EC2NodeClass selects",
    ("SpotToSpotConsolidation", "false"): "Tenon replaces a spot node by a spot node if 15 instance types remain",
    ("NodeOverlay", "false"): "Tenon applies the NodeOverlays that there are",
    ("StaticCapacity", "false"): "Tenon keeps the nodes of NodePools with replicas",
    ("CapacityBuffer", "false"): "Tenon provides the CapacityBuffers that there are",
    ("DRANVIDIAGPU", "true"): "Tenon launches nothing for pods with resourceClaims; an event names the field",
    ("DRAEFA", "true"): "Tenon launches nothing for pods with resourceClaims; an event names the field",
    ("NodeClassCEL", "true"): "expressions are computed without a gate, those that compute numbers",
}
"""By gate and the value that differs."""
_DIFFERENT_DEFAULTS = {"SpotToSpotConsolidation": "false"}
"""Off in Karpenter unless it is given; what the other gates turn on needs objects or annotations of its own."""


def differences(deployment: AutoscalerDeployment) -> Iterator[str]:
    """What differs from the Deployment's settings, as sentences."""
    given = _settings(deployment)
    for (name, value), note in _NOTES.items():
        if given.get(name, "").lower() == value.lower():
            yield f"{name}={given[name]}: {note}"
    gates = _gates(given)
    for (gate, value), note in _GATE_NOTES.items():
        if gates.get(gate) == value:
            yield f"gate {gate}={value}: {note}"
    known = {gate for gate, _ in _GATE_NOTES}
    for gate in sorted(gates.keys() - known):
        if gates[gate] == _ON:
            yield f"gate {gate}=true: unknown to this version of Tenon"


def _settings(deployment: AutoscalerDeployment) -> dict[str, str]:
    """The settings by their flags' names."""
    environment = {name.lower().replace("_", "-"): value for name, value in deployment.environment.items()}
    given = flags.read(deployment.arguments, deployment.environment)
    return environment | {flag.name.replace("_", "-"): flag.value for flag in given}


def _gates(given: Mapping[str, str]) -> dict[str, str]:
    """The gates of ``A=true,B=false``, and those whose default differs."""
    pairs = (part.partition("=") for name in _GATES for part in given.get(name, "").split(",") if part.strip())
    return {**_DIFFERENT_DEFAULTS, **{gate.strip(): value.strip().lower() for gate, _, value in pairs}}
