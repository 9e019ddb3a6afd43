"""The instances of an Auto Scaling group, and their lifecycle states."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from local.aws.auto_scaling.balance import Candidate

if TYPE_CHECKING:
    from datetime import datetime

PENDING, IN_SERVICE, TERMINATING = "Pending", "InService", "Terminating"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


@dataclass(kw_only=True)
class Member:
    """An instance of a group; takes the place of moto's ``InstanceState``, whose attributes it has."""

    instance: Any
    group: str
    template: dict[str, str]
    lifecycle_state: str = PENDING
    health_status: str = HEALTHY
    protected_from_scale_in: bool = False

    @property
    def instance_id(self) -> str:
        """The instance's id."""
        return str(self.instance.id)

    @property
    def instance_type(self) -> str:
        """The instance's type."""
        return str(self.instance.instance_type)

    @property
    def availability_zone(self) -> str:
        """The instance's zone."""
        return str(self.instance.availability_zone)

    @property
    def auto_scaling_group_name(self) -> str:
        """The group's name."""
        return self.group

    @property
    def launch_template(self) -> dict[str, str]:
        """The launch template's id, name and version at the launch."""
        return self.template

    @property
    def launch_configuration_name(self) -> None:
        """No launch configuration: AWS accepts no new ones."""

    @property
    def counts(self) -> bool:
        """Whether it counts towards the desired capacity."""
        return self.lifecycle_state in (PENDING, IN_SERVICE)

    def candidate(self) -> Candidate:
        """The same for the termination policy."""
        launched_at: datetime = self.instance.launch_time.replace(tzinfo=UTC)
        return Candidate(
            instance_id=self.instance_id,
            zone=self.availability_zone,
            template=(self.template["LaunchTemplateId"], int(self.template["Version"])),
            launched_at=launched_at,
            protected=bool(self.protected_from_scale_in),
        )
