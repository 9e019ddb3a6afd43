"""The names of a cluster's AWS resources: ``tenon-<cluster>-<purpose>``.

They are set explicitly, because operators can't recognise names that CloudFormation generates. A cluster name that is
too long is cut and gets a hash suffix.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from infra import function_sizes

if TYPE_CHECKING:
    from collections.abc import Collection

QUEUE_LENGTH = 80
FUNCTION_LENGTH = 64
_RULE_LENGTH = 64
_TABLE_LENGTH = 255
_LONGEST_RULE = len("reservation-interruption")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_DIGEST = 8
RUNBOOK_SEPARATOR = " What to do: "
"""Between an alarm's description and the link to its runbook."""


def name(cluster: str, purpose: str, *, longest: int, suffix: str = "") -> str:
    """The name of one of a cluster's resources, at most ``longest`` characters with its suffix."""
    return f"tenon-{_fitted(cluster, longest - len(f'tenon--{purpose}{suffix}'))}-{purpose}{suffix}"


def _fitted(cluster: str, length: int) -> str:
    """The cluster's name, cut and with a hash if it is longer."""
    return cluster if len(cluster) <= length else f"{cluster[: length - _DIGEST - 1]}-{_digest(cluster)}"


def _digest(cluster: str) -> str:
    return hashlib.sha256(cluster.encode()).hexdigest()[:_DIGEST]


def of_fleet(fleet: str) -> str:
    """What a fleet's names have in place of a cluster's: it begins with a hyphen, which no cluster's name does."""
    return f"-fleet-{fleet}"


def export(fleet: str, output: str) -> str:
    """The name under which a fleet's stack exports an output."""
    return f"{stack(of_fleet(fleet))}:{output}"


def table(owner: str, purpose: str) -> str:
    """A table's name."""
    return name(owner, purpose, longest=_TABLE_LENGTH)


def alarms(functions: Collection[str] = function_sizes.ALL) -> tuple[str, ...]:
    """The names of a cluster's alarms, without its prefix, which can be that of another cluster's names too."""
    return (
        "unwell",
        *(f"{function}-errors" for function in functions),
        *(f"{function}-slow" for function in functions if function not in function_sizes.WATCHING),
        *(f"{function}-queue-old" for function in function_sizes.QUEUES if function in functions),
        "dead-letters",
        "throttles",
        "recursion-stopped",
        "pods-waiting",
        "relay-silent",
        "garbage-kept",
        "launches-fail",
        "hourly-limits",
        "catalog-stale",
    )


def stack(cluster: str) -> str:
    """The CloudFormation stack's name, which can't have the underscores that cluster names can.

    A name with underscores gets a hash, so that ``a_b`` and ``a-b`` have stacks of their own.
    """
    return f"tenon-{cluster.replace('_', '-')}" + (f"-{_digest(cluster)}" if "_" in cluster else "")


def rule_prefix(cluster: str) -> str:
    """The prefix of the names of the cluster's EventBridge rules.

    It ends with a period, which a cluster's name can't have: ``tenon-a.*`` has no rule of a cluster ``a-b``.
    """
    return f"tenon-{_fitted(cluster, _RULE_LENGTH - len('tenon-.') - _LONGEST_RULE)}."


def rule(cluster: str, construct_id: str) -> str:
    """An EventBridge rule's name: the prefix, and the construct's id in lower case."""
    return f"{rule_prefix(cluster)}{words(construct_id)}"


def words(construct_id: str) -> str:
    """A construct's id in lower case, with hyphens between its words."""
    return _WORD.sub("-", construct_id).lower()


def queue(cluster: str, purpose: str, *, fifo: bool) -> str:
    """A queue's name; a FIFO queue's has to end in ``.fifo``."""
    return name(cluster, purpose, longest=QUEUE_LENGTH, suffix=".fifo" if fifo else "")


def function(cluster: str, purpose: str) -> str:
    """A function's name."""
    return name(cluster, purpose, longest=FUNCTION_LENGTH)
