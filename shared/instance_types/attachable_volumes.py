"""How many EBS volumes pods may attach to a node of an instance type.

EC2 publishes a greatest number (DescribeInstanceTypes, EbsInfo). Instance store volumes and accelerators are subtracted
from it, and of shared limits one network interface. The VPC CNI attaches a second one from the start, and the volumes
that the node comes with count too. Source: Amazon EBS User Guide, "Amazon EBS volume limits for Amazon EC2 instances".
Once a node is there, its CSINode says what the EBS driver counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.instance_types.catalog import Hardware

_FURTHER_INTERFACES = 1
"""Network interfaces besides the first that a node has when its EBS driver counts."""


def attachable_volumes(hardware: Hardware, *, own_volumes: int) -> int | None:
    """How many volumes pods may attach; None if EC2 doesn't say. ``own_volumes``: those that the node comes with."""
    if not hardware.ebs_attachments:
        return None
    interfaces = min(_FURTHER_INTERFACES, max(0, hardware.interfaces - 1)) if hardware.shared_attachments else 0
    return max(0, hardware.ebs_attachments - interfaces - max(1, own_volumes))
