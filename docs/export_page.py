"""The page of `tenon export`: how it is run, what it needs and costs, its alerting rules, and every metric."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cli.export import families, manifests, rules
from cli.export.cloudwatch import USD_PER_METRIC, monthly_usd
from cli.export.cluster_reader import LEASE_RULES, RULES
from cli.export.command import MIN_CLOUDWATCH_SECONDS
from docs.markdown import table
from shared.api.yaml_documents import writer
from shared.base import metrics
from shared.cluster.lease import lease_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cli.export.families import Family

_NODE_LABELS = "*node labels*"
_SOURCES = {
    families.CLUSTER: """### The Kubernetes API

Read each 30 s (`--interval`).
""",
    families.CATALOG: """### The stored catalog

Prices, when the cluster is read; the catalog is read from its bucket each five minutes.
""",
    families.CLOUDWATCH: """### CloudWatch

Read each five minutes (`--cloudwatch-interval`). With lean observability there is only `tenon_unwell_total`; the others
need `-c observability=full`. Counters are sums since midnight UTC, summaries have a sum and a count.
""",
    families.EXPORT: """### The export itself

Whether its sources (`cluster`, `catalog`, `cloudwatch`) are read, and how old their metrics are.
""",
}


def page() -> str:
    """The whole page."""
    sections = (_failures, _cost, _rights, _alerts, _differences, _all_metrics)
    return "\n".join([_START, *(section() for section in sections)])


_START = """\
# Prometheus and Grafana

`tenon export` serves the cluster's and Tenon's metrics for Prometheus, under Karpenter's names and labels where the
meaning is the same. It is a process of yours, on any machine or in the cluster; Tenon's functions don't need it.
Without it, the functions' own metrics are in [CloudWatch](reference/metrics.md).

```
tenon export                                # http://127.0.0.1:9090/metrics, until Ctrl-C or SIGTERM
tenon export --listen 0.0.0.0 --port 9464   # for other machines; there is no authentication
tenon export --once --no-pods               # print it once, such as for node_exporter's textfile collector
tenon export --dashboard > tenon.json       # the Grafana dashboard
tenon export --rules > tenon-rules.yaml     # alerting rules for Prometheus
tenon export --manifests --image IMAGE --cluster NAME --region REGION | kubectl apply -f -
```

