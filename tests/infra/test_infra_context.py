"""Context keys: which are refused, and with which message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from infra import assembly, synthesis
from infra.options import context_keys, stack_options
from infra.options.stack_options import OptionError

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = {"bundle": "source", "clusterSide": "printed"}


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("clutser", "cluster"),
        ("Cluster", "cluster"),
        ("cluster-side", "clusterSide"),
        ("node_groups", "nodeGroups"),
        ("relayMemroy", "relayMemory"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known(key: str, nearest: str) -> None:
    with pytest.raises(OptionError) as error:
        context_keys.check({"cluster": "demo", key: "x"})
    assert str(error.value) == f"-c {key}=x: unknown; did you mean {nearest}?"
    with pytest.raises(OptionError, match=f"did you mean {nearest}"):
        context_keys.given([f"{key}=x"])


def test_a_key_like_no_other_is_refused_with_all_known(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="-c zzz=1: unknown; the keys are cluster, clusters, fleet"):
        synthesis.make(context={**SOURCE, "cluster": "demo", "zzz": 1}, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_keys_of_the_cdk_and_of_its_files_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".cdk.json").write_text(json.dumps({"context": {"theirs": 1}, "notices": False}))
    (tmp_path / "cdk.context.json").write_text(json.dumps({"looked-up": 1}))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    namespaced = {"aws:cdk:toolkit:dirty": 1, "@aws-cdk/core:x": 1, "availability-zones:account=1:region=r": ["a"]}
    written = {"acknowledged-issue-numbers": [1], "cli-telemetry": False, "theirs": 1, "looked-up": 1}
    context_keys.check({**dict.fromkeys(stack_options.KEYS, "x"), **namespaced, **written})
    with pytest.raises(OptionError, match="-c notices=1"):
        context_keys.check({"notices": 1})


def test_the_last_value_of_a_key_counts() -> None:
    assert context_keys.given(["cluster=a", "relay=pod", "cluster=b=c"]) == {"cluster": "b=c", "relay": "pod"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no cluster: give its name, as in: python -m infra.app -c cluster=NAME"),
        (["-c", "cluster=demo", "-c", "clutser=x"], "-c clutser=x: unknown; did you mean cluster?"),
        (["-c", "cluster"], "-c cluster: must be KEY=VALUE"),
    ],
)
def test_the_app_refuses_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.app", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(assembly.CHECKOUT)},
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", message)
    assert not list(tmp_path.rglob("*.template.json"))
