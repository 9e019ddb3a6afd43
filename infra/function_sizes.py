"""Memory, timeout and concurrency of each function, and the settings of the queue that triggers it.

They depend on each other (a queue's visibility timeout is mostly six function timeouts, as AWS recommends, or a slow
batch would be received twice), so constructs read them from here and the tests check the relation.
"""

from __future__ import annotations

from shared.base.struct import Struct

PROVISIONER = "provisioner"
LIFECYCLE = "lifecycle"
DISRUPTION = "disruption"
TERMINATION = "termination"
INTERRUPTION = "interruption"
CATALOG = "catalog"
RELAY = "relay"
FUNCTIONS = (PROVISIONER, LIFECYCLE, DISRUPTION, TERMINATION, INTERRUPTION, CATALOG, RELAY)
"""The Lambda functions of a deployment without options; the relay can also be a Deployment in the cluster."""
BUFFERS = "buffers"
NODE_GROUPS = "nodegroups"
WEBHOOK = "webhook"
ALL = (*FUNCTIONS, BUFFERS, NODE_GROUPS, WEBHOOK)
"""With those that not every deployment has: for queues, alarms and events that CapacityBuffers follow, for node groups,
and the admission webhook in place of the relay."""
SWEPT = (LIFECYCLE, DISRUPTION, INTERRUPTION)
"""The functions that the schedule of sweeps invokes without a message."""
OPTIONAL = (BUFFERS, NODE_GROUPS, RELAY, WEBHOOK)
WITHOUT_CLUSTER = frozenset({CATALOG, WEBHOOK})
"""The functions that never call the cluster."""
PUBLIC = frozenset({WEBHOOK})
"""The functions that anybody may invoke: their concurrency is always limited, so that requests can't use up the
account's."""
SHADOW = "shadow"
SHADOW_MODE = (CATALOG, SHADOW)
"""The functions of a deployment in shadow mode."""
OF_ANY_MODE = (*ALL, SHADOW)

RECURSIVE = frozenset({DISRUPTION, TERMINATION, NODE_GROUPS})
"""The functions that send messages to their own queue, as requeues. Lambda would drop such an invocation after about 16
in one chain (Lambda Developer Guide, "Recursive loop detection")."""

_WITHOUT_DETECTION = ("cn-", "us-gov-", "us-iso", "eu-isoe-", "mx-central-1", "ap-southeast-6")
"""The Regions, by the start of their names, where AWS documents no recursive loop detection (docs/facts/aws.md)."""

RECEIVES = 5
"""How often a message is received before SQS moves it to the dead-letter queue."""
VISIBILITY_FACTOR = 6
"""The visibility timeout in function timeouts, as AWS recommends for queues that trigger functions."""
DEAD_LETTER_DAYS = 14
"""The maximum retention of SQS."""
LOG_DAYS = 30
RUNTIME = {"OPENBLAS_NUM_THREADS": "1", "AWS_DATA_PATH": "/var/task/models"}
"""Environment variables of every function besides its settings. numpy's OpenBLAS starts a busy thread for each
processor. No function multiplies matrices, and on a share of one vCPU those threads slow the import down. The SDK looks
first for models of services in the bundle (infra/bundle/service_models.py)."""


def detects_recursion(region: str) -> bool:
    """Whether Lambda detects recursive loops in the Region; elsewhere a deployment with the setting may fail."""
    return not region.startswith(_WITHOUT_DETECTION)


class Size(Struct, kw_only=True):
    """A function's memory (MiB; 1769 is one vCPU), timeout (s), and reserved concurrency (None: the account's)."""

    memory: int
    timeout: int
    reserved: int | None = None


INTERRUPTION_SECONDS = 22
"""Measured by `make bench ARGS=function_resources`: the interruption function's first invocation for a hundred
warnings in a cluster of 5,000 nodes / 100,000 pods, with 50 ms for each page of a list, 1 s for each page of
DescribeInstances and 10 s for each CreateFleet."""

_ONE_VCPU = 1769
"""MiB. Functions that pods or spot instances wait for get a whole processor. This memory is enough for clusters three
times as large as the measured ones."""
HALF_VCPU = 885
"""MiB. Functions that mostly sweep wait for the Kubernetes API and AWS more than they compute. With half of a processor
they compute for twice as long, which costs the same, and wait at half the price. `-c sweepMemory` for large clusters,
where their processor time counts."""

