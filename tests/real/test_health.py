"""kubectl, kstatus, Argo CD and Flux agree with what is true of Tenon's objects, in situations of a cluster's life."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from local.real.go_build import go
from shared.base.struct import Struct
from tests.real import health_situations
from tests.real.health_checkers import PROGRAM, flux, go_verdicts
from tests.unit.docs.gitops_page import EXPRESSIONS, PAGE, SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.real.health_situations import Observation


class Situation(Struct, kw_only=True):
    """What is true, the event with the reason, and the checkers whose own rules say otherwise, each with the reason."""

    truth: str
    event: str = ""
    exceptions: Mapping[str, tuple[str, str]] = {}


WAIT, READY, KSTATUS, ARGO, FLUX = "`kubectl wait`", "READY", "kstatus", "Argo CD", "Flux"
CHECKERS = (WAIT, READY, KSTATUS, ARGO, FLUX)
_VERDICTS = {
    "it works": ("ends", "True", "Current", "Healthy", "Current"),
    "it waits": ("waits", "Unknown", "InProgress", "Progressing", "InProgress"),
    "it can't work": ("waits", "False", "InProgress", "Degraded", "Failed"),
    "it is leaving": ("waits", "True", "Terminating", "Progressing", "Terminating"),
}
"""By what is true: what each checker should say. kstatus calls Failed only what has the condition Stalled. A node that
drains is Ready, and still READY; its condition is of the generation before the deletion, so kubectl wait waits."""
NO_STATUS = "it has no status yet, and kstatus takes that for no need of one; so with Karpenter"
STALE = "it doesn't compare the condition's observedGeneration; so with Karpenter"
NO_READY = "it has no condition Ready, and kstatus knows no other"
SITUATIONS = {
    "EC2NodeClass, all that it selects is there": Situation(truth="it works"),
    "EC2NodeClass, no subnet has its tags": Situation(truth="it can't work", event="SubnetsNotFound"),
    "NodePool, it launches nodes": Situation(truth="it works"),
    "NodePool, its class doesn't exist": Situation(truth="it can't work", event="NodeClassNotFound"),
    "NodePool, no such instance type exists": Situation(truth="it can't work", event="NoCompatibleInstanceTypes"),
    "NodePool, its limits are reached": Situation(truth="it works", event="FailedScheduling"),
    "NodePool, EC2 has no capacity": Situation(truth="it works", event="FailedScheduling"),
    "NodePool, just edited to a class that doesn't exist": Situation(
        truth="it waits",
        exceptions={
            checker: (said, STALE) for checker, said in ((READY, "True"), (KSTATUS, "Current"), (ARGO, "Healthy"))
        },
    ),
    "NodePool, the same a minute later": Situation(truth="it can't work", event="NodeClassNotFound"),
    "NodeClaim, just created": Situation(
        truth="it waits",
        exceptions={READY: ("", NO_STATUS), KSTATUS: ("Current", NO_STATUS), FLUX: ("Current", NO_STATUS)},
    ),
    "NodeClaim, its instance boots": Situation(truth="it waits", event="Launched"),
    "NodeClaim, a startup taint is left on its node": Situation(truth="it waits", event="Registered"),
    "NodeClaim, pods run on its node": Situation(truth="it works", event="Initialized"),
    "NodeClaim, its launch isn't permitted": Situation(truth="it can't work", event="UnauthorizedOperation"),
    "NodeClaim, drifted": Situation(truth="it works"),
    "NodeClaim, deleted, and a budget holds its pod": Situation(truth="it is leaving", event="FailedDraining"),
    "CapacityBuffer, its chunk fits on a node": Situation(truth="it works"),
    "CapacityBuffer, its template doesn't exist": Situation(
        truth="it can't work", event="PodTemplateNotFound", exceptions={KSTATUS: ("Current", NO_READY)}
    ),
}


def expected(name: str) -> dict[str, str]:
    """What each checker should say; of kinds that the page has no check for, Flux says what kstatus does."""
    situation = SITUATIONS[name]
    verdicts = dict(zip(CHECKERS, _VERDICTS[situation.truth], strict=True))
    if name.partition(",")[0] not in {check["kind"] for check in EXPRESSIONS}:
        verdicts[FLUX] = verdicts[KSTATUS]
    return {**verdicts, **{checker: said for checker, (said, _) in situation.exceptions.items()}}


@pytest.fixture
def observations(tmp_path: Path) -> dict[str, Observation]:
    if not go():
        pytest.skip("needs Go to build kstatus and what runs Argo CD's health checks")
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    PROGRAM.built()
    ready = {name: expected(name)[READY] for name in SITUATIONS}
    return health_situations.observations(tmp_path, ready.__getitem__)


def test_every_checker_agrees_with_what_is_true_and_the_page_says_so(observations: dict[str, Observation]) -> None:
    assert observations.keys() == SITUATIONS.keys()
    assert {name for name, observation in observations.items() if not observation.is_true} == set()
    said = all_verdicts(observations)
    assert said == {name: expected(name) for name in observations}
    silent = {n: o.reasons for n, o in observations.items() if SITUATIONS[n].event not in {"", *o.reasons}}
    assert silent == {}
    assert rows_of_the_page() == {name: [SITUATIONS[name].truth, *cells(name, said[name])] for name in SITUATIONS}

    edited = observations["NodePool, just edited to a class that doesn't exist"].obj
    with_generation = {"karpenter.sh_NodePool": SCRIPTS["karpenter.sh_NodeOverlay"]}
    assert go_verdicts([edited], with_generation)[0].argo.status == "Progressing"


def all_verdicts(observations: Mapping[str, Observation]) -> dict[str, dict[str, str]]:
    """What each checker says in each situation."""
    verdicts = go_verdicts([o.obj for o in observations.values()], SCRIPTS)
    return {
        name: {
            WAIT: "ends" if observation.waits else "waits",
            READY: observation.ready,
            KSTATUS: verdict.kstatus.status,
            ARGO: verdict.argo.status,
            FLUX: flux(observation.obj, verdict.kstatus.status),
        }
        for (name, observation), verdict in zip(observations.items(), verdicts, strict=True)
    }


def rows_of_the_page() -> dict[str, list[str]]:
    """The page's cells, by situation."""
    rows = [re.split(r" *\| *", row) for row in re.findall(r"^\| (.*) \|$", PAGE, re.MULTILINE)]
    return {row[0]: row[1:] for row in rows if row[0] in SITUATIONS}


def cells(name: str, said: Mapping[str, str]) -> list[str]:
    """The page's cells of a situation; what a checker's own rules keep it from saying is in italics."""
    exceptions, event = SITUATIONS[name].exceptions, SITUATIONS[name].event
    words = {checker: word or "(empty)" for checker, word in said.items()}
    verdicts = [f"*{words[checker]}*" if checker in exceptions else words[checker] for checker in CHECKERS]
    return [*verdicts, f"`{event}`" if event else ""]
