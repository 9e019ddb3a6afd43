"""The machines that kubelets run on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-\d+")


class Machine(Struct, kw_only=True):
    """One running instance.

    ``user_data`` is decoded from base64. ``architecture`` is amd64 or arm64. ``max_pods`` is the number of pods for
    which the network interfaces have addresses. ``devices`` are extended resources: ``{"nvidia.com/gpu": 1}``.
    ``kubernetes_version`` is that of its image's kubelet; "": the cluster's.
    """

    instance_id: str
    instance_type: str
    zone: str
    image_id: str
    user_data: str
    private_dns_name: str
    launched_at: datetime
    vcpus: int
    memory_mib: int
    architecture: str = "amd64"
    max_pods: int = 29
    spot: bool = False
    private_ip: str = "10.0.0.1"
    zone_id: str = ""
    root_gib: int = 20
    nvme_gib: int = 0
    max_volumes: int = 25
    devices: Mapping[str, int] = {}
    kubernetes_version: str = ""

    @property
    def region(self) -> str:
        """The zone's region, also for local zones (us-west-2-lax-1a)."""
        match = _REGION.match(self.zone)
        return match.group() if match else self.zone

    @property
    def provider_id(self) -> str:
        """The node's ``spec.providerID``."""
        return f"aws:///{self.zone}/{self.instance_id}"


class Machines(Protocol):
    """The source of machines; called at every step, so it must be fast."""

    def running(self) -> Sequence[Machine]:
        """The instances in state running that have not begun to stop, in order of launch."""
        ...

    def is_stopped(self, instance_id: str) -> bool:
        """Whether the instance is stopping, stopped or being started again, so that it still exists."""
        ...

    def reboots(self) -> Mapping[str, int]:
        """How often instances were rebooted, by id; others' too."""
        ...
