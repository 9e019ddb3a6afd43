"""Whether a Region exists: for the local world, which simulates those that boto3 knows, and for AWS's own calls."""

from __future__ import annotations

import boto3
from botocore.exceptions import UnknownRegionError

from cli.errors import UsageError


def known(region: str) -> str:
    """The same name of a Region.

    Raises:
        UsageError: boto3 doesn't know the Region, so the local world can't simulate it.
    """
    names = _names()
    if region not in names:
        raise UsageError(_unknown(region, names))
    return region


def existing(region: str) -> str:
    """The same name of a Region. It may be newer than boto3's list, if AWS would name one like this.

    Raises:
        UsageError: no Region is named like this.
    """
    try:
        boto3.session.Session().get_partition_for_region(region)
    except UnknownRegionError as error:
        raise UsageError(_unknown(region, _names())) from error
    return region


def _names() -> set[str]:
    session = boto3.session.Session()
    return {r for p in session.get_available_partitions() for r in session.get_available_regions("ec2", p)}


def _unknown(region: str, names: set[str]) -> str:
    return f'"{region}" is not an AWS Region; there are {", ".join(sorted(names))}'
