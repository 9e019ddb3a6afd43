"""Where the embedded API server judges generated objects otherwise than the real one, and why that is left as it is.

Every entry is also in local/kubernetes/README.md. What no entry explains fails the test that finds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api.quantity import QuantityError, exact_quantity
from tests.real.differential import ledger_reasons
from tests.real.differential.comparison import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.real.differential.generated_objects import Json
    from tests.real.differential.object_answers import Disagreement


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why disagreements about these kinds and fields (regular expressions) are left if ``holds`` is true."""

    text: str
    kinds: str = ".*"
    fields: str
    holds: Callable[[Disagreement], bool] = lambda _: True

    def explains(self, disagreement: Disagreement) -> bool:
        """Whether the disagreement is of this kind."""
        return (
            re.fullmatch(self.kinds, disagreement.kind) is not None
            and re.fullmatch(self.fields, disagreement.field) is not None
            and self.holds(disagreement)
        )


def _is_missing_here(disagreement: Disagreement) -> bool:
    return bool(disagreement.embedded == ABSENT)


def _is_same_quantity(disagreement: Disagreement) -> bool:
    try:
        return exact_quantity(disagreement.real) == exact_quantity(disagreement.embedded)
    except (QuantityError, TypeError):
        return False


REASONS = (
    Reason(
        text="No service account is looked up: nothing runs in the pods.",
        kinds="Pod",
        fields="status",
        holds=lambda d: "error looking up service account" in d.real,
    ),
    Reason(text="Services get no addresses, and aren't validated: there is no network.", kinds="Service", fields=".*"),
    Reason(
        text="Claims and volumes get no finalizers that protect them: the controllers here delete none that is in use.",
        kinds="PersistentVolume(Claim)?",
        fields=r"metadata\.finalizers",
        holds=lambda d: "-protection" in str(d.real),
    ),
    Reason(
        text="A Job's failure and success policies aren't validated: Jobs here end when their pods do.",
        kinds="Job",
        fields=r"metadata\.name|spec\.((managedBy|backoffLimitPerIndex|successPolicy|maxFailedIndexes|podFailurePolicy|"
        r"completionMode|completions|parallelism|podReplacementPolicy|template\.spec\.restartPolicy)($|[.\[].*))",
        holds=_is_missing_here,
    ),
    Reason(
        text="A claim's data sources aren't compared with each other: nothing here copies data.",
        fields=r"spec|.*volumeClaimTemplates?(\[\d+\])?\.spec",
        kinds="PersistentVolumeClaim|StatefulSet|Pod",
        holds=_is_missing_here,
    ),
    Reason(
        text="Windows' containers and user namespaces aren't validated: no node here runs them.",
        fields=r"(.*\.)?(spec|hostNetwork|shareProcessNamespace|hostPID|hostIPC)",
        kinds="Pod|PodTemplate|DaemonSet|Deployment|ReplicaSet|StatefulSet|Job",
        holds=_is_missing_here,
    ),
    Reason(
        text="An empty runtimeClassName is refused as an unknown class, and not with an error of the server.",
        kinds="Pod",
        fields="status",
        holds=lambda d: d.real == "500 resource name may not be empty",
    ),
    Reason(
        text="A quantity is always written in its canonical text; a real server keeps some as they were sent.",
        fields=".*",
        holds=_is_same_quantity,
    ),
    Reason(
        text="The overhead of a RuntimeClass is rounded up to thousandths, as that of its pods is.",
        kinds="RuntimeClass",
        fields=r"overhead\.podFixed\..*",
        holds=lambda d: not d.is_error and str(d.real).endswith(("u", "n")),
    ),
    Reason(
        text="A real server looks at the volumes that a StatefulSet adds in no fixed order.",
        kinds="StatefulSet",
        fields=r"spec\.template\.spec\.volumes\[\d+\]\..*",
    ),
    Reason(
        text="A source that isn't validated here may make a volume's name wrong, or keep it free for another.",
        fields=r".*volumes\[\d+\]\.name",
        holds=lambda d: (d.real, d.embedded) in {(ABSENT, "FieldValueDuplicate"), ("FieldValueInvalid", ABSENT)},
    ),
    Reason(
        text="The metadata of a claim's template isn't validated: only its labels and annotations are used.",
        fields=r".*volumeClaimTemplates?(\[\d+\])?\.metadata\..*",
        holds=_is_missing_here,
    ),
    Reason(
        text="A CSIDriver keeps a field whose feature is off until 1.37: the embedded scheduler of 1.37 reads it.",
        kinds="CSIDriver",
        fields=r"spec\.preventPodSchedulingIfMissing",
        holds=lambda d: not d.is_error and d.real == ABSENT,
    ),
    Reason(
        text="A pod keeps its schedulingGroup, whose feature has to be switched on: gangs are made of it.",
        kinds="Pod|PodTemplate|DaemonSet|Deployment|ReplicaSet|ReplicationController|StatefulSet|Job|CronJob",
        fields=r"(.*\.)?spec\.schedulingGroup",
        holds=lambda d: not d.is_error and d.real == ABSENT,
    ),
    Reason(
        text="A Job whose template has an empty map of labels gets labels of its own that aren't validated here.",
        kinds="Job",
        fields=r"metadata\.labels",
        holds=_is_missing_here,
    ),
)
"""All of them, each with its reason."""


def reason_for(obj: Json, disagreement: Disagreement) -> str:
    """Why the disagreement about the object is left; empty if nothing explains it."""
    listed = next((reason.text for reason in REASONS if reason.explains(disagreement)), "")
    return listed or ledger_reasons.reason(obj["apiVersion"], obj["kind"], disagreement.field)
