"""The name by which the user calls the command: ``tenon``, or ``kubectl tenon`` as kubectl's plugin."""

from __future__ import annotations

import sys
from pathlib import PurePath

TENON, PLUGIN = "tenon", "kubectl tenon"
DISTRIBUTION = "tenon-eks"
"""As infra.installation.DISTRIBUTION, which is too much to import for ``--version``."""


def name() -> str:
    """The name as it is typed, by that of the script which runs."""
    return PLUGIN if PurePath(sys.argv[0]).stem == "kubectl-tenon" else TENON
