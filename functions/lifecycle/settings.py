"""Settings of the lifecycle function, from environment variables."""

from __future__ import annotations

from typing import Literal

from shared.base.settings import CommitmentSettings


class LifecycleSettings(CommitmentSettings, frozen=True, kw_only=True):
    """``catalog_bucket`` has the prices; ``node_instance_profile`` is for node classes that name none.

    ``table_name`` is that of the failures at boot and of the decision log. ``standby``: whether instances may be
    stopped. ``dead_letter_queues`` are the URLs of all dead-letter queues, a list in JSON. ``sweeps_table`` is that of
    the fleet, where the clusters' last sweeps are ("" without a fleet). ``reboot``: whether unhealthy nodes may be
    rebooted in place. ``zonal_shift``: whether ARC's zonal shifts of the cluster are followed.
    """

    catalog_bucket: str
    table_name: str
    node_instance_profile: str
    termination_queue_url: str
    dead_letter_queues: str = "[]"
    sweeps_table: str = ""
    standby: Literal["on", "off"] = "off"
    reboot: Literal["on", "off"] = "off"
    zonal_shift: Literal["on", "off"] = "off"
