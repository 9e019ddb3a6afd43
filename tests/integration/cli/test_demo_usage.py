"""What `tenon demo` refuses before anything runs: one line that names what is allowed, and exit code 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.demo.interruptions import Interrupt
from cli.demo.request import Scale, load_manifest
from cli.errors import UsageError
from tests.integration.cli.command import CommandResult, call

if TYPE_CHECKING:
    from pathlib import Path


def demo(*arguments: str) -> CommandResult:
    """The error of a demo that is refused."""
    refused = call("demo", *arguments)
    assert refused.code == 2
    assert "applied" not in refused.out
    return refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--manifest", "nowhere.yaml"], "spot.yaml"),
        (["--scale", "inflate"], "inflate=12,5,1"),
        (["--scale", "deflate=1"], "inflate"),
        (["--scale", "web-*=1"], "inflate"),
        (["--rest", "0"], "--rest 0"),
        (["-c", "standbi=on"], "standby"),
        (["-c", "standby=maybe"], "-c standby=maybe"),
        (["-c", "standby=on", "--kubeconfig", "kind.yaml"], "-c needs the embedded cluster"),
    ],
)
def test_usage_errors_name_what_is_allowed(arguments: list[str], message: str) -> None:
    assert message in demo(*arguments).err


def test_settings_that_need_another_cluster_name_the_better_command() -> None:
    def error(setting: str) -> str:
        return " ".join(demo("-c", setting).err.replace("│", " ").split())

    assert "`tenon simulate MANIFEST` says what Tenon would launch" in error("mode=shadow")
    assert "then `tenon shadow report`" in error("mode=shadow")
    assert "deploy a fleet with cdk" in error("fleet=prod")


def test_a_manifest_that_is_not_yaml_is_rejected(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(UsageError, match="neither JSON nor YAML"):
        load_manifest(str(broken), cluster="demo")
    with pytest.raises(UsageError):
        Scale.parse("inflate=-1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: it has no object"),
        (b"---\n---\n", "is empty: it has no object"),
        (b"kind: List\napiVersion: v1\nitems: []\n", "is empty: it has no object"),
        (b"a text", "object 1 is no Kubernetes object"),
        (b"- 1\n- 2\n", "object 1 is no Kubernetes object"),
        (b"kind: NodePool\n", "has no apiVersion and kind"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: web\n", "has no metadata.name"),
        (b"a: [", "neither JSON nor YAML"),
        (b"\xff\x00\x81", "not UTF-8 text"),
    ],
)
def test_manifests_that_are_none_are_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_bytes(content)
    assert message in demo("--manifest", str(path)).err


@pytest.mark.parametrize("option", ["--record", "--report"])
def test_files_that_cannot_be_written_are_refused_before_the_run(tmp_path: Path, option: str) -> None:
    assert "No such file or directory" in demo(option, str(tmp_path / "missing" / "file")).err


@pytest.mark.parametrize(
    ("fault", "allowed"),
    [
        ("lightning=us-east-1a:1", "spot-capacity=PLACE:N"),
        ("spot-capacity=us-east-1a", "spot-capacity=PLACE:N"),
        ("boot=somewhere:1", "a zone, an instance type or all"),
        ("throttle=Everything:1", "CreateFleet"),
    ],
)
def test_an_unknown_fault_is_rejected_with_the_allowed_ones(fault: str, allowed: str) -> None:
    assert allowed in " ".join(demo("--fault", fault).err.replace("│", "").split())


@pytest.mark.parametrize("text", ["", "spot", "spot=", "spot=0", "spot=some", "on-demand=all"])
def test_a_malformed_interrupt_option_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="spot=all"):
        Interrupt.parse(text)
