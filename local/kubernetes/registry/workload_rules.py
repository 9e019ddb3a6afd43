"""The errors of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs.

Source: kubernetes ``pkg/apis/apps`` and ``batch/validation``. Their templates: ``pod_rules``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds, selectors
from local.kubernetes.registry import field_rules as rules
from local.kubernetes.registry import pod_rules, storage_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.errors import Cause
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.field_rules import Causes

_DAEMON_SETS, _STATEFUL_SETS, _JOBS = (kind.resource for kind in (kinds.DAEMON_SETS, kinds.STATEFUL_SETS, kinds.JOBS))
_MUTABLE_IN_STATEFUL_SETS = frozenset((
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "minReadySeconds",
    "persistentVolumeClaimRetentionPolicy",
))  # fmt: skip
_COUNTS = (
    "replicas", "minReadySeconds", "parallelism", "completions", "activeDeadlineSeconds",
    "backoffLimit", "ttlSecondsAfterFinished",
)  # fmt: skip


def of_workload(kind: Kind, obj: Obj, *, is_new: bool) -> Causes:
    """The errors of the spec of a workload with a pod template."""
    spec = obj["spec"]
    for name in _COUNTS:
        yield from rules.not_negative(f"spec.{name}", spec.get(name))
    if kind.resource == _JOBS:
        yield from _job(obj, is_new=is_new)
        return
    yield from _of_own_kind(kind, spec)
    selector = spec.get("selector")
    if selector is None and kind.resource != _DAEMON_SETS:
        yield rules.required("spec.selector")
    yield from rules.label_selector("spec.selector", selector)
    if selector is not None and not any(selector.values()):
        yield rules.invalid("spec.selector", "{}", f"empty selector is invalid for {kind.singular}")
    template = spec.get("template") or {}
    is_selected = _selects(selector, template)
    if is_selected is None and kind.resource != _DAEMON_SETS:
        yield rules.invalid("spec.selector", selector, "invalid label selector")
        return
    if is_selected is False:
        yield _not_selected(template)
    yield from pod_rules.of_template(_with_claims(template, spec), "spec.template")
    yield from _lasting(template.get("spec") or {})


def _with_claims(template: Obj, spec: Obj) -> Obj:
    """The template with the volumes that a StatefulSet adds, one for each of its claims."""
    names = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
    if not names:
        return template
    added = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)]
    pod = template.get("spec") or {}
    own = [volume for volume in pod.get("volumes") or () if volume.get("name", "") not in names]
    return {**template, "spec": {**pod, "volumes": [*added, *own]}}


def _lasting(pod: Obj) -> Causes:
    """The errors of the pods of a workload that runs until it is deleted."""
    if pod.get("restartPolicy") != "Always":
        yield rules.not_supported("spec.template.spec.restartPolicy", pod.get("restartPolicy"), ("Always",))
    if "activeDeadlineSeconds" in pod:
        yield rules.forbidden("spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds is not Supported")


def _of_own_kind(kind: Kind, spec: Obj) -> Causes:
    """The errors of the fields that only this kind has."""
    if kind.resource == kinds.DEPLOYMENTS.resource:
        deadline = spec["progressDeadlineSeconds"]
        yield from rules.not_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= spec.get("minReadySeconds", 0):
            yield rules.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
        yield from _strategy(spec["strategy"])
    if kind.resource != _STATEFUL_SETS:
        yield from rules.not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    if kind.resource == _STATEFUL_SETS:
        yield from rules.not_negative("spec.ordinals.start", (spec.get("ordinals") or {}).get("start"))
        if spec.get("serviceName"):
            yield from rules.dns_label("spec.serviceName", spec["serviceName"])
        yield from _update_strategy(spec["updateStrategy"])
        if (policy := spec["podManagementPolicy"]) not in {"OrderedReady", "Parallel"}:
            yield rules.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
        for name, value in spec["persistentVolumeClaimRetentionPolicy"].items():
            at = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            yield from rules.among(at, value, ("Retain", "Delete"))
        for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            yield from storage_rules.claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")


def _update_strategy(strategy: Obj) -> Causes:
    """The errors of a StatefulSet's update strategy."""
    path, rolling = "spec.updateStrategy", strategy.get("rollingUpdate")
    if strategy["type"] == "OnDelete":
        if rolling is not None:
            yield rules.invalid(f"{path}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'")
    elif strategy["type"] != "RollingUpdate":
        yield rules.invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")
    elif rolling is not None:
        yield from rules.not_negative(f"{path}.rollingUpdate.partition", rolling.get("partition"))


