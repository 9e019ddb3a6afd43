"""The options of a demo in a throw-away cluster: its own API server, scheduler and controllers, in real time.

AWS, kubelets, functions and the relay run in this process, as in the embedded cluster. Machines boot quickly, because
people wait for them.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from cli.errors import CommandError, UsageError
from local.kubelets.behavior import Timing
from local.real.cluster import KubeconfigError, OccupiedClusterError, RealControlPlane, kubernetes_version
from local.world import Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMING = Timing(boot=(8.0, 12.0), ready=(2.0, 3.0))
_CONCURRENCY = 8


def options(kubeconfig: Path, *, allow_nodes: bool) -> Options:
    """The options of a world in the kubeconfig's cluster.

    Raises:
        UsageError: the kubeconfig can't be read, or its cluster doesn't answer.
    """
    with errors_of_kubeconfigs():
        version = kubernetes_version(kubeconfig)
    control_plane = partial(RealControlPlane, kubeconfig, allow_nodes=allow_nodes)
    return Options(
        version=version, concurrency=_CONCURRENCY, timing=TIMING, control_plane=control_plane, hostility=None
    )


@contextlib.contextmanager
def errors_of_kubeconfigs() -> Iterator[None]:
    """Turn errors of the kubeconfig and its cluster into errors of the command.

    Raises:
        UsageError: the kubeconfig can't be read, or its cluster doesn't answer.
        CommandError: the cluster has nodes that take pods.
    """
    try:
        yield
    except KubeconfigError as error:
        raise UsageError(str(error)) from error
    except OccupiedClusterError as error:
        raise CommandError(f"{error} (--allow-nodes runs the demo there nevertheless)") from error
