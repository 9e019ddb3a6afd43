"""The SQS queues that trigger functions, and their dead-letter queues.

Provisioning is FIFO so that decisions are made one at a time; the other queues are standard. Each has a dead-letter
queue of its own type, and one more keeps what EventBridge or Lambda could not deliver. All require TLS and are
encrypted at rest by SQS. Only the rules that send to a queue may (event_rules.py), and nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import function_sizes
from infra.cluster import resource_names

if TYPE_CHECKING:
    from infra.options.stack_options import StackOptions

_PURPOSES = {
    function_sizes.PROVISIONER: "Provisioning",
    function_sizes.INTERRUPTION: "Interruption",
    function_sizes.TERMINATION: "Termination",
    function_sizes.DISRUPTION: "Disruption",
    function_sizes.BUFFERS: "Buffers",
    function_sizes.NODE_GROUPS: "Nodegroups",
}


class Queues(Construct):
    """The queues by function, their dead-letter queues, and ``undelivered``.

    ``delayed`` are second queues of functions, whose messages arrive later. ``undelivered`` is the fleet's queue if the
    cluster is of a fleet.
    """

    def __init__(self, scope: Construct, id_: str, *, options: StackOptions, undelivered: sqs.IQueue | None) -> None:
        super().__init__(scope, id_)
        cluster = options.cluster
        self.by_function: dict[str, sqs.Queue] = {}
        self.delayed: dict[str, sqs.Queue] = {}
        self.dead_letters: dict[str, sqs.Queue] = {}
        for function, name in _PURPOSES.items():
            if function not in options.functions:
                continue
            fifo = function == function_sizes.PROVISIONER
            self.dead_letters[function] = dead_letter_queue(
                self, f"{name}DeadLetters", f"{name.lower()}-dead-letters", cluster, fifo=fifo
            )
            self.by_function[function] = self._queue(name, function, cluster)
        if options.reads_demand:
            delay = Duration.seconds(function_sizes.SECOND_READ_SECONDS)
            self.delayed[function_sizes.BUFFERS] = self._queue(
                "BuffersDelayed", function_sizes.BUFFERS, cluster, delay=delay
            )
        self.own_undelivered: sqs.Queue | None = None
        if undelivered is None:
            undelivered = self.own_undelivered = dead_letter_queue(
                self, "Undelivered", "undelivered", cluster, fifo=False
            )
        self.undelivered = undelivered

    @property
    def all_dead_letters(self) -> tuple[sqs.Queue, ...]:
        """The cluster's queues that messages go to which nothing can handle; the fleet looks at its own."""
        own = () if self.own_undelivered is None else (self.own_undelivered,)
        return (*self.dead_letters.values(), *own)

    def _queue(self, id_: str, function: str, cluster: str, *, delay: Duration | None = None) -> sqs.Queue:
        fifo = function == function_sizes.PROVISIONER
        dead = self.dead_letters[function]
        return sqs.Queue(
            self,
            id_,
            queue_name=resource_names.queue(cluster, resource_names.words(id_), fifo=fifo),
            fifo=True if fifo else None,
            # On a standard queue CloudFormation requires that both keys are absent, not false.
            content_based_deduplication=True if fifo else None,
            delivery_delay=delay,
            visibility_timeout=Duration.seconds(function_sizes.visibility(function)),
            retention_period=Duration.seconds(function_sizes.QUEUES[function].retention),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=function_sizes.RECEIVES),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )


def dead_letter_queue(scope: Construct, id_: str, purpose: str, owner: str, *, fifo: bool) -> sqs.Queue:
    """A queue of messages that nothing can handle; ``owner`` is the cluster, or what its fleet's names have for it."""
    return sqs.Queue(
        scope,
        id_,
        queue_name=resource_names.queue(owner, purpose, fifo=fifo),
        fifo=True if fifo else None,
        # Functions that send messages here have no deduplication id.
        content_based_deduplication=True if fifo else None,
        retention_period=Duration.days(function_sizes.DEAD_LETTER_DAYS),
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
    )
