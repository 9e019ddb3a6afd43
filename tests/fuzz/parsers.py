"""Every parser of input that others write: messages, annotations, fields of objects, files given to the command line.

Each returns something or raises its documented error, and what it returns can be used: :data:`PARSERS` also does the
arithmetic that follows. An error that isn't documented fails a whole batch of messages, or a decision about all pods.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from cli import problem_files
from cli.cluster import manifest_reader
from cli.errors import UsageError
from cli.migrate import keda
from cli.nodes import selection
from cli.plan import what_if
from cli.report import recording
from functions.buffers import messages as buffer_messages
from functions.interruption.deadline import earlier_deadline
from functions.relay import relay_lease
from functions.webhook import admission_review
from shared.ami_family.bootstrap import UserDataError, parse_mime
from shared.api import (
    buffer_signals,
    capacity_demand,
    cluster_limits,
    decode,
    hourly_limits,
    selectors,
    standby,
    zonal_shift,
)
from shared.api import labels as names
from shared.api.cron import CronError
from shared.api.duration import DurationError
from shared.api.kubernetes import Node
from shared.api.nodeclaim import NodeClaim
from shared.api.quantity import QuantityError
from shared.api.time_windows import WindowError
from shared.api.yaml_documents import reader
from shared.base import hints
from shared.base.struct import Struct
from shared.disruption import disruption_queue, drift_waves, load_history, room_record
from shared.instance_types.cel import CompileError
from shared.instance_types.cel_arithmetic import EvaluationError
from shared.interruptions import parser as events
from shared.interruptions.notice import MalformedEventError
from shared.node_groups import group_state, node_interruption
from shared.termination import delayed_eviction
from tests.fuzz import values
from tests.fuzz.values import NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ROOT = Path(__file__).resolve().parents[2]
_SAMPLES = _ROOT / "tests" / "unit" / "interruption" / "samples"
_MANIFESTS = _ROOT / "cli" / "demo" / "manifests"


class Parser(Struct, kw_only=True):
    """A parser, the errors that it documents, and examples of what it reads."""

    read: Callable[[str], object]
    errors: tuple[type[Exception], ...] = ()
    examples: tuple[str, ...]


# --- messages ---


def _event(parsers: events.Parsers) -> Callable[[str], object]:
    def read(body: str) -> object:
        event = events.parse(body, parsers)
        ahead = event.notice.effective_at or event.time
        claim = NodeClaim(metadata=values.metadata({}))
        return [NOW - event.time, earlier_deadline(claim, ahead, now=NOW), ahead + timedelta(days=1), ahead.isoformat()]

    return read


def _hint(body: str) -> object:
    hint = hints.parse(body, cluster="demo")
    return [NOW - hint.time if hint.time is not None else None, hint.requeues + 1]


def _review(body: str) -> object:
    return admission_review.allowed(admission_review.created_pod(body, is_base64=False))


def _buffer_event(body: str) -> object:
    envelope = buffer_messages._parse(body, {buffer_signals.ALARM_CHANGED})
    return envelope.time is not None and NOW - envelope.time


_HINT = json.dumps(
    {
        "source": "tenon.relay",
        "detail-type": hints.PODS_UNSCHEDULABLE,
        "time": "2026-11-26T12:00:00Z",
        "detail": {"cluster": "demo", "keys": ["default/web-1"], "hops": 1},
    }
)
_REVIEW = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "resource": {"resource": "pods"},
            "namespace": "default",
            "object": {"metadata": {"name": "web", "ownerReferences": [{"kind": "ReplicaSet"}]}, "spec": {}},
        },
    }
)
_ALARM = json.dumps(
    {"source": "aws.cloudwatch", "detail-type": "CloudWatch Alarm State Change", "time": "2026-11-26T12:00:00Z"}
)
_LIFECYCLE = json.dumps(
    {
        "source": "aws.autoscaling",
        "detail-type": "EC2 Instance-terminate Lifecycle Action",
        "time": "2026-11-26T12:00:00Z",
        "detail": {
            "LifecycleActionToken": "1",
            "AutoScalingGroupName": "group",
            "LifecycleHookName": "hook",
            "EC2InstanceId": "i-0123456789abcdef0",
            "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        },
    }
)
EVENTS = (*(path.read_text() for path in sorted(_SAMPLES.glob("*.json"))), _LIFECYCLE)
"""An event of each kind."""
_OF_INSTANCES = EVENTS[:-1]
_OF_GROUPS = tuple(
    text for text in EVENTS if "Spot Instance Inter" in text or "health" in text or "autoscaling" in text
)

# --- records in annotations ---

_TIME = "2026-11-26T11:00:00Z"


def _lease_state(text: str) -> object:
    stored = text.encode(errors="replace").decode()  # the API server stores no other text
    annotations = dict.fromkeys((relay_lease.ENDS, relay_lease.SUCCESSOR, relay_lease.OBSERVED), stored)
    lease = {"metadata": {"name": "tenon-relay", "annotations": annotations}, "spec": {}}
    state = relay_lease._state(json.dumps(lease).encode())
    ahead = state.ends is None or NOW + timedelta(minutes=1) < state.ends
    return [state.is_held(NOW), state.has_successor(NOW), ahead]


def _interruption(text: str) -> object:
    node = Node(metadata=values.metadata({node_interruption.ANNOTATION: text}))
    interruption = node_interruption.interruption_of(node)
    if interruption is None:
        return None
    return [interruption.is_past(NOW), interruption.is_overdue(NOW), node_interruption.cordoned(node, interruption)]


def _queue_entry(text: str) -> object:
    entry = disruption_queue.queue_entry(values.claim_with(disruption_queue.QUEUE_ANNOTATION)(text))
    return entry is not None and [NOW - entry.since, entry.since + timedelta(days=1)]


def _room(text: str) -> object:
    record = room_record.room_record({room_record.ANNOTATION: text})
    return [record.is_evicting(now=NOW), record.with_attempt(["1"], now=NOW)]


def _load_history(text: str) -> object:
    return load_history.encode(load_history.decode(text, now=NOW))


def _group_states(text: str) -> object:
    return [
        (state.is_backing_off(NOW), NOW + 2 * state.backoff, state.asked_at and state.asked_at + timedelta(days=1))
        for state in group_state.decode(text).values()
    ]


# --- objects and files ---


def _object(read: Callable[[Any], decode.Outcome[Any]]) -> Callable[[str], object]:
    return lambda text: read(text).problems


def _file(read: Callable[[Path], object]) -> Callable[[str], object]:
    def of_text(text: str) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            path.write_bytes(text.encode(errors="surrogatepass"))
            return read(path)

    return of_text


def _user_data(text: str) -> object:
    return [part.text for part in parse_mime(text)]


_OBJECTS = [document for path in sorted(_MANIFESTS.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]


def _of_kind(*kinds: str) -> tuple[str, ...]:
    return tuple(json.dumps(document) for document in _OBJECTS if document and document["kind"] in kinds)


_MIME = 'Content-Type: multipart/mixed; boundary="x"\n\n--x\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--x--\n'
_RECORDING = msgspec.json.encode(recording.Recording(title="demo", start=NOW, end=1.0)).decode()
_CRON = ("0 9 * * mon-fri", "@daily", "*/5 1-3,7 ? jan-mar *")
_ADVICE = "0 9 * * mon-fri until 0 18 * * mon-fri in Asia/Seoul"

_PAUSE_PODS = {
    "kind": "Deployment",
    "metadata": {"name": "pause"},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "pause:3.10"}]}}},
}
_TRIGGER = {"timezone": "Asia/Seoul", "start": "0 9 * * 1-5", "end": "0 18 * * 1-5", "desiredReplicas": "10"}
_SCALED_OBJECTS = tuple(
    json.dumps(
        {
            "kind": "List",
            "items": [
                {
                    "apiVersion": "keda.sh/v1alpha1",
                    "kind": "ScaledObject",
                    "metadata": {"name": "room", "annotations": {"autoscaling.keda.sh/paused": "false"}},
                    "spec": {
                        "scaleTargetRef": {"name": "pause"},
                        "triggers": [{"type": "cron", "metadata": _TRIGGER}],
                        **spec,
                    },
                },
                _PAUSE_PODS,
            ],
        }
    )
    for spec in (
        {"minReplicaCount": 2, "idleReplicaCount": 0, "maxReplicaCount": 20},
        {"advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {}}}}, "cooldownPeriod": 300},
    )
)

PARSERS: Mapping[str, Parser] = {
    "hints": Parser(read=_hint, errors=(hints.MalformedHintError,), examples=(_HINT,)),
    "events of instances": Parser(
        read=_event(events.OF_INSTANCES), errors=(MalformedEventError,), examples=_OF_INSTANCES
    ),
    "events of node groups": Parser(read=_event(events.OF_GROUPS), errors=(MalformedEventError,), examples=_OF_GROUPS),
    "events of CapacityBuffers": Parser(read=_buffer_event, errors=(hints.MalformedHintError,), examples=(_ALARM,)),
    "admission reviews": Parser(read=_review, errors=(admission_review.MalformedReviewError,), examples=(_REVIEW,)),
    "annotations of the relay's lease": Parser(
        read=_lease_state,
        examples=(json.dumps({"identity": "1", "renewed": _TIME, "observed": {"pods": 1}}), _TIME, '{"pods": 1}'),
    ),
    "interruptions of node groups' nodes": Parser(
        read=_interruption,
        examples=(
            json.dumps({"reason": "SpotInterrupted", "since": _TIME, "deadline": _TIME, "next_step": _TIME}),
            json.dumps({"reason": "x", "message": "y", "since": _TIME, "nextStep": _TIME, "drained": True}),
        ),
    ),
    "entries of the disruption queue": Parser(
        read=_queue_entry, examples=(json.dumps({"id": "1", "reason": "Drifted", "since": _TIME, "replacements": []}),)
    ),
    "room records": Parser(
        read=_room,
        examples=(json.dumps({"evicting_until": _TIME, "cordoned_since": _TIME, "attempts": {"1": [_TIME]}}),),
    ),
    "load history": Parser(
        read=_load_history,
        errors=(load_history.InvalidHistoryError,),
        examples=(json.dumps({"version": 1, "workloads": {}, "scale_ins": [], "pools": {}}),),
    ),
    "states of node groups": Parser(
        read=_group_states,
        examples=(json.dumps({"g": {"desired": 1, "asked_at": _TIME, "backoff": "PT5M", "backoff_until": _TIME}}),),
    ),
    "rollouts of drift in waves": Parser(
        read=lambda text: drift_waves.read_rollout(values.pool_with(names.DRIFT_ROLLOUT)(text)),
        examples=(json.dumps({"target": "1", "since": _TIME, "stopped": ""}),),
    ),
    "delayed evictions": Parser(
        read=lambda text: delayed_eviction.delayed_pods(values.claim_with(delayed_eviction.ANNOTATION)(text)),
        examples=(json.dumps({"claim": ["default/web"]}),),
    ),
    "times": Parser(read=values.read_timestamp, examples=(_TIME, "2026-11-26T13:00:00.5+01:00")),
    "deadlines of NodeClaims": Parser(read=values.read_deadline, examples=(_TIME,)),
    "requeue times": Parser(read=values.read_requeue, examples=(_TIME,)),
    "reboots": Parser(read=values.read_reboots, examples=(f"{_TIME},{_TIME}",)),
    "pauses": Parser(read=values.read_pause, examples=("true", "2026-11-27T12:00:00Z")),
    "zonal shifts": Parser(
        read=lambda text: zonal_shift.format_shifts(zonal_shift.read_shifts({names.SHIFTED_ZONES: text})),
        examples=(f"us-west-2a={_TIME},us-west-2b={_TIME}",),
    ),
    "durations": Parser(
        read=values.read_duration, errors=(DurationError,), examples=("1h30m", "0", "Never", "1.5h", "2562047h")
    ),
    "quantities": Parser(read=values.read_quantity, errors=(QuantityError,), examples=("100m", "1.5Gi", "1e3", "-2")),
    "cron": Parser(read=values.read_cron, errors=(CronError,), examples=_CRON),
    "windows": Parser(read=values.read_window, errors=(WindowError,), examples=(_ADVICE, "0 9 * * * for 9h")),
    "disruption windows": Parser(
        read=values.read_windows, errors=(WindowError,), examples=("0 10 * * * for 10m reasons Drifted", _ADVICE)
    ),
    "drift waves": Parser(
        read=drift_waves.parse_waves, errors=(drift_waves.WavesError,), examples=("1, 10%, 50% healthy for 10m", "2")
    ),
    "schedules of CapacityBuffers": Parser(
        read=values.read_schedule,
        errors=(capacity_demand.DemandError,),
        examples=(_ADVICE + " keep 20", "0 9 * * * for 9h"),
    ),
    "proportions of CapacityBuffers": Parser(
        read=values.read_proportion, errors=(capacity_demand.DemandError,), examples=("1:1, 10:2", "10")
    ),
    "problems of demand": Parser(
        read=values.read_problems_of_demand, examples=(_ADVICE + " keep 20", "1:1, 10:2, 100:5", "10", "5m")
    ),
    "signals of CapacityBuffers": Parser(
        read=values.read_signals, examples=("orders", "10", "shop/Sale Begins", "15m", _TIME)
    ),
    "cluster limits": Parser(read=cluster_limits.read_cluster_limits, examples=("cpu=1000, nodes=200",)),
    "hourly limits": Parser(read=hourly_limits.read_hourly_limits, examples=("launches=200, usd=300, removals=20",)),
    "last hours": Parser(read=values.read_last_hour, examples=('{"5877040":{"default":[12,1.5,3,0]}}',)),
    "spot options": Parser(read=values.read_spot_options, examples=("3", "0.8", "price-capacity-optimized")),
    "spot shares": Parser(read=values.read_spot_share, examples=("70%",)),
    "standby nodes": Parser(
        read=lambda text: standby.wanted_standbys(values.pool_with(names.STANDBY)(text)), examples=("2", "2 m5.large")
    ),
    "repair limits": Parser(read=values.read_repair_limit, examples=("20%", "2")),
    "label selectors": Parser(
        read=values.read_selector, errors=(selectors.SelectorError,), examples=("app in (web, db),tier!=x,!y", "a=b")
    ),
    "expressions of the kubelet": Parser(
        read=values.read_expression,
        errors=(CompileError, EvaluationError),
        examples=("max(110, vcpus * 15)", 'instance_type == "m5.large" ? 29 : int(memory_mib / 512)', "-(1.5e3)"),
    ),
    "priorities of node groups": Parser(read=values.read_priorities, examples=("10: ['.*']\n50: ['named', 'a+b']\n",)),
    "options of node groups": Parser(
        read=values.read_group_options, examples=("true", "0.5", "10m", "10", "priority,least-waste", "a,b")
    ),
    "status of node groups": Parser(
        read=values.read_group_status,
        examples=("clusterWide:\n  health:\n    status: Healthy\n    lastProbeTime: '2026-11-26T12:00:00Z'\n",),
    ),
    "NodePools": Parser(read=_object(decode.node_pool), examples=_of_kind("NodePool", "Provisioner")),
    "node classes": Parser(read=_object(decode.node_class), examples=_of_kind("EC2NodeClass", "AWSNodeTemplate")),
    "NodeClaims": Parser(
        read=_object(decode.node_claim),
        examples=(json.dumps({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"}}),),
    ),
    "user data in MIME": Parser(read=_user_data, errors=(UserDataError,), examples=(_MIME,)),
    "YAML": Parser(
        read=reader.documents, errors=(reader.YamlError,), examples=("a: &x [1, 2]\nb: *x\n---\n- 0o17\n", _HINT)
    ),
    "manifests": Parser(
        read=_file(manifest_reader.read_objects), errors=(UsageError,), examples=_of_kind("NodePool", "Deployment")
    ),
    "ScaledObjects of KEDA": Parser(
        read=_file(lambda path: keda.conversions([path])), errors=(UsageError,), examples=_SCALED_OBJECTS
    ),
    "problems to simulate": Parser(
        read=_file(lambda path: problem_files.read([path])), errors=(UsageError,), examples=_of_kind("NodePool")
    ),
    "recordings": Parser(read=_file(recording.read), errors=(UsageError,), examples=(_RECORDING,)),
    "--what-if": Parser(
        read=lambda text: what_if.parse(text, namespace="default"),
        errors=(UsageError,),
        examples=("deployment/web=50", "nodepool=file"),
    ),
    "--selector of nodes": Parser(
        read=lambda text: selection.parse(selector=text, pools=[], filters=[], sort="name", label_columns=[]),
        errors=(UsageError,),
        examples=("app=web", "a in (b, c),!d"),
    ),
}


def try_to_read(name: str, text: str) -> None:
    """Read the text with that parser. Only an error that it doesn't document is raised."""
    parser = PARSERS[name]
    with contextlib.suppress(*parser.errors):
        parser.read(text)
