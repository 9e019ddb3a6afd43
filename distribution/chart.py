"""A Helm chart of what Tenon needs in a cluster, for ``clusterSide=printed``: ``python -m distribution.chart FOLDER``.

The chart is made from the objects that the stack and ``tenon manifests`` apply, each time, so the repository has no
copy that could differ. An object that an option adds is in a condition of that option. Helm is told to keep the
CustomResourceDefinitions when the release is removed: with them, nodes would go.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infra import function_sizes, installation
from infra.cluster.kubernetes import cluster_manifests, flow_schemas, kinds_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infra.cluster.kubernetes.cluster_manifests import Obj

NAME = "tenon"
KEEP = {"helm.sh/resource-policy": "keep"}
_FUNCTION, _POD = 'eq .Values.relay.mode "function"', 'eq .Values.relay.mode "pod"'
_CONDITIONS: Mapping[str, str] = {
    function_sizes.RELAY: _FUNCTION,
    function_sizes.BUFFERS: ".Values.buffers",
    function_sizes.NODE_GROUPS: ".Values.nodeGroups",
}
"""When a function's rights are needed that not every deployment has."""
_CLUSTER, _REGION, _IMAGE, _ARCHITECTURE = "cluster-value", "region-value", "image-value", "architecture-value"
_ROLE, _TOLERATION, _SUBJECTS = "role-value", "toleration-value", "subjects-value"
_BUS = cluster_manifests.bus_name("")
_EXPRESSIONS: Mapping[str, str] = {
    f": {_BUS}{_CLUSTER}\n": f': {{{{ print "{_BUS}" (required "cluster is missing" .Values.cluster) | quote }}}}\n',
    f": {_CLUSTER}\n": ": {{ .Values.cluster | quote }}\n",
    f": {_REGION}\n": ': {{ required "region is the AWS Region" .Values.region | quote }}\n',
    f": {_IMAGE}\n": ': {{ required "relay.image is built from relay/Dockerfile" .Values.relay.image | quote }}\n',
    f": {_ROLE}\n": ": {{ .Values.relay.roleArn | quote }}\n",
    f"        kubernetes.io/arch: {_ARCHITECTURE}\n": """\
        {{- with .Values.relay.architecture }}
        kubernetes.io/arch: {{ . | quote }}
        {{- end }}
""",
    f"      tolerations:\n      - key: {_TOLERATION}\n": """\
      {{- with .Values.relay.tolerations }}
      tolerations:
      {{- toYaml . | nindent 6 }}
      {{- end }}
""",
    f"  - subjects: {_SUBJECTS}\n": """\
  - subjects:
    {{- include "tenon.subjects" . | nindent 4 }}
""",
}
"""What Helm is given in place of values; each is found in the objects' text."""
_SEPARATOR = "---\n"
_VALUES = """\
# The EKS cluster's name and AWS Region, which only relay.mode=pod needs.
cluster: ""
region: ""
# The CustomResourceDefinitions; false: keep those of Karpenter (-c kinds=kept).
kinds: true
# That of CapacityBuffers; false: keep that of another autoscaler (-c capacityBuffers=kept).
capacityBuffers: true
# Rights for -c bufferQueues, bufferAlarms and bufferEvents; for -c nodeGroups=on; for -c reboot=on.
buffers: false
nodeGroups: false
reboot: false
relay:
  mode: function  # as -c relay: function, pod or webhook
  image: ""  # of mode pod: built from relay/Dockerfile
  roleArn: ""  # of mode pod, by IRSA: the stack's output RelayRoleArn
  architecture: ""  # of mode pod: arm64 or amd64, if the image has only one
  tolerations: []  # of mode pod
"""


def files() -> dict[str, str]:
    """The chart's files, by their path."""
    version = installation.version()
    return {
        "Chart.yaml": f"apiVersion: v2\nname: {NAME}\nversion: {version}\nappVersion: {version}\ntype: application\n"
        "description: What Tenon, just-in-time nodes for Amazon EKS, needs in a cluster\n",
        "values.yaml": _VALUES,
        "templates/_subjects.tpl": _subjects(),
        "templates/kinds.yaml": _kinds(),
        "templates/access.yaml": _access(),
        "templates/flow-schemas.yaml": _flow_schemas(),
        "templates/relay.yaml": _relay(),
    }


