"""Bad input to commands: one line (or the usage box) that names what is wrong, an exit code, and no traceback."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infra import installation
from tests.integration.cli.command import CHECKOUT, TENON, call

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED, USAGE = 1, 2
NODE_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "p"},
    "spec": {
        "disruption": {"budgets": [{"nodes": "1", "schedule": "99 x * *", "duration": "1h"}]},
        "template": {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}}},
    },
}
RECORDING = {"version": 1, "title": "t", "start": "2026-01-01T00:00:00Z", "end": 10.0}

UNREADABLE = {
    "binary": (bytes(range(256)), "not UTF-8"),
    "not UTF-8": (b"kind: Pod\nmetadata: {name: caf\xe9}\n", "not UTF-8"),
    "JSON that is not UTF-8": (b'{"kind": "Pod", "metadata": {"name": "caf\xe9"}}', "not UTF-8"),
    "truncated gzip": (gzip.compress(b'{"kind": "Pod"}' * 50)[:-12], "broken gzip"),
    "corrupt gzip": (gzip.compress(b"a" * 50)[:10] + b"\xff" * 16, "broken gzip"),
    "empty": (b"", "empty"),
    "empty gzip": (gzip.compress(b""), "empty"),
    "only a comment": (b"# nothing\n", "empty"),
    "a string": (b"hello", "str"),
    "a number": (b"5", "int"),
    "a list of numbers": (b"- 1\n- 2\n", "int"),
    "JSON nested deeply": (b'{"kind":"Pod","metadata":' + b'{"a":' * 100_000, "nested too deeply"),
    "YAML nested deeply": (b"a: " + b"[" * 100_000, "nested more than 200 deep"),
    "NUL in JSON": (b'{"kind": "Pod", "metadata": {"name": "a\x00b"}}', "not JSON"),
    "NUL in YAML": (b'kind: Pod\nmetadata: {name: "a\x00b"}\n', "#x0000"),
    "alias of itself": (b"kind: Pod\nmetadata: &m {name: x, o: *m}\n", "*m contains itself"),
    "aliases of aliases": (
        b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 10)) for i in range(8)),
        "aliases stand for more than",
    ),
    "a list as key": (b"kind: Pod\n? [a, b]\n: c\n", "invalid map key: a map or list"),
    "no kind": (b'{"metadata": {"name": "x"}}', "neither"),
    "kind is a number": (b'{"kind": 5}', "kind"),
    "items of numbers": (b'{"kind": "PodList", "items": [1]}', "int"),
    "objects is a map": (b'{"objects": {"a": 1}}', "objects"),
    "options is a number": (b'{"options": 5}', "options"),
    "unknown policy": (b'{"options": {"preferencePolicy": "x"}, "objects": []}', "allowed are Respect, Ignore"),
    "instance type is a number": (b'{"instanceTypes": [1]}', "instanceTypes[0]: must be a map"),
    "instance type without a name": (b'{"instanceTypes": [{}]}', "'name' is missing"),
    "offering is a string": (
        b'{"instanceTypes": [{"name": "a", "capacity": {}, "offerings": "x"}]}',
        "offerings must be a list",
    ),
    "capacity is no quantity": (b'{"instanceTypes": [{"name": "a", "capacity": {"cpu": "1x"}}]}', '"1x"'),
    "types of a NodePool are a number": (
        b'{"instanceTypes": [], "instanceTypesForNodePool": {"p": 5}}',
        "instanceTypesForNodePool",
    ),
}

READ_AS_BY_KUBECTL = {
    "duplicate anchor": (b"kind: &a Pod\nmetadata: {name: &a x}\n", "default/x: unschedulable"),
    "tag of a Python object": (
        b"kind: Pod\nmetadata: !!python/object:os.system {name: x}\n",
        "default/x: unschedulable",
    ),
    "NaN": (b'{"kind": "Pod", "spec": {"priority": NaN}}', 'spec.priority: "NaN" is not an integer'),
    "month 13": (b"kind: Pod\nmetadata: {creationTimestamp: 2024-13-45}\n", '"2024-13-45" is not a time'),
    "number of 6000 digits": (b"kind: Pod\nspec: {priority: " + b"9" * 6000 + b"}\n", "is not an integer"),
    "lone surrogate": (
        b'{"kind": "Pod", "metadata": {"name": "x", "labels": {"a": "\\ud800"}}}',
        "default/x: unschedulable",
    ),
    "on, a time of day and =": (
        b"kind: Pod\nmetadata: {name: x, annotations: {at: 10:30, op: =}}\nspec: {on: {}}\n",
        "default/x: unschedulable",
    ),
}

OPTIONS = {
    "catalog m5.large --region mars-1": '"mars-1" is not an AWS Region',
    "catalog m5.huge": 'no instance type "m5.huge"',
    "catalog --kubernetes latest": "not of the form 1.33",
    "catalog --max-pods 0": "--max-pods",
    "plan -f POD --region mars-1": '"mars-1" is not an AWS Region',
    "nodes -f POD --region us-east-1a": '"us-east-1a" is not an AWS Region',
    "explain pod web -f POD --region US-EAST-1": '"US-EAST-1" is not an AWS Region',
    "plan -f MARS": '"mars-1" is not an AWS Region',
    **{
        f"{command} --region mars-1": '"mars-1" is not an AWS Region'
        for command in (
            "plan",
            "explain pod web",
            "nodes --once",
            "node-groups",
            "report",
            "status",
            "pause prod",
            "resume prod",
            "rollback 1.36",
            "preflight prod",
            "verify prod",
            "shadow report --cluster prod",
            "migrate cluster-autoscaler",
            "migrate karpenter",
            "manifests prod",
            "catalog --aws",
            "plan -f POD --aws",
        )
    },
    "manifests my_cluster!": "an EKS cluster's name is letters",
    "manifests -- -prod": "an EKS cluster's name is letters",
    "manifests prod! --shadow": "an EKS cluster's name is letters",
    "manifests prod --role-arn relay": "must be a role's ARN",
    "manifests prod --role-arn arn:aws:iam::12:role/relay": "must be a role's ARN",
    "manifests prod --image https://x/relay": "must be an image",
    "plan -f DIR": "Is a directory",
    "simulate DIR": "Is a directory",
    "simulate /none": "No such file",
    "plan -f POD --search -1": "--search",
    "plan -f POD --search nan": "--search",
    "plan -f EMPTY --what-if web=5": "not of the form deployment/NAME=REPLICAS",
    "plan -f EMPTY --what-if deployment/web=-1": "not of the form",
    "plan -f EMPTY --what-if deployment/web=²": "not of the form",
    "plan -f EMPTY --what-if deployment/web=99999999": "not of the form",
    "plan -f EMPTY --what-if deployment/web=5": "there is no deployment default/web",
    "plan -f EMPTY --what-if nodepool=/none": "No such file",
    "plan -f EMPTY --what-if nodepool=POD": "holds no NodePool",
    "plan -f EMPTY --what-if nodepool=POOL": "is not a schedule",
    "nodes -f EMPTY --sort size": "is none of name, pool",
    "nodes -f EMPTY -l =a": "not a label selector",
    "nodes -f EMPTY --interval 0": "--interval",
    "explain pod": "with a name",
    "explain pod/x -f EMPTY": "there is no pod default/x",
    "explain nodepool x -f EMPTY": 'there is no NodePool "x"',
    "manifests prod --tolerations a:Never": "NoSchedule, PreferNoSchedule, NoExecute",
    "manifests prod --webhook-url https://x": "give both",
    "manifests prod --webhook-url nourl --webhook-path POD": "must be an https:// URL",
    "manifests prod --webhook-url https://x --webhook-path BINARY": "not UTF-8",
    "preflight prod --relay x": "function, pod or webhook",
    "pause c --cluster d": "differ",
    "verify c --cluster d": "differ",
    "verify c --step wirings": 'there is no step "wirings"',
    "pause c --for soon": "is not a duration",
    "pause c --for 0": "no length",
    "migrate cluster-autoscaler --apply --undo": "exclude each other",
    "migrate cluster-autoscaler --timeout 99999999999999999": "--timeout",
    "shadow report --day 2026-13-01": "must be a day such as",
    "shadow report --days 0": "--days",
    "report REC --days 0": "--days",
    "report REC -o DIR": "Is a directory",
    "report REC -o DIR/none/x.html": "No such file",
    "report REC -o /dev/full": "No space left",
    "demo --region mars-1": '"mars-1" is not an AWS',
    "demo --scale inflate=-1": "not of the form",
    "demo --scale inflate=9999999999": "not of the form",
    "demo --rest inf": "the minutes must be more than 0",
    "demo --fault boot=x:y": "is not one of",
    "demo --interrupt spot=x": "spot=all or spot=NUMBER",
    "demo --record DIR": "Is a directory",
    "demo --manifest DEEP": "nested more than 200 deep",
    "demo --manifest MONTH": "it has no apiVersion and kind",
    "demo --kubeconfig EMPTY": "is not a kubeconfig",
}

RECORDINGS = {
    "a string": (b"hello", "not a recording"),
    "truncated": (json.dumps(RECORDING).encode()[:-5], "not a recording"),
    "not UTF-8": (b'{"title": "caf\xe9"}', "not UTF-8"),
    "nested deeply": (b'{"a":' * 100_000, "nested too deeply"),
    "of another version": (b'{"version": 2, "nodes": []}', "version 2; version 1 is required"),
    "without a start": (b'{"version": 1, "title": "t"}', "start"),
    "that ends before it starts": (json.dumps({**RECORDING, "end": -5}).encode(), "end is -5 seconds"),
    "that never ends": (json.dumps({**RECORDING, "end": 1e300}).encode(), "end is 1e+300 seconds"),
}


def _kubeconfig(*, server: object = "http://127.0.0.1:1", user: object = None, **fields: object) -> str:
    return json.dumps(
        {
            "current-context": "h",
            "clusters": [{"name": "h", "cluster": {"server": server}}],
            "users": [{"name": "m", "user": user or {"token": "t"}}],
            "contexts": [{"name": "h", "context": {"cluster": "h", "user": "m"}}],
            **fields,
        }
    )


def _plugin(command: str) -> dict[str, Any]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": command}}


KUBECONFIGS = {
    "empty": ("", "is empty"),
    "a string": ("hello", "is no kubeconfig"),
    "a list": ("[1]", "is no kubeconfig"),
    "not YAML": ("a: [b", "is no kubeconfig"),
    "tag of a Python object": ("a: !!python/object:os.system {}", "is no kubeconfig"),
    "without contexts": (_kubeconfig(contexts=[]), "contexts"),
    "contexts of numbers": (_kubeconfig(contexts=[5]), "is no kubeconfig"),
    "unknown current context": (_kubeconfig(**{"current-context": "no"}), "no in"),
    "clusters is a number": (_kubeconfig(clusters=5), "is no kubeconfig"),
    "without a server": (_kubeconfig(server=""), "not an https:// URL"),
    "server is a number": (_kubeconfig(server=5), "is no kubeconfig"),
    "server of another protocol": (_kubeconfig(server="ftp://x"), "not an https:// URL"),
    "closed port": (_kubeconfig(), "can't be reached"),
    "invalid port": (_kubeconfig(server="http://127.0.0.1:99999"), "99999"),
    "token with a line break": (_kubeconfig(user={"token": "a\nb"}), "line breaks"),
    "token of a missing file": (_kubeconfig(user={"tokenFile": "/none"}), "/none"),
    "missing command": (_kubeconfig(user=_plugin("/none")), "gives no token"),
    "failing command": (_kubeconfig(user=_plugin("false")), "gives no token"),
    "command without a token": (_kubeconfig(user=_plugin("echo")), "gives no token"),
}


def assert_error(arguments: list[str], words: str, *, code: int, env: dict[str, str] | None = None) -> None:
    """The command fails with one line, or a usage box, that has the words."""
    done = call(*arguments, env={"COLUMNS": "240", **(env or {})})
    assert done.code == code, done.out + done.err
    assert words in done.err
    assert "Traceback" not in done.err
    if "Usage:" not in done.err:
        assert done.err.startswith("tenon ")
        assert done.err.count("\n") == 1


def files(folder: Path) -> Iterator[tuple[str, str]]:
    """The files that words in capitals stand for."""
    contents: dict[str, bytes] = {
        "POD": b'{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}',
        "MARS": b'{"kind": "Node", "metadata": {"name": "n", "labels": {"topology.kubernetes.io/region": "mars-1"}}}',
        "EMPTY": b'{"objects": [], "instanceTypes": []}',
        "POOL": json.dumps(NODE_POOL).encode(),
        "REC": json.dumps(RECORDING).encode(),
        "BINARY": bytes(range(256)),
        "DEEP": UNREADABLE["YAML nested deeply"][0],
        "MONTH": READ_AS_BY_KUBECTL["month 13"][0],
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        yield name, str(folder / name)
    yield "DIR", str(folder)


@pytest.mark.parametrize("command", ["plan -f", "simulate"])
@pytest.mark.parametrize("content", UNREADABLE)
def test_a_file_that_cannot_be_read(command: str, content: str, tmp_path: Path) -> None:
    data, words = UNREADABLE[content]
    (tmp_path / "file").write_bytes(data)
    assert_error([*command.split(), str(tmp_path / "file")], words, code=USAGE)


@pytest.mark.parametrize("command", ["plan -f", "simulate"])
@pytest.mark.parametrize("content", READ_AS_BY_KUBECTL)
def test_a_file_that_kubectl_reads_is_read_and_its_object_named(command: str, content: str, tmp_path: Path) -> None:
    data, words = READ_AS_BY_KUBECTL[content]
    (tmp_path / "file").write_bytes(data)
    done = call(*command.split(), str(tmp_path / "file"), env={"COLUMNS": "240"})
    assert words in done.out
    assert done.code in (0, 1)


@pytest.mark.parametrize("command", OPTIONS)
def test_an_option_or_argument_that_is_not_valid(command: str, tmp_path: Path) -> None:
    arguments = command.split()
    for name, path in files(tmp_path):
        arguments = [a.replace(name, path) for a in arguments]
    assert_error(arguments, OPTIONS[command], code=USAGE)


@pytest.mark.parametrize("content", RECORDINGS)
def test_a_recording_that_cannot_be_read(content: str, tmp_path: Path) -> None:
    data, words = RECORDINGS[content]
    (tmp_path / "run.json").write_bytes(data)
    assert_error(["report", str(tmp_path / "run.json"), "-o", str(tmp_path / "run.html")], words, code=USAGE)
    assert not (tmp_path / "run.html").exists()


@pytest.mark.parametrize("content", KUBECONFIGS)
def test_a_kubeconfig_that_cannot_be_used(content: str, tmp_path: Path) -> None:
    text, words = KUBECONFIGS[content]
    (tmp_path / "config").write_text(text)
    env = {"KUBECONFIG": str(tmp_path / "config")}
    assert_error(["nodes", "--once", "--cluster", "c"], words, code=FAILED, env=env)


def test_a_kubeconfig_that_is_a_directory(tmp_path: Path) -> None:
    for command in (["plan"], ["pause", "c"], ["migrate", "cluster-autoscaler"]):
        arguments = command if command[0] == "pause" else [*command, "--cluster", "c"]
        assert_error(arguments, "Is a directory", code=FAILED, env={"KUBECONFIG": str(tmp_path)})


def test_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*TENON, "manifests", "prod"], cwd=CHECKOUT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == FAILED
    assert done.stderr == "tenon: the output can't be written: No space left on device\n"


def test_utf_16_files_of_powershell_are_read(tmp_path: Path) -> None:
    text = '{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}'
    (tmp_path / "pod.json").write_text(text, encoding="utf-16")
    assert "default/web" in call("simulate", str(tmp_path / "pod.json")).out


def test_the_version() -> None:
    done = call("--version")
    assert (done.code, done.out) == (0, f"tenon {installation.version()}\n")
