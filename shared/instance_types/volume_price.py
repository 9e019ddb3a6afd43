"""What the volumes of a node cost: an amount that comes with each node, whatever its instance type. Pure.

Decisions compare prices with it, so that many small nodes aren't cheaper than a few large ones only because their
volumes aren't counted. Storage of any type counts as gp3; provisioned IOPS and throughput don't count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.ami_family.families import GIB, family_of
from shared.api.quantity import EPHEMERAL_STORAGE, parse_quantity
from shared.instance_types.provider import Adjustment

if TYPE_CHECKING:
    from shared.api.nodeclass import EC2NodeClass
    from shared.instance_types.instance_type import InstanceType

HOURS_A_MONTH = 730
GP3_PRICES = {"eu-west-1": 0.088, "eu-west-3": 0.0928, "us-east-1": 0.08}
"""USD for a GiB of gp3 for a month, by Region. Source: AWS's list prices ("Amazon EBS pricing")."""
DEFAULT_GP3_PRICE = 0.088
"""In Regions whose price wasn't looked up. For 20 GiB, a fifth more or less is 0.0005 USD per hour."""


def volume_gib(node_class: EC2NodeClass) -> int:
    """GiB of the volumes of each node of the class; those whose size only the image knows don't count.

    Raises:
        QuantityError: a volume's size is invalid.
    """
    mappings = node_class.spec.block_device_mappings
    if not mappings:
        return sum(volume.size_gib for volume in family_of(node_class).volumes)
    sizes = (m.ebs.volume_size for m in mappings if m.ebs is not None)
    return sum(-(-parse_quantity(EPHEMERAL_STORAGE, size) // GIB) for size in sizes if size is not None)


def volume_price(gib: int, region: str) -> float:
    """USD per hour of that many GiB in the Region."""
    return gib * GP3_PRICES.get(region, DEFAULT_GP3_PRICE) / HOURS_A_MONTH


def with_volumes(price: float) -> Adjustment | None:
    """Adds the price of a node's volumes (USD per hour) to the effective prices; None if they cost nothing."""
    if not price:
        return None

    def adjust(instance_type: InstanceType) -> InstanceType:
        return replace(instance_type, offerings=tuple(replace(o, volume_price=price) for o in instance_type.offerings))

    return Adjustment("volumes", price, adjust)
