"""``python -m bench.blueprints`` applies a folder of manifests, and says which of them don't run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import blueprints

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      nodeSelector: {{intent: {intent}}}
      containers: [{{name: c, image: x, resources: {{requests: {{cpu: 700m}}}}}}]
"""
OWN_POOL = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: own
spec:
  amiSelectorTerms: [{alias: al2023@v20240101}]
  role: "<<KARPENTER_NODE_IAM_ROLE_NAME>>"
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: <<CLUSTER_NAME>>}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: <<CLUSTER_NAME>>}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: own
spec:
  template:
    metadata: {labels: {intent: own}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: own}
      requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [<<AZ>>]}]
"""


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_each_directory_is_applied_and_what_does_not_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        tmp_path / "variants",
        few=WORKLOAD.format(replicas=2, intent="apps"),
        more=WORKLOAD.format(replicas=6, intent="apps"),
    )
    write(tmp_path / "own", pool=OWN_POOL, workload=WORKLOAD.format(replicas=3, intent="own"), pool_automode="kind: {")
    write(tmp_path / "auto-mode", pool="kind: {")
    assert blueprints.main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" on ")[0] for line in lines] == [
        "ok   own: 3 pods",
        "ok   variants/few: 2 pods",
        "ok   variants/more: 6 pods",
    ]


def test_a_pod_that_no_pool_allows_fails_its_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "lost", workload=WORKLOAD.format(replicas=1, intent="nowhere"))
    assert blueprints.main([str(tmp_path), "lost"]) == 1
    out = capsys.readouterr().out
    assert "FAIL lost: 1 pods on 0 nodes" in out
    assert "pending web-" in out


def test_without_a_folder_the_usage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert blueprints.main([]) == 2
    assert "usage" in capsys.readouterr().err
