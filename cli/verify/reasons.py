"""Why something didn't happen in time: what functions were denied, what conditions say, and the latest warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from cli.verify import denials, objects
from shared.cluster import resources
from shared.cluster.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.verify.objects import Obj
    from cli.verify.verification import Verification

_MAX_REASONS = 2
_UNSPECIFIC = frozenset({"Ready", "Initialized"})
"""Conditions that only sum up others."""


def because(run: Verification, *names: str) -> str:
    """The reasons that are known for the run's objects and those of these names, as ": …"; "" if there are none."""
    reasons = list(dict.fromkeys([*_denials(run), *_conditions(run), *_warnings(run, names)]))[:_MAX_REASONS]
    return f": {'; '.join(reasons)}" if reasons else ""


def _denials(run: Verification) -> list[str]:
    try:
        return [denial.sentence for denial in denials.denials(run)]
    except (BotoCoreError, ClientError):
        return []


def _conditions(run: Verification) -> Iterator[str]:
    """Messages of conditions that aren't True, of the run's node class, NodePool and NodeClaims."""
    for resource in (resources.NODE_CLASSES, resources.NODE_POOLS, resources.NODE_CLAIMS):
        for obj in run.list_objects(resource, labels=f"{objects.LABEL}={run.id}"):
            for condition in obj.get("status", {}).get("conditions") or ():
                message = condition.get("message", "")
                if condition["status"] == "False" and message and condition["type"] not in _UNSPECIFIC:
                    yield f"{obj['kind']} {obj['metadata']['name']} has {condition['type']}=False, {message}"


def _warnings(run: Verification, names: tuple[str, ...]) -> list[str]:
    """The latest warnings about objects of the run, and of these names."""
    wanted = {run.name, *names, *(claim["metadata"]["name"] for claim in run.claims())}
    try:
        events = [e for space in (run.name, "default") for e in run.list_objects(resources.EVENTS, namespace=space)]
    except ApiError:
        return []
    about = [e for e in events if e.get("type") == "Warning" and e["involvedObject"].get("name") in wanted]
    about.sort(key=_time, reverse=True)
    return [f"{e['involvedObject']['kind']} {e['involvedObject']['name']}: {e.get('message', '')}" for e in about]


def _time(event: Obj) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
