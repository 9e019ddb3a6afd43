"""How large, how long and how many at once: the figures of each function and queue, in one place.

They hang together (a queue's visibility is six function timeouts, as AWS asks, or a slow batch would be handed out
twice), so constructs read them from here and the tests hold the relation.
"""

from __future__ import annotations

from dataclasses import dataclass

PROVISIONER = "provisioner"
LIFECYCLE = "lifecycle"
DISRUPTION = "disruption"
TERMINATION = "termination"
INTERRUPTION = "interruption"
CATALOG = "catalog"
FUNCTIONS = (PROVISIONER, LIFECYCLE, DISRUPTION, TERMINATION, INTERRUPTION, CATALOG)
"""The Lambda functions; the relay is a container in the cluster."""

RECEIVES = 5
"""How often a message is tried before SQS puts it into the dead-letter queue."""
VISIBILITY_FACTOR = 6
"""Visibility in function timeouts: AWS's own figure for queues that feed Lambda."""
DEAD_LETTER_DAYS = 14
"""As long as SQS keeps anything."""
LOG_DAYS = 30
RUNTIME = {"OPENBLAS_NUM_THREADS": "1"}
"""Environment of every function beside its settings. numpy's OpenBLAS starts a thread for each processor it sees, and
they spin; nothing here multiplies matrices, and on a share of one vCPU that time is taken from the import."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A function's memory (MiB; 1769 is one vCPU), timeout (s), and reserved concurrency (None: the account's)."""

    memory: int
    timeout: int
    reserved: int | None = None


_ONE_VCPU = 1769
"""MiB. All that decides or moves pods gets a whole processor: most of it is work, so half the memory takes nearly twice
as long and saves little (20 cents a month where lifecycle and termination had less). The memory itself would do for
clusters three times as large as those measured."""

SIZES = {
    # Measured by `make bench ARGS=function_resources`, on 5,000 nodes / 100,000 pods: 480 MiB and 2.9 s. A FIFO queue
    # with one message group allows one invocation at a time.
    PROVISIONER: Size(memory=_ONE_VCPU, timeout=60),
    # 550 MiB and 7.6 s a sweep, 2.7 s without a whole vCPU where there are 1,000 nodes: a node that joins meanwhile
    # waits for it. Invoked by EventBridge directly. One at a time: a storm of node events is a queue that Lambda keeps,
    # not a storm of calls to EC2 and the Kubernetes API.
    LIFECYCLE: Size(memory=_ONE_VCPU, timeout=60, reserved=1),
    # 480 MiB and 6 s, of which the search for savings takes what it is given: half of what is left of the time-out.
    DISRUPTION: Size(memory=_ONE_VCPU, timeout=120),
    # 55 MiB, but 5 s for the pods of 100 nodes: after a wave of spot warnings they all have two minutes.
    TERMINATION: Size(memory=_ONE_VCPU, timeout=60),
    # The same decision as provisioning's, 500 MiB and 3.8 s for a hundred warnings. Short, so that a warning whose
    # first try died comes back, by the queue's visibility, a minute before EC2 takes the machine: time for a drain, and
    # pods' own grace. Machines are given up in the first seconds, and what a kill loses after that any other decision
    # makes good.
    INTERRUPTION: Size(memory=_ONE_VCPU, timeout=10),
    # 85 MiB and 2.3 s of work; the rest of the time-out is for AWS's price lists, which come slowly. One at a time: two
    # refreshes at once would ask for the same pages twice.
    CATALOG: Size(memory=1024, timeout=300, reserved=1),
}


@dataclass(frozen=True, kw_only=True)
class Feed:
    """How a queue feeds its function: retention (s), messages a batch, batches at once (None: FIFO's one).

    ``window`` is how long a batch is gathered (s); AWS asks for one where a batch is larger than ten.
    """

    retention: int
    batch: int = 10
    concurrency: int | None = None
    window: int = 0


FEEDS = {
    # Hints are sent anew each minute, so old ones are only noise after an outage.
    PROVISIONER: Feed(retention=3600),
    # Two minutes after a spot warning there is nothing left to drain. Large batches, because many warnings are one
    # decision, but no larger than the time-out allows; and few at once, because only one can decide: two is the least
    # that Lambda has.
    INTERRUPTION: Feed(retention=300, batch=100, window=1, concurrency=2),
    # Long drains are continued by delayed messages; four days outlast any outage that is noticed.
    TERMINATION: Feed(retention=4 * 86400, concurrency=5),
    DISRUPTION: Feed(retention=3600, concurrency=2),
}


def visibility(function: str) -> int:
    """Visibility timeout, in seconds, of the queue that feeds the function."""
    return VISIBILITY_FACTOR * SIZES[function].timeout