SIZES = {
    # Measured by `make bench ARGS=function_resources`, on 5,000 nodes / 100,000 pods: 270 MiB and 7.4 s. A FIFO queue
    # with one message group allows one invocation at a time.
    PROVISIONER: Size(memory=_ONE_VCPU, timeout=60),
    # 240 MiB and 7.6 s of a vCPU for a sweep; for 1,000 nodes 2.3 s, during which joining nodes wait.
    # EventBridge invokes it directly. One at a time: Lambda queues a burst of node events instead of making a burst of
    # calls to EC2 and the Kubernetes API.
    LIFECYCLE: Size(memory=HALF_VCPU, timeout=60, reserved=1),
    # 270 MiB and 14 s of a vCPU. The consolidation search uses at most half of the remaining timeout.
    DISRUPTION: Size(memory=HALF_VCPU, timeout=120),
    # 55 MiB, but 5 s for the pods of 100 nodes: after many spot warnings at once, all of them have two minutes.
    TERMINATION: Size(memory=_ONE_VCPU, timeout=60),
    # The same decision as provisioning's: 300 MiB and 9.5 s of work for a hundred warnings. The timeout holds
    # INTERRUPTION_SECONDS, and is its queue's visibility timeout: a message whose invocation died is received again a
    # minute before EC2 reclaims the instance, which is enough for a drain with grace periods. NodeClaims are deleted in
    # the first seconds; what a failure loses after that, the next decision repeats.
    INTERRUPTION: Size(memory=_ONE_VCPU, timeout=60),
    # 85 MiB and 2.3 s of work; the rest of the timeout is for AWS's price lists, which are slow. One at a time: two
    # concurrent refreshes would request the same pages twice.
    CATALOG: Size(memory=1024, timeout=300, reserved=1),
    # The same snapshot as for disruption, and up to thirty simulations.
    NODE_GROUPS: Size(memory=_ONE_VCPU, timeout=60),
    # The snapshot and searches of disruption. Its timeout is the shortest interval, so that runs don't overlap.
    SHADOW: Size(memory=_ONE_VCPU, timeout=120),
    # 20 ms: it lists CapacityBuffers only, and waits for SQS, CloudWatch and the Kubernetes API most of the time.
    BUFFERS: Size(memory=512, timeout=60),
    # `-c relayMemory` for larger clusters; measured by `make bench ARGS=relay`. The timeout is Lambda's limit. Three
    # at a time: the one that holds the watch, its successor, and the check of each minute.
    RELAY: Size(memory=128, timeout=900, reserved=3),
    # It needs 60 MiB; more is for a share of a processor, because the API server waits for it (`make bench
    # ARGS=webhook`). Five at a time are hundreds of pods a second.
    WEBHOOK: Size(memory=256, timeout=5, reserved=5),
}
WATCHING = frozenset({RELAY})
"""The functions whose invocations last until they are succeeded: that is no error, and a failed one isn't retried."""
SWEEPING = frozenset({LIFECYCLE, DISRUPTION})
"""The functions whose memory is `-c sweepMemory`."""
LARGE_CLUSTER, LARGEST_CLUSTER = 5_000, 15_000
"""Nodes up to which the sizes above are enough, and up to which functions are measured."""
_LARGE_MEMORY = {LIFECYCLE: _ONE_VCPU, DISRUPTION: _ONE_VCPU, RELAY: 1024}
"""MiB for clusters of more nodes, each with thirty pods."""
LEAST_MEMORY, MOST_MEMORY = 128, 10240
"""MiB that Lambda has."""
RELAY_RUNTIME = {"MALLOC_ARENA_MAX": "1"}
"""Environment variables of the relay: its threads wait, so an arena of memory for each of them would be wasted."""


class QueueSettings(Struct, kw_only=True):
    """Retention (s) and batch size of a function's queue.

    ``concurrency`` is the maximum of concurrent batches where concurrency is reserved, which batches beyond it would
    meet as throttles (None: one, as the queue is FIFO).

    ``window`` is the batching window (s), which AWS requires for batches of more than ten. ``visibility`` is the
    visibility timeout (s) where six function timeouts would be too long.
    """

    retention: int
    batch: int = 10
    concurrency: int | None = None
    window: int = 0
    visibility: int | None = None


QUEUES = {
    # Hints are repeated each minute, so old ones are useless after an outage.
    PROVISIONER: QueueSettings(retention=3600),
    # Two minutes after a spot warning there is nothing left to drain. Batches are large, because many warnings are one
    # decision, but no larger than the timeout allows; two of them can't decide at once. A message is received again a
    # minute after its invocation died: six timeouts would be longer than the notice. What that is meant for, batches
    # that Lambda throttles and retries, costs little here, as a second delivery changes nothing.
    INTERRUPTION: QueueSettings(retention=300, batch=100, window=1, concurrency=2, visibility=60),
    # Delayed messages continue long drains; four days outlast any outage that is noticed.
    TERMINATION: QueueSettings(retention=4 * 86400, concurrency=5),
    DISRUPTION: QueueSettings(retention=3600, concurrency=2),
    # As for interruptions; a message is received again a minute after its invocation died. Delayed messages continue
    # drains that hooks wait for.
    NODE_GROUPS: QueueSettings(retention=4 * 86400, concurrency=2, visibility=60),
    # Users' events come singly or in storms, of which the first counts. A message is received again a minute after its
    # invocation died, because an event is for a quarter of an hour.
    BUFFERS: QueueSettings(retention=3600, concurrency=2, visibility=60),
}
SECOND_READ_SECONDS = 30
"""The delay of the queue that repeats each minute's read of queues and alarms: EventBridge's schedules are whole
minutes, and a message to itself would be a loop."""


def memory(function: str, cluster_size: int) -> int:
    """MiB that the function needs in a cluster of that many nodes (`-c clusterSize`)."""
    least = SIZES[function].memory
    return max(least, _LARGE_MEMORY.get(function, least)) if cluster_size > LARGE_CLUSTER else least


def visibility(function: str) -> int:
    """Visibility timeout, in seconds, of the queue that triggers the function."""
    return QUEUES[function].visibility or VISIBILITY_FACTOR * SIZES[function].timeout