`--context`, `--cluster` and `--region` choose the cluster as in [all commands](cli.md#which-cluster). A scrape gets
OpenMetrics or Prometheus' text format, whichever it asks for. Counters of the Kubernetes API
need a running process, so `--once` doesn't have them; its exit code is 1 if the cluster can't be read.

For `--manifests` you build the image: `FROM python:3.13-slim` with Tenon's wheel installed, and `ENTRYPOINT ["tenon"]`.
They have one pod, since a second one would read and pay the same again, and a Service with the usual annotations for
Prometheus. `--role-arn` is the pod's IAM role by IRSA; with EKS Pod Identity leave it out.
"""


def _failures() -> str:
    return f"""\
## When something can't be read

The Kubernetes API, the catalog and CloudWatch are read in the background, each for itself, with time-outs. A scrape
only shows what is in memory, so it never waits for them.

- `{families.UP.name}` is 0 for a source that can't be read. `{families.READS.name}` counts why: `denied`,
  `unreachable`, `missing` (Tenon isn't deployed, or there is no catalog yet) or `failed`. Standard error has one line
  when that begins and one when it ends.
- The other sources' metrics still come: without rights on CloudWatch you have all but the functions' metrics, without
  the catalog all but prices.
- What was last read is shown for four intervals, at least five minutes, and then left out.
  `{families.AGE.name}` and `{families.LAST_SUCCESS.name}` say how old it is. Prices
  stay those of the last catalog.
- `/healthz` answers 200, and 503 when a read hasn't ended for ten minutes, so that a probe restarts the process.
- The process starts without the API server and AWS too. At SIGTERM and Ctrl-C it ends at once, with exit code 0.
"""


def _cost() -> str:
    count = 1 + len(families.FROM_CLOUDWATCH)
    full = monthly_usd(300, has_all_metrics=True)
    fastest = monthly_usd(MIN_CLOUDWATCH_SECONDS, has_all_metrics=True)
    rows = [
        ("lean", "300 s (default)", 1, f"{monthly_usd(300, has_all_metrics=False):.2f}"),
        ("full", "300 s (default)", count, f"{full:.2f}"),
        ("full", f"{MIN_CLOUDWATCH_SECONDS} s (the shortest)", count, f"{fastest:.2f}"),
        ("any", "`--no-cloudwatch`", 0, "0.00"),
    ]
    return f"""\
## Size and cost

A node has about 25 series with up to {len(families.NODES_ALLOCATABLE.labels)} labels, as Karpenter's, and a pod one: \
1,000 nodes and 20,000 pods are about 32 MB,
rendered in two seconds. `--no-pods` leaves out the pods' series; no panel and no rule needs them. `--offerings` adds
the prices of all instance types.

AWS charges USD {USD_PER_METRIC * 1000:.2f} for 1,000 metrics read by GetMetricData. One call requests them, without
those that the cluster says as well. A month of 30 days:

{_table(("observability", "interval", "metrics", "USD a month"), rows)}

`{families.REQUESTED.name}` counts them. The other calls (GetFunctionConfiguration and
GetObject, each five minutes) cost less than a cent a month.

The functions' metrics in CloudWatch have no dimension for NodePools, in full observability neither: each NodePool would
be a metric more of each kind, at USD 0.30 a month, and no alarm needs it. The export has nodes, cost, limits,
NodeClaims and disruption by NodePool from the Kubernetes API, without charge.
"""


def _rights() -> str:
    rows = [(group or "core", ", ".join(resources), ", ".join(verbs)) for group, resources, verbs in RULES]
    ((_, _, lease_verbs),) = LEASE_RULES
    policy = manifests.iam_policy("NAME", region="REGION", account="ACCOUNT", bucket="BUCKET")
    return f"""\
## Rights

In the cluster, a ClusterRole that only reads (`--manifests` has it):

{_table(("API group", "resources", "verbs"), rows)}

And a Role for `{", ".join(lease_verbs)}` on the Lease `{lease_name("NAME")}` in `kube-system`, which says whether the \
cluster is paused.
Without it, `{families.CLUSTER_PAUSED.name}` and `{families.POOL_PAUSED.name}` are missing.

In AWS, this policy; `BUCKET` is the bucket of the stack's catalog. Outside the cluster, the same principal needs an
access entry for these rights.

```json
{json.dumps(policy, indent=2)}
```
"""


def _alerts() -> str:
    rows = [
        (f"`{rule['alert']}`", rule["labels"]["severity"], f"`{rule['expr']}`", rule["for"], _link(rule["annotations"]))
        for rule in rules.build()["groups"][0]["rules"]
    ]
    target = {"job_name": "tenon", "scrape_interval": "30s", "static_configs": [{"targets": ["127.0.0.1:9090"]}]}
    scrape = writer.text({"scrape_configs": [target], "rule_files": ["tenon-rules.yaml"]})
    return f"""\
## Grafana and alerts

`tenon export --dashboard > tenon.json`, then import the file in Grafana 10 or newer. The data source is a variable of
the dashboard, and so are Prometheus' job and instance: with several clusters, each export is an instance.

In Prometheus' configuration:

```yaml
{scrape.rstrip()}
```

The rules:

{_table(("alert", "severity", "expression", "for", "what to do"), rows)}

`up{{job="tenon"}} == 0` notices that one of several exports is gone. Keep the CloudWatch alarm
[unwell](runbooks.md#unwell): only it notices that the functions don't run at all.
"""


def _link(annotations: dict[str, str]) -> str:
    runbook = annotations.get("runbook", "").removeprefix("docs/")
    return f"[runbook]({runbook})" if runbook else ""


def _differences() -> str:
    return f"""\
## Differences from Karpenter's metrics

Karpenter's controller counts what it does itself. The export counts what has changed between two reads of the cluster:

- A NodeClaim that comes and goes between two reads is not counted, such as one whose launch EC2 refuses at once
  (`{families.of_metric(metrics.NOT_LAUNCHED).name}` has those); nor is what happens while the export doesn't run.
- `{families.ELIGIBLE.name}` follows the conditions of NodeClaims.
- `{families.of_metric(metrics.DECISION_SECONDS).name}` is a summary with a sum and a count, as CloudWatch has
  them, and not a histogram.
- `{families.DECISIONS.name}` has no label `consolidation_type`,
  `{families.of_metric(metrics.INTERRUPTIONS).name}` no labels, and `{families.PODS_STATE.name}` no pods that have
  ended.
- Prometheus takes the fall of CloudWatch's counters at midnight UTC for a reset: use `increase` and `rate`, never the
  value. Their values come five minutes late, so use windows of 15 minutes and more.
- Metrics of Karpenter's process (`controller_runtime_*`, `workqueue_*`, batchers) have no counterpart.
- [Each name of Karpenter's reference](reference/karpenter-metrics.md): had, renamed, or absent and why.
"""


def _all_metrics() -> str:
    keys = ", ".join(f"`{label}`" for label in families.NODES_LIFETIME.labels)
    parts = [
        f"## All metrics\n\nLabels that an object doesn't have are missing. {_NODE_LABELS.capitalize()}: {keys}.\n"
    ]
    for source, heading in _SOURCES.items():
        rows = [(f"`{f.name}`", f.kind, _labels(f), f.description) for f in families.ALL if f.source == source]
        parts.append(f"{heading}\n{_table(('metric', 'type', 'labels', 'meaning'), rows)}\n")
    return "\n".join(parts)


def _labels(family: Family) -> str:
    labels = family.labels
    of_nodes = families.NODES_LIFETIME.labels
    if labels[: len(of_nodes)] == of_nodes:
        return ", ".join([_NODE_LABELS, *(f"`{label}`" for label in labels[len(of_nodes) :])])
    return ", ".join(f"`{label}`" for label in labels)


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    return "\n".join(table(head, rows))
