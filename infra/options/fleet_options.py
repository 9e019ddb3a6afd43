"""The context key ``fleet``, and what doesn't go with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.options.stack_options import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FLEET = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,39}")


def fleet(context: Mapping[str, object]) -> str:
    """The name of the fleet that the clusters belong to, "" for none.

    Raises:
        OptionError: the name can't be part of a stack's name, or another key doesn't go with a fleet.
    """
    name = str(context.get("fleet", ""))
    if not name:
        return ""
    if not _FLEET.fullmatch(name):
        raise OptionError(f'-c fleet={name}: must be letters, digits and "-", at most 40')
    if context.get("cluster"):
        raise OptionError(
            f"-c fleet={name}: takes all its clusters from the list clusters, because it looks for silent ones; leave "
            "-c cluster out, and name a stack to deploy only that"
        )
    if str(context.get("mode", "")).lower() == "shadow":
        raise OptionError(
            f"-c fleet={name}: shadow mode compares each cluster by itself and shares nothing; leave -c fleet out"
        )
    return name