def write(folder: Path) -> Path:
    """Write the chart into a folder of its name; returns that."""
    for name, text in files().items():
        path = folder / NAME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / NAME


def _kinds() -> str:
    parts = []
    for definition in cluster_manifests.kinds():
        kept = {**definition["metadata"], "annotations": {**definition["metadata"]["annotations"], **KEEP}}
        is_buffers = definition["metadata"]["name"] == kinds_check.CAPACITY_BUFFERS
        condition = "and .Values.kinds .Values.capacityBuffers" if is_buffers else ".Values.kinds"
        parts.append(_if(condition, [{**definition, "metadata": kept}]))
    return "".join(parts)


def _access() -> str:
    namespace, *_ = cluster_manifests.access(())
    parts = [_yaml([namespace])]
    for function in _functions():
        own = _without(cluster_manifests.access([function]), [namespace])
        node_groups = _without(cluster_manifests.access([function], node_groups=True), [namespace, *own])
        reboot = _without(cluster_manifests.access([function], reboot=True), [namespace, *own])
        text = _yaml(own) + _if(".Values.nodeGroups", node_groups) + _if(".Values.reboot", reboot)
        parts.append(_conditional(_CONDITIONS.get(function, ""), text))
    return "".join(parts)


def _flow_schemas() -> str:
    schemas = flow_schemas.flow_schemas([function_sizes.PROVISIONER])
    for schema in schemas:
        schema["spec"]["rules"][0]["subjects"] = _SUBJECTS
    return _yaml(schemas)


def _subjects() -> str:
    parts = []
    for function in _functions():
        schema = flow_schemas.flow_schemas([function])[0]
        parts.append(_conditional(_CONDITIONS.get(function, ""), _items(schema)))
    pod = flow_schemas.flow_schemas([], relay_pod=True)[0]
    return '{{- define "tenon.subjects" -}}\n' + "".join(parts) + _conditional(_POD, _items(pod)) + "{{- end -}}\n"


def _items(schema: Obj) -> str:
    """The subjects of a FlowSchema as items of a list."""
    return cluster_manifests.to_yaml([{"items": schema["spec"]["rules"][0]["subjects"]}]).partition("items:\n")[2]


def _relay() -> str:
    toleration = {"key": _TOLERATION}
    with_role = cluster_manifests.relay(
        cluster=_CLUSTER,
        region=_REGION,
        image=_IMAGE,
        architecture=_ARCHITECTURE,
        role_arn=_ROLE,
        tolerations=[toleration],
    )
    account, *rest = with_role
    plain = cluster_manifests.relay_access()[0]
    accounts = (
        f"{{{{- if .Values.relay.roleArn }}}}\n{_yaml([account])}{{{{- else }}}}\n{_yaml([plain])}{{{{- end }}}}\n"
    )
    return _conditional(_POD, accounts + _yaml(rest))


def _functions() -> Sequence[str]:
    return [name for name in cluster_manifests.RULES if name != function_sizes.SHADOW]


def _without(objects: Iterable[Obj], known: Sequence[Obj]) -> list[Obj]:
    return [obj for obj in objects if obj not in known]


def _if(condition: str, objects: Sequence[Obj]) -> str:
    return _conditional(condition, _yaml(objects)) if objects else ""


def _conditional(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _yaml(objects: Sequence[Obj]) -> str:
    """Documents that each begin with their separator, with Helm's expressions in place of values."""
    documents = (cluster_manifests.to_yaml([obj]).removeprefix(_SEPARATOR) for obj in objects)
    text = "".join(f"{_SEPARATOR}{document}" for document in documents)
    text = text.replace("{{", '{{ "{{" }}')
    for value, expression in _EXPRESSIONS.items():
        text = text.replace(value, expression)
    return text


if __name__ == "__main__":
    sys.stdout.write(f"{write(Path(sys.argv[1]))}\n")
