"""The disruption function's environment variables."""

from __future__ import annotations

from typing import Literal

from shared.base.settings import LaunchSettings


class DisruptionSettings(LaunchSettings, frozen=True, kw_only=True):
    """The settings of replacements, the function's own queue for requeues, and the termination function's.

    The table keeps requeue messages already sent and the decision log too. ``reboot``: whether the lifecycle function
    may reboot instances, so that it can be asked to.
    """

    disruption_queue_url: str
    termination_queue_url: str
    dead_letter_queue_url: str
    reboot: Literal["on", "off"] = "off"