def _strategy(strategy: Obj) -> Causes:
    """The errors of a Deployment's strategy."""
    path = "spec.strategy.rollingUpdate"
    match strategy["type"]:
        case "Recreate":
            if strategy.get("rollingUpdate") is not None:
                yield rules.forbidden(path, "may not be specified when strategy `type` is 'Recreate'")
        case "RollingUpdate":
            rolling = strategy["rollingUpdate"]
            yield from rules.count_or_percent(f"{path}.maxUnavailable", rolling["maxUnavailable"])
            yield from rules.count_or_percent(f"{path}.maxSurge", rolling["maxSurge"], most=None)
            if not any(map(_percent_or_count, (rolling["maxUnavailable"], rolling["maxSurge"]))):
                yield rules.invalid(f"{path}.maxUnavailable", 0, "may not be 0 when `maxSurge` is 0")
        case _:
            yield rules.not_supported("spec.strategy", strategy, ("Recreate", "RollingUpdate"))


def _is_generated(job: Obj) -> bool:
    """Whether the selector selects the labels that a Job's pods get; also if it can't be parsed."""
    metadata = job["metadata"]
    uid, name = metadata["uid"], metadata["name"]
    labels = {
        f"{prefix}{key}": value
        for prefix in ("", "batch.kubernetes.io/")
        for key, value in (("controller-uid", uid), ("job-name", name))
    }
    return _selects(job["spec"]["selector"], {"metadata": {"labels": labels}}) is not False


def _percent_or_count(value: int | str) -> int:
    """The number of an absolute number, also as a text, or of a percentage; 0 if it is neither."""
    digits = str(value).removesuffix("%")
    return int(digits) if digits.isdigit() else 0


def _job(obj: Obj, *, is_new: bool) -> Causes:
    spec = obj["spec"]
    template = spec.get("template") or {}
    yield from pod_rules.of_template(template, "spec.template")
    policy, path = (template.get("spec") or {}).get("restartPolicy", ""), "spec.template.spec.restartPolicy"
    if policy in {"Always", ""}:
        yield rules.required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in {"OnFailure", "Never"}:
        yield rules.not_supported(path, policy, ("OnFailure", "Never"))
    if spec.get("selector") is None:
        yield rules.required("spec.selector")
    yield from rules.label_selector("spec.selector", spec.get("selector"))
    if is_new and not spec["manualSelector"] and not _is_generated(obj):
        yield rules.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")
    if _selects(spec.get("selector"), template) is False:
        yield _not_selected(template)


def _selects(selector: Obj | None, template: Obj) -> bool | None:
    """Whether the selector selects the template's pods; None if it can't be parsed. No selector selects nothing."""
    if any(rules.label_selector("", selector)):
        return None
    parsed = selectors.parse_label_selector(selector)
    labels = (template.get("metadata") or {}).get("labels") or {}
    return parsed is not None and selectors.matches(parsed, labels)


def _not_selected(template: Obj) -> Cause:
    labels = (template.get("metadata") or {}).get("labels") or {}
    text = "`selector` does not match template `labels`"
    return rules.invalid("spec.template.metadata.labels", labels, text)


def changed(kind: Kind, new: Obj, old: Obj | None) -> Iterator[Cause]:
    """The errors of changed fields that can't be changed."""
    if old is None:
        return
    before, after = old.get("spec") or {}, new["spec"]
    if kind.resource == _STATEFUL_SETS:
        names = {name for name in {*after, *before} if after.get(name) != before.get(name)}
        if names - _MUTABLE_IN_STATEFUL_SETS:
            text = "updates to statefulset spec for fields other than 'replicas', 'template', … are forbidden"
            yield rules.forbidden("spec", text)
        return
    for name in ("selector", "template", "completions") if kind.resource == _JOBS else ("selector",):
        if after.get(name) != before.get(name):
            yield rules.invalid(f"spec.{name}", after.get(name), "field is immutable")
