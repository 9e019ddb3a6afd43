"""The instances of an Auto Scaling group, and their lifecycle states."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from local.aws.auto_scaling.balance import Candidate
from local.aws.auto_scaling.events import EC2
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from datetime import datetime

Group = Any
"""moto's ``FakeAutoScalingGroup``."""
PENDING, IN_SERVICE, TERMINATING = "Pending", "InService", "Terminating"
WARMED = "Warmed:"
"""The states of instances in a warm pool begin with it."""
WAIT, PROCEED = ":Wait", ":Proceed"
"""The states of instances that wait for lifecycle hooks end with it, and of those that have waited."""
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Member(MutableStruct, kw_only=True):
    """An instance of a group; takes the place of moto's ``InstanceState``, whose attributes it has.

    ``origin`` is where its current transition began, as events name it.
    """

    instance: Any
    group: str
    template: dict[str, str]
    lifecycle_state: str = PENDING
    health_status: str = HEALTHY
    protected_from_scale_in: bool = False
    origin: str = EC2

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
        return self.lifecycle_state == IN_SERVICE or self.lifecycle_state.startswith(PENDING)

    @property
    def is_pending(self) -> bool:
        """Whether it is being launched, or started, for the group or its warm pool."""
        return self._phase.startswith(PENDING)

    @property
    def is_terminating(self) -> bool:
        """Whether it is being terminated."""
        return self._phase.startswith(TERMINATING)

    @property
    def is_warm(self) -> bool:
        """Whether it is in the warm pool."""
        return self.lifecycle_state.startswith(WARMED)

    @property
    def waits(self) -> bool:
        """Whether it waits for lifecycle hooks."""
        return self.lifecycle_state.endswith(WAIT)

    @property
    def _phase(self) -> str:
        return self.lifecycle_state.removeprefix(WARMED)

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
