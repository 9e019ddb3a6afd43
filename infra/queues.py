"""The queues: what is to be done, and where what can't be done is kept.

Provisioning is FIFO so that one decision is made at a time; the rest are standard. Each has a dead-letter queue of its
own kind, and one more keeps what EventBridge or Lambda could not deliver at all. Only TLS, encrypted at rest by SQS;
who may send is added by each rule that does (events.py), and nobody else is let in by the queue's policy.
"""

from __future__ import annotations

import hashlib

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import sizes

_NAME_LENGTH = 80


def fifo_name(cluster: str, purpose: str) -> str:
    """A FIFO queue's name, which has to end in ``.fifo`` and so is said, not made up; long clusters are shortened."""
    room = _NAME_LENGTH - len(f"tenon--{purpose}.fifo")
    if len(cluster) > room:
        digest = hashlib.sha256(cluster.encode()).hexdigest()[:8]
        cluster = f"{cluster[: room - 9]}-{digest}"
    return f"tenon-{cluster}-{purpose}.fifo"


class Queues(Construct):
    """Four queues by the function that they feed, their dead-letter queues, and ``undelivered``."""

    def __init__(self, scope: Construct, id_: str, *, cluster: str) -> None:
        super().__init__(scope, id_)
        self.by_function: dict[str, sqs.Queue] = {}
        self.dead_letters: dict[str, sqs.Queue] = {}
        for function, name in {
            sizes.PROVISIONER: "Provisioning",
            sizes.INTERRUPTION: "Interruption",
            sizes.TERMINATION: "Termination",
            sizes.DISRUPTION: "Disruption",
        }.items():
            fifo = function == sizes.PROVISIONER
            dead = self._dead_letter_queue(
                f"{name}DeadLetters", name=fifo_name(cluster, "provisioning-dead-letters") if fifo else None
            )
            self.dead_letters[function] = dead
            self.by_function[function] = sqs.Queue(
                self,
                name,
                queue_name=fifo_name(cluster, "provisioning") if fifo else None,
                # CloudFormation wants the key absent, not false, on a standard queue.
                fifo=True if fifo else None,
                content_based_deduplication=True if fifo else None,
                visibility_timeout=Duration.seconds(sizes.visibility(function)),
                retention_period=Duration.seconds(sizes.FEEDS[function].retention),
                dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=sizes.RECEIVES),
                encryption=sqs.QueueEncryption.SQS_MANAGED,
                enforce_ssl=True,
            )
        self.undelivered = self._dead_letter_queue("Undelivered", name=None)

    def _dead_letter_queue(self, id_: str, *, name: str | None) -> sqs.Queue:
        # Only FIFO queues are named.
        return sqs.Queue(
            self,
            id_,
            queue_name=name,
            fifo=True if name else None,
            # A function that puts a message here by itself has no deduplication id to give.
            content_based_deduplication=True if name else None,
            retention_period=Duration.days(sizes.DEAD_LETTER_DAYS),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )
