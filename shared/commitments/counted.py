"""The commitments that a deployment counts; few do, so nothing is imported for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.commitments.commitment import Commitments
    from shared.settings import CommitmentSettings


def counted_commitments(settings: CommitmentSettings, bucket: str) -> Commitments | None:
    """The account's commitments as the catalog function has read them; None if the deployment doesn't count them."""
    if settings.commitments != "on":
        return None
    from shared.commitments import store  # noqa: PLC0415 (see the module)

    return store.load(settings, bucket)
