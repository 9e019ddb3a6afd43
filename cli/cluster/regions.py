"""The AWS Regions that the local world can simulate."""

from __future__ import annotations

from cli.errors import UsageError


def known(region: str) -> str:
    """The same name of a Region.

    Raises:
        UsageError: the Region doesn't exist.
    """
    import boto3  # noqa: PLC0415 (slow to import)

    session = boto3.session.Session()
    names = {r for p in session.get_available_partitions() for r in session.get_available_regions("ec2", p)}
    if region not in names:
        raise UsageError(f'"{region}" is not an AWS Region; there are {", ".join(sorted(names))}')
    return region
