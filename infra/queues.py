"""The queues: what is to be done, and where what can't be done is kept.

Provisioning is FIFO so that one decision is made at a time; the rest are standard. Each has a dead-letter queue of its
own kind, and one more keeps what EventBridge or Lambda could not deliver at all. Only TLS, encrypted at rest by SQS;
who may send is added by each rule that does (events.py), and nobody else is let in by the queue's policy.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import function_sizes, resource_names


class Queues(Construct):
    """Four queues by the function that they feed, their dead-letter queues, and ``undelivered``."""

    def __init__(self, scope: Construct, id_: str, *, cluster: str) -> None:
        super().__init__(scope, id_)
        self.by_function: dict[str, sqs.Queue] = {}
        self.dead_letters: dict[str, sqs.Queue] = {}
        for function, name in {
            function_sizes.PROVISIONER: "Provisioning",
            function_sizes.INTERRUPTION: "Interruption",
            function_sizes.TERMINATION: "Termination",
            function_sizes.DISRUPTION: "Disruption",
        }.items():
            fifo = function == function_sizes.PROVISIONER
            dead = self._dead_letter_queue(f"{name}DeadLetters", f"{name.lower()}-dead-letters", cluster, fifo=fifo)
            self.dead_letters[function] = dead
            self.by_function[function] = sqs.Queue(
                self,
                name,
                queue_name=resource_names.queue(cluster, name.lower(), fifo=fifo),
                fifo=True if fifo else None,
                # CloudFormation wants this key and the one before absent, not false, on a standard queue.
                content_based_deduplication=True if fifo else None,
                visibility_timeout=Duration.seconds(function_sizes.visibility(function)),
                retention_period=Duration.seconds(function_sizes.FEEDS[function].retention),
                dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=function_sizes.RECEIVES),
                encryption=sqs.QueueEncryption.SQS_MANAGED,
                enforce_ssl=True,
            )
        self.undelivered = self._dead_letter_queue("Undelivered", "undelivered", cluster, fifo=False)

    def _dead_letter_queue(self, id_: str, purpose: str, cluster: str, *, fifo: bool) -> sqs.Queue:
        return sqs.Queue(
            self,
            id_,
            queue_name=resource_names.queue(cluster, purpose, fifo=fifo),
            fifo=True if fifo else None,
            # A function that puts a message here by itself has no deduplication id to give.
            content_based_deduplication=True if fifo else None,
            retention_period=Duration.days(function_sizes.DEAD_LETTER_DAYS),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )
