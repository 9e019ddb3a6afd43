"""Every parser of input that others write: messages, annotations, fields of objects, files given to the command line.

Each returns something or raises its documented error, and what it returns can be used: :data:`PARSERS` also does the
arithmetic that follows. An error that isn't documented fails a whole batch of messages, or a decision about all pods.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from cli.cluster import manifest_reader
from cli.errors import UsageError
from cli.nodes import selection
from cli.plan import what_if
from cli.report import recording
from cli.simulate import input_files
from functions.buffers import messages as buffer_messages
from functions.interruption.deadline import current_deadline, earlier_deadline
from functions.relay import relay_lease
from functions.webhook import admission_review
from shared.ami_family.bootstrap import UserDataError, parse_mime
from shared.api import (
    buffer_signals,
    capacity_demand,
    cluster_limits,
    decode,
    pause,
    reboot,
    selectors,
    spot,
    spot_share,
    standby,
    zonal_shift,
)
from shared.api import labels as names
from shared.api.cron import CronError, parse_cron
from shared.api.duration import DurationError, parse_duration
from shared.api.kubernetes import Node, Pod
from shared.api.meta import ObjectMeta, parse_timestamp
from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import NodePool
from shared.api.quantity import QuantityError, parse_quantity
from shared.api.time_windows import WindowError, parse_window
from shared.api.yaml_documents import reader
from shared.base import hints
from shared.base.struct import Struct
from shared.disruption import disruption_queue, disruption_windows, drift_waves, load_history, repair_limit, room_record
from shared.instance_types.cel import CompileError, EvaluationError, compile_expression
from shared.instance_types.kubelet_expressions import VARIABLES
from shared.interruptions import parser as events
from shared.interruptions.notice import MalformedEventError
from shared.node_groups import expander, group_state, node_interruption, options, status
from shared.termination import delayed_eviction, requeue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
_ROOT = Path(__file__).resolve().parents[2]
_SAMPLES = _ROOT / "tests" / "unit" / "interruption" / "samples"
_MANIFESTS = _ROOT / "cli" / "demo" / "manifests"


class Parser(Struct, kw_only=True):
    """A parser, the errors that it documents, and examples of what it reads."""

    read: Callable[[str], object]
    errors: tuple[type[Exception], ...] = ()
    examples: tuple[str, ...]


def _metadata(annotations: Mapping[str, str]) -> ObjectMeta:
    return ObjectMeta(name="web", namespace="default", creation_timestamp=NOW, annotations=dict(annotations))


def _pool(key: str) -> Callable[[str], NodePool]:
    return lambda text: NodePool(metadata=_metadata({key: text}))


def _claim(key: str) -> Callable[[str], NodeClaim]:
    return lambda text: NodeClaim(metadata=_metadata({key: text}))


# --- messages ---


def _event(parsers: events.Parsers) -> Callable[[str], object]:
    def read(body: str) -> object:
        event = events.parse(body, parsers)
        ahead = event.notice.effective_at or event.time
        claim = NodeClaim(metadata=_metadata({}))
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
_EVENTS = tuple(path.read_text() for path in sorted(_SAMPLES.glob("*.json")))
_EVENTS_OF_GROUPS = tuple(text for text in _EVENTS if "Spot Instance Interruption" in text or "aws.health" in text)
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
    node = Node(metadata=_metadata({node_interruption.ANNOTATION: text}))
    interruption = node_interruption.interruption_of(node)
    if interruption is None:
        return None
    return [interruption.is_past(NOW), interruption.is_overdue(NOW), node_interruption.cordoned(node, interruption)]


def _queue_entry(text: str) -> object:
    entry = disruption_queue.queue_entry(_claim(disruption_queue.QUEUE_ANNOTATION)(text))
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


# --- values of users ---


def _pause(text: str) -> object:
    paused = pause.read_pause({pause.PAUSED: text, pause.PAUSED_AT: text}, now=NOW)
    return paused is not None and paused.message


def _timestamp(text: str) -> object:
    time = parse_timestamp(text)
    return time is not None and [time - timedelta(days=400), time + timedelta(days=400), f"{time:%Y-%m-%d}"]


def _window(text: str) -> object:
    window = parse_window(text)
    return [window.is_open(NOW), window.opens_after(NOW)]


def _windows(text: str) -> object:
    return [disruption_windows.closed(text, reason, NOW) for reason in ("Drifted", "")]


def _schedule(text: str) -> object:
    return [window.opens_after(NOW) for window in capacity_demand.windows(text)]


def _proportion(text: str) -> object:
    return capacity_demand.proportion(text).chunks(10)


def _problems_of_demand(text: str) -> object:
    keys = (names.SCHEDULE, names.LEAD_TIME, names.PER_NODES, names.PER_CORES, names.MIN_CHUNKS)
    return list(capacity_demand.problems(dict.fromkeys(keys, text)))


def _signals(text: str) -> object:
    keys = (names.SQS_QUEUE, names.MESSAGES_PER_CHUNK, names.CLOUDWATCH_ALARM, names.EVENT, names.RAISE_FOR)
    annotations = dict.fromkeys((*keys, *buffer_signals.WRITTEN), text)
    return [
        list(buffer_signals.problems(annotations)),
        buffer_signals.signals(annotations),
        buffer_signals.seen(annotations),
    ]


def _spot_options(text: str) -> object:
    keys = (names.SPOT_DIVERSITY, names.SPOT_ALLOCATION_STRATEGY, names.MAX_SPOT_PRICE_SHARE)
    return [spot.read_spot_options(_pool(key)(text)) for key in keys]


def _repair_limit(text: str) -> object:
    limit, _ = repair_limit.read_limit(_pool(repair_limit.REPAIR_LIMIT)(text))
    return repair_limit.nodes_allowed(limit, 1000)


def _spot_share(text: str) -> object:
    return spot_share.spot_share_problem(Pod(metadata=_metadata({names.SPOT_SHARE: text})))


def _reboots(text: str) -> object:
    claim = NodeClaim(metadata=_metadata({names.REBOOTS: text, names.REBOOT_CALLED_AT: text}))
    return [reboot.reboots(claim, now=NOW), reboot.called_at(claim)]


def _deadline(text: str) -> object:
    claim = _claim(names.TERMINATION_TIMESTAMP)(text)
    deadline = current_deadline(claim)
    return [earlier_deadline(claim, NOW, now=NOW), deadline is not None and deadline - timedelta(days=1)]


def _requeue(text: str) -> object:
    claim = _claim(requeue.REQUEUE_AT)(text)
    return [
        requeue.is_due(claim, now=NOW),
        requeue.is_overdue(claim, now=NOW),
        requeue.is_scheduled(claim, until=NOW, now=NOW),
    ]


def _selector(text: str) -> object:
    return selectors.matches(selectors.parse_selector(text), {"app": "web"})


def _expression(text: str) -> object:
    values: dict[str, int | str] = {name: 4 if kind == "int" else "m5.large" for name, kind in VARIABLES.items()}
    return compile_expression(text, VARIABLES).evaluate(values)


def _priorities(text: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of unusual sets in regular expressions
        priorities, _ = expander.parse_priorities(text)
    return [bool(pattern.search("workers-a")) for _, patterns in priorities for pattern in patterns]


def _group_options(text: str) -> object:
    return options.parse(dict.fromkeys(options.FLAGS, text), {options.PREFER: text, options.SCALE_DOWN: text})


def _group_status(text: str) -> object:
    before = status.parse(text)
    after = status.document([], [], before, now=NOW)
    return [status.is_due(after, before), status.encode(after)]


def _quantity(text: str) -> object:
    return [parse_quantity("cpu", text), parse_quantity("memory", text)]


def _cron(text: str) -> object:
    return parse_cron(text).next_after(NOW)


def _duration(text: str) -> object:
    return parse_duration(text)


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

PARSERS: Mapping[str, Parser] = {
    "hints": Parser(read=_hint, errors=(hints.MalformedHintError,), examples=(_HINT,)),
    "events of instances": Parser(read=_event(events.OF_INSTANCES), errors=(MalformedEventError,), examples=_EVENTS),
    "events of node groups": Parser(
        read=_event(events.OF_GROUPS), errors=(MalformedEventError,), examples=(*_EVENTS_OF_GROUPS, _LIFECYCLE)
    ),
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
        read=lambda text: drift_waves.read_rollout(_pool(names.DRIFT_ROLLOUT)(text)),
        examples=(json.dumps({"target": "1", "since": _TIME, "stopped": ""}),),
    ),
    "delayed evictions": Parser(
        read=lambda text: delayed_eviction.delayed_pods(_claim(delayed_eviction.ANNOTATION)(text)),
        examples=(json.dumps({"claim": ["default/web"]}),),
    ),
    "times": Parser(read=_timestamp, examples=(_TIME, "2026-11-26T13:00:00.5+01:00")),
    "deadlines of NodeClaims": Parser(read=_deadline, examples=(_TIME,)),
    "requeue times": Parser(read=_requeue, examples=(_TIME,)),
    "reboots": Parser(read=_reboots, examples=(f"{_TIME},{_TIME}",)),
    "pauses": Parser(read=_pause, examples=("true", "2026-11-27T12:00:00Z")),
    "zonal shifts": Parser(
        read=lambda text: zonal_shift.format_shifts(zonal_shift.read_shifts({names.SHIFTED_ZONES: text})),
        examples=(f"us-west-2a={_TIME},us-west-2b={_TIME}",),
    ),
    "durations": Parser(read=_duration, errors=(DurationError,), examples=("1h30m", "0", "Never", "1.5h", "2562047h")),
    "quantities": Parser(read=_quantity, errors=(QuantityError,), examples=("100m", "1.5Gi", "1e3", "-2")),
    "cron": Parser(read=_cron, errors=(CronError,), examples=_CRON),
    "windows": Parser(read=_window, errors=(WindowError,), examples=(_ADVICE, "0 9 * * * for 9h")),
    "disruption windows": Parser(
        read=_windows, errors=(WindowError,), examples=("0 10 * * * for 10m reasons Drifted", _ADVICE)
    ),
    "drift waves": Parser(
        read=drift_waves.parse_waves, errors=(drift_waves.WavesError,), examples=("1, 10%, 50% healthy for 10m", "2")
    ),
    "schedules of CapacityBuffers": Parser(
        read=_schedule, errors=(capacity_demand.DemandError,), examples=(_ADVICE + " keep 20", "0 9 * * * for 9h")
    ),
    "proportions of CapacityBuffers": Parser(
        read=_proportion, errors=(capacity_demand.DemandError,), examples=("1:1, 10:2", "10")
    ),
    "problems of demand": Parser(
        read=_problems_of_demand, examples=(_ADVICE + " keep 20", "1:1, 10:2, 100:5", "10", "5m")
    ),
    "signals of CapacityBuffers": Parser(read=_signals, examples=("orders", "10", "shop/Sale Begins", "15m", _TIME)),
    "cluster limits": Parser(read=cluster_limits.read_cluster_limits, examples=("cpu=1000, nodes=200",)),
    "spot options": Parser(read=_spot_options, examples=("3", "0.8", "price-capacity-optimized")),
    "spot shares": Parser(read=_spot_share, examples=("70%",)),
    "standby nodes": Parser(
        read=lambda text: standby.wanted_standbys(_pool(names.STANDBY)(text)), examples=("2", "2 m5.large")
    ),
    "repair limits": Parser(read=_repair_limit, examples=("20%", "2")),
    "label selectors": Parser(
        read=_selector, errors=(selectors.SelectorError,), examples=("app in (web, db),tier!=x,!y", "a=b")
    ),
    "expressions of the kubelet": Parser(
        read=_expression,
        errors=(CompileError, EvaluationError),
        examples=("max(110, vcpus * 15)", 'instance_type == "m5.large" ? 29 : int(memory_mib / 512)', "-(1.5e3)"),
    ),
    "priorities of node groups": Parser(read=_priorities, examples=("10: ['.*']\n50: ['named', 'a+b']\n",)),
    "options of node groups": Parser(
        read=_group_options, examples=("true", "0.5", "10m", "10", "priority,least-waste", "a,b")
    ),
    "status of node groups": Parser(
        read=_group_status,
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
    "problems to simulate": Parser(
        read=_file(lambda path: input_files.read([path])), errors=(UsageError,), examples=_of_kind("NodePool")
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
