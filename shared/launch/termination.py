"""Terminating instances. Apart from everything else, because only the function that may terminate imports it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws
from shared.launch.node_class.selector_terms import code

if TYPE_CHECKING:
    from collections.abc import Sequence

_A_CALL = 500
"""Instance ids in one call; EC2 takes 1,000 and advises fewer."""
_NOT_FOUND = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_ID = re.compile(r"\bi-[0-9a-f]+\b")


def terminate(instance_ids: Sequence[str]) -> tuple[str, ...]:
    """Terminate the instances, in batches; returns those that EC2 knew. One that is gone already is no error.

    EC2 refuses a whole batch for one unknown id, so that id is taken out and the rest is asked for again.

    Raises:
        ClientError: EC2 refused for another reason; terminating again is harmless.
    """
    known: list[str] = []
    wanted = list(dict.fromkeys(instance_ids))
    for start in range(0, len(wanted), _A_CALL):
        known += _terminate(wanted[start : start + _A_CALL])
    return tuple(known)


def _terminate(batch: list[str]) -> list[str]:
    while batch:
        try:
            aws.ec2().terminate_instances(InstanceIds=batch)
        except ClientError as error:
            if code(error) not in _NOT_FOUND:
                raise
            unknown = set(_ID.findall(error.response["Error"].get("Message", ""))) & set(batch)
            if not unknown:
                return [i for one in batch for i in _terminate([one])] if len(batch) > 1 else []
            batch = [i for i in batch if i not in unknown]
        else:
            return batch
    return []
