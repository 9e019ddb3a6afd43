"""`tenon upgrade-check` of a deployment of this version, and of an older one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from infra import installation
from local.aws import backends

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Shell

ROLE = ("rbac.authorization.k8s.io/v1", "ClusterRole")


def test_what_differs_is_listed_and_nothing_is_written(shell: Shell) -> None:
    shown = shell.tenon("upgrade-check")
    assert shown.code == 0, shown.err
    version = installation.version()
    assert f"demo: version {version} is deployed, this is {version}\n0 of " in shown.out
    assert "next: nothing" in shown.out
    function = backends.lambda_functions("us-east-1").get_function("tenon-demo-provisioner")
    function.description = "Tenon provisioner of EKS cluster demo"
    store = shell.world.store
    kind = store.kind(*ROLE)
    store.patch(kind, "tenon-provisioner", {"rules": []})
    before = store.get(kind, "tenon-provisioner")
    older = json.loads(shell.tenon("upgrade-check", "--json").out)
    assert older["deployed"] == [version, "unknown"]
    assert [(o["kind"], o["name"], o["state"]) for o in older["objects"]] == [
        ("ClusterRole", "tenon-provisioner", "changed")
    ]
    assert older["next"].startswith("deploy again as before")
    assert store.get(kind, "tenon-provisioner") == before
