"""One look at everything that lives: claims come to their nodes, statuses say what is, what is left behind is found.

Each object is dealt with on its own: what goes wrong with one is logged with its name, and the others go on. Nothing
here terminates anything: claims are deleted, and what must be drained or terminated is told to the termination
function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.lifecycle import cluster_metrics, garbage_collection, nodeclaim_lifecycle, status
from functions.lifecycle.context import Report, Run
from shared import runtime
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.snapshot_reader import read_snapshot

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from functions.lifecycle.settings import LifecycleSettings


def look(settings: LifecycleSettings, *, logger: Logger, everywhere: bool, classes: bool) -> Report:
    """Bring everything forward.

    ``classes``: also see what AWS makes of the node classes now; ``everywhere``: also compare with EC2 and clear
    up. Both cost calls, and a node that joins waits for neither.
    """
    client = connect(settings)
    run = Run(settings=settings, client=client, recorder=recorder(client), logger=logger, now=runtime.current().now())
    snapshot = read_snapshot(client, now=run.now)
    failed = nodeclaim_lifecycle.bring_forward(run, snapshot)
    status.write(run, snapshot, failed, classes=classes)
    if classes:
        nodeclaim_lifecycle.adopt(run, snapshot)
    if everywhere:
        garbage_collection.collect(run, snapshot)
        cluster_metrics.tell(run, snapshot)
    return run.report
