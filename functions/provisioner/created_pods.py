"""Hints of the webhook about new pods: when they are due, and whether they need a decision.

A pod at admission isn't Unschedulable yet, so its hint waits until kube-scheduler has tried the pod: the message is
made visible later. Most new pods then have a node, so a list of the pods without one comes before a decision, which
reads the whole cluster. A FIFO queue can't delay single messages, and a queue of its own would cost its empty receives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api import pods
from shared.api.kubernetes import Pod
from shared.api.meta import condition
from shared.base import hints, queues
from shared.cluster import resources
from shared.cluster.errors import ApiError
from shared.cluster.listing import list_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from shared.base.queues import Message
    from shared.cluster.client import Client

SETTLING_SECONDS = 3
"""From the first pod of a message to its decision: the webhook's batch of two seconds, and one for kube-scheduler."""
_RETRY_SECONDS = 2
MAX_RECEIVES = 4
"""After this many receives a hint is given up, before SQS counts it as a dead letter: the sweep finds its pods."""
_PENDING = "spec.nodeName=,status.phase=Pending"


def _is_about_created_pods(message: Message) -> bool:
    return message.hint.detail_type == hints.PODS_CREATED


def provision(
    event: Mapping[str, Any],
    messages: Sequence[Message],
    client: Client,
    decide: Callable[[Sequence[Message]], Collection[str]],
    *,
    now: datetime,
) -> dict[str, int]:
    """Provision if one of the new pods needs a node; ``decide`` returns the ids of the messages to deliver again.

    Returns the ids of all messages to deliver again, those that aren't due yet among them, with the seconds until then.
    """
    delays = _early(event, messages, now)
    due = [m for m in messages if m.id not in delays]
    if not due:
        return delays
    receives = queues.receive_counts(event)
    given_up = {m.id for m in due if _is_about_created_pods(m) and receives[m.id] >= MAX_RECEIVES}
    again = _decide(due, client, decide, receives)
    return delays | {id_: seconds for id_, seconds in again.items() if id_ not in given_up}


def _decide(
    due: Sequence[Message],
    client: Client,
    decide: Callable[[Sequence[Message]], Collection[str]],
    receives: Mapping[str, int],
) -> dict[str, int]:
    """Decide, unless none of the new pods needs a node; the ids to deliver again, with the seconds until then."""
    pending = _pending(client) if all(_is_about_created_pods(m) for m in due) else None
    untried = pending.retry_seconds if pending is not None else 0
    again = {m.id: untried for m in due} if untried else {}
    if pending is None or pending.need_decision:
        again |= {id_: queues.retry_seconds(receives[id_]) for id_ in decide(due)}
    return again


def _early(event: Mapping[str, Any], messages: Iterable[Message], now: datetime) -> dict[str, int]:
    """The ids of hints that aren't due yet, with the seconds until then."""
    sent = {r["messageId"]: int(r["attributes"]["SentTimestamp"]) / 1000 for r in event["Records"]}
    remaining = {m.id: SETTLING_SECONDS - (now.timestamp() - sent[m.id]) for m in messages if _is_about_created_pods(m)}
    return {id_: min(int(seconds) + 1, SETTLING_SECONDS) for id_, seconds in remaining.items() if seconds > 0}


def _pending(client: Client) -> PendingPods | None:
    """The pods without a node; None if they can't be read: then the decision finds out why."""
    try:
        return PendingPods.read(client)
    except ApiError:
        return None


class PendingPods:
    """The pods without a node, of one list."""

    def __init__(self, pending: Collection[Pod]) -> None:
        self.need_decision = any(pods.is_provisionable(pod) for pod in pending)
        """Whether a new node is wanted for one of them."""
        self.retry_seconds = _RETRY_SECONDS if any(_is_untried(pod) for pod in pending) else 0
        """When to look again, because kube-scheduler has not tried one of them; 0 if it has tried all."""

    @classmethod
    def read(cls, client: Client) -> PendingPods:
        """Those of the cluster.

        Raises:
            ApiError: the API server can't be read.
        """
        return cls(list_objects(client, resources.PODS, Pod, fields=_PENDING).objects)


def _is_untried(pod: Pod) -> bool:
    return pods.is_pending(pod) and condition(pod.status.conditions, "PodScheduled") is None
