"""Reads the account's commitments and stores them next to the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base import aws
from shared.commitments import reading, store

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from shared.base.runtime import Runtime


def refresh(bucket: str, *, runtime: Runtime, logger: Logger) -> None:
    """Read and store the commitments; what AWS doesn't answer is a problem of theirs, which NodePools show.

    Raises:
        ClientError: they can't be stored.
    """
    s3, region = aws.s3(), aws.ec2().meta.region_name
    previous = store.last_reading(s3, bucket, runtime=runtime)
    commitments = reading.read(aws, previous, region=region, now=runtime.now())
    size = store.save(s3, bucket, commitments, runtime=runtime)
    if commitments.problem:
        logger.warning("Not all commitments count", extra={"why": commitments.problem})
    logger.info(
        "Read the commitments",
        extra={
            "reserved_instances": len(commitments.reserved),
            "savings_plans": len(commitments.plans),
            "running_instances": sum(sum(kinds.values()) for kinds in commitments.usage.values()),
            "bytes": size,
        },
    )


def read_if_missing(bucket: str, *, runtime: Runtime, logger: Logger) -> None:
    """Read the commitments if none are stored: a new deployment doesn't wait for the hour's schedule.

    Raises:
        ClientError: they can't be stored.
    """
    if store.last_reading(aws.s3(), bucket, runtime=runtime) is None:
        refresh(bucket, runtime=runtime, logger=logger)
