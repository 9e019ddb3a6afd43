"""Problems of kubelet settings, as EC2NodeClasses and Provisioners give them."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from shared.api.nodeclass import EVICTION_SIGNALS, RESERVABLE
from shared.api.validation import scalars
from shared.api.validation.scalars import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.api.nodeclass import Kubelet

_PERCENT = re.compile(r"(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?)%")


def problems(path: str, kubelet: Kubelet) -> Iterator[str]:
    """Every problem, in the order of the fields."""
    yield from scalars.within(f"{path}.maxPods", kubelet.max_pods, 0)
    yield from scalars.within(f"{path}.podsPerCore", kubelet.pods_per_core, 0)
    for name, reserved in (("systemReserved", kubelet.system_reserved), ("kubeReserved", kubelet.kube_reserved)):
        yield from _keys(f"{path}.{name}", reserved, RESERVABLE)
        yield from scalars.quantities(f"{path}.{name}", reserved)
    for name, thresholds in (("evictionHard", kubelet.eviction_hard), ("evictionSoft", kubelet.eviction_soft)):
        yield from _keys(f"{path}.{name}", thresholds, EVICTION_SIGNALS)
        for signal, value in thresholds.items():
            if not _PERCENT.fullmatch(value):
                yield from scalars.quantity(f"{path}.{name}.{signal}", signal, value)
    yield from _grace_periods(path, kubelet)
    yield from scalars.within(f"{path}.evictionMaxPodGracePeriod", kubelet.eviction_max_pod_grace_period, 0)
    yield from _image_gc(path, kubelet)
    for i, address in enumerate(kubelet.cluster_dns):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield f"{path}.clusterDNS[{i}]: {quoted(address)} is not an IP address"


def _keys(path: str, given: Mapping[str, object], allowed: tuple[str, ...]) -> Iterator[str]:
    for key in given:
        if key not in allowed:
            yield f"{path}.{key}: {quoted(key)} is not allowed; allowed are {scalars.listed(allowed)}"


def _grace_periods(path: str, kubelet: Kubelet) -> Iterator[str]:
    soft, grace = kubelet.eviction_soft, kubelet.eviction_soft_grace_period
    yield from _keys(f"{path}.evictionSoftGracePeriod", grace, EVICTION_SIGNALS)
    for signal, value in grace.items():
        yield from scalars.duration(f"{path}.evictionSoftGracePeriod.{signal}", value)
    for signal in soft.keys() - grace.keys():
        yield f"{path}.evictionSoft.{signal}: has no grace period; {path}.evictionSoftGracePeriod.{signal} is needed"
    for signal in grace.keys() - soft.keys():
        yield f"{path}.evictionSoftGracePeriod.{signal}: has no threshold; {path}.evictionSoft.{signal} is needed"


def _image_gc(path: str, kubelet: Kubelet) -> Iterator[str]:
    high, low = kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent
    yield from scalars.within(f"{path}.imageGCHighThresholdPercent", high, 0, 100)
    yield from scalars.within(f"{path}.imageGCLowThresholdPercent", low, 0, 100)
    if high is not None and low is not None and high <= low:
        yield f"{path}.imageGCHighThresholdPercent: {high} is not allowed; allowed is more than the low one, {low}"
