"""``tenon demo --fault``: faults of AWS, injected before the demo's first step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.base.plurals import plural
from shared.base.struct import Struct

if TYPE_CHECKING:
    from local.world import World

_FORMS = {
    "spot-capacity": "spot-capacity=PLACE:N",
    "on-demand-capacity": "on-demand-capacity=PLACE:N",
    "boot": "boot=PLACE:N",
    "throttle": "throttle=OPERATION:N",
}
_ALL = "all"
_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-\d[a-z]")
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
THROTTLED = {
    "CreateFleet": "ec2",
    "CreateLaunchTemplate": "ec2",
    "CreateTags": "ec2",
    "DescribeImages": "ec2",
    "DescribeInstances": "ec2",
    "DescribeSecurityGroups": "ec2",
    "DescribeSubnets": "ec2",
    "TerminateInstances": "ec2",
    "DescribeCluster": "eks",
    "GetParameters": "ssm",
}
"""The calls that can be throttled, each with its service."""


class Fault(Struct, kw_only=True):
    """A fault to inject. ``where`` is a zone, an instance type, ``all``, or an API operation."""

    kind: str
    where: str
    count: int

    @classmethod
    def parse(cls, text: str) -> Fault:
        """``spot-capacity=us-east-1a:0``, ``boot=m5.large:1``, ``throttle=CreateFleet:4``.

        Raises:
            ValueError: the text has another form; the message says what is allowed.
        """
        kind, _, rest = text.partition("=")
        where, _, count = rest.rpartition(":")
        if kind not in _FORMS or not where or not count.isdigit():
            raise ValueError(f'--fault "{text}" is not one of {", ".join(_FORMS.values())}')
        if kind == "throttle":
            if where not in THROTTLED:
                raise ValueError(f'--fault "{text}": OPERATION must be one of {", ".join(THROTTLED)}')
        elif where != _ALL and not _ZONE.fullmatch(where) and not _TYPE.fullmatch(where):
            raise ValueError(f'--fault "{text}": PLACE must be a zone, an instance type or {_ALL}')
        return cls(kind=kind, where=where, count=int(count))

    def arm(self, world: World) -> None:
        """Inject the fault into the local AWS."""
        if self.kind == "throttle":
            world.faults.throttle(THROTTLED[self.where], self.where, times=self.count)
        elif self.kind == "boot":
            world.aws.instances.fail_starts(*self._pool, self.count)
        else:
            world.aws.capacity.set(self.kind.removesuffix("-capacity"), *self._pool, self.count)

    @property
    def description(self) -> str:
        """The fault in a sentence."""
        place = "all zones" if self.where == _ALL else self.where
        return {
            "throttle": f"EC2 throttles the next {plural(self.count, 'call')} of {self.where}",
            "boot": f"the next {plural(self.count, 'instance')} in {place} will fail to start",
        }.get(self.kind, f"{self.kind.removesuffix('-capacity')} has {plural(self.count, 'instance')} left in {place}")

    @property
    def _pool(self) -> tuple[str, str]:
        """Instance type and zone, * for any."""
        return (
            self.where if _TYPE.fullmatch(self.where) else "*",
            self.where if _ZONE.fullmatch(self.where) else "*",
        )
