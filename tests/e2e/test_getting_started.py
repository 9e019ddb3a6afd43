"""The first pool of docs/getting-started.md works as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from local.world import World

PAGE = Path(__file__).parents[2] / "docs" / "getting-started.md"


@pytest.mark.flow
def test_the_first_pool_of_the_guide_is_ready() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with World(cluster="demo") as world:
        world.apply([*yaml.safe_load_all(text.replace("NAME", "demo"))])
        world.run_until_idle()
        for kind, api_version in (("EC2NodeClass", "karpenter.k8s.aws/v1"), ("NodePool", "karpenter.sh/v1")):
            obj = world.store.get(world.store.kind(api_version, kind), "default")
            ready = {c["type"]: c["status"] for c in obj["status"]["conditions"]}
            assert ready["Ready"] == "True", obj["status"]["conditions"]
