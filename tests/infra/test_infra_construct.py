"""Tenon in other CDK apps: by an installed wheel, with options that are checked, beside other resources."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack, Stage
from aws_cdk import aws_sns as sns

from infra import assembly, bundling, function_sizes, stack_options
from infra.construct import OptionError, StackOptions, Tenon, TenonStack
from infra.option_checks import checked
from tests.infra.cdk_command import CDK
from tests.infra.nag_findings import checked_app, findings

if TYPE_CHECKING:
    from pathlib import Path

BUNDLED = """
import sys
from pathlib import Path
from infra import bundling, function_sizes, installation
for function in function_sizes.OF_ANY_MODE:
    print(bundling._bundle(Path(sys.argv[1]), installation.ROOT, function, Path(sys.argv[1]) / "none").name)
print(installation.lock(installation.ROOT).read_text())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=assembly.CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (assembly.CHECKOUT / name).is_file() and not name.startswith("tests/"):
            source = folder / "source" / name  # a build writes into its source
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_bytes((assembly.CHECKOUT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(folder / "source")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("setuptools, which builds the wheel, can't be fetched")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"


def environ(installed: Path, home: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": str(installed),
        "XDG_CACHE_HOME": str(home),
        "AWS_EC2_METADATA_DISABLED": "true",
        "CI": "true",
    }


@pytest.mark.usefixtures("fetched")
def test_the_app_of_the_documentation_is_synthesised_outside_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    page = (assembly.CHECKOUT / "docs" / "construct.md").read_text()
    (app,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    app, replaced = re.subn(r"StackOptions\(", 'StackOptions(bundle="source", ', app)
    assert replaced == 2
    (tmp_path / "app.py").write_text(app)
    done = subprocess.run(
        [*CDK, "synth", "--quiet", "--no-notices", "--app", f"{sys.executable} app.py"],
        cwd=tmp_path,
        env=environ(installed, tmp_path / "cache"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    out = tmp_path / "cdk.out"
    stack, platform = (json.loads((out / f"{n}.template.json").read_text()) for n in ("tenon-prod", "platform"))
    names = {r["Properties"].get("FunctionName") for r in platform["Resources"].values() if "Function" in r["Type"]}
    assert {"tenon-staging-provisioner", "tenon-staging-nodegroups"} <= names
    deployed = assembly.cached(cluster="prod", root=assembly.CHECKOUT, context={"bundle": "source"})
    expected = json.loads((deployed / "tenon-prod.template.json").read_text())
    assert _types(stack) == _types(expected)
    assert stack["Outputs"] == expected["Outputs"]
    assert list((tmp_path / "cache" / "tenon").iterdir())
    assert not (installed / "build").exists()  # an installation may be read-only
    # The code of functions that run in deployments, which the CDK takes from the installation itself.
    assert _hashes(out, "kinds_check") == _hashes(deployed, "kinds_check") != set()


def _types(template: dict[str, Any]) -> dict[str, str]:
    return {id_: r["Type"] for id_, r in template["Resources"].items() if r["Type"] != "AWS::CDK::Metadata"}


def _hashes(out: Path, module: str) -> set[str]:
    return {path.parent.parent.name for path in out.glob(f"asset.*/infra/{module}.py")}


def test_an_installation_bundles_the_same_code_as_the_checkout(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUNDLED, str(tmp_path / "installed")],
        cwd=tmp_path,
        env=environ(installed, tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    none = tmp_path / "none"
    own = [
        bundling._bundle(tmp_path / "own", assembly.CHECKOUT, function, none).name
        for function in function_sizes.OF_ANY_MODE
    ]
    lock = (assembly.CHECKOUT / "requirements.lock").read_text()
    assert done.stdout == "".join(f"{name}\n" for name in own) + f"{lock}\n"
    for name in ("Dockerfile", "requirements.txt"):  # of the relay's image
        assert (installed / "relay" / name).read_bytes() == (assembly.CHECKOUT / "relay" / name).read_bytes()


def test_logical_ids_of_deployed_stacks_stay(template: dict[str, Any]) -> None:
    """CloudFormation replaces a resource whose logical id changes."""
    kept = {
        "HintsBusB906405D": "AWS::Events::EventBus",
        "StateTable962DE04C": "AWS::DynamoDB::Table",
        "StateCatalog95A9C14C": "AWS::S3::Bucket",
        "NodesProfile26786074": "AWS::IAM::InstanceProfile",
        "NodesRoleA22E0B2B": "AWS::IAM::Role",
        "ClusterAccessNodeEntryAF8F79D8": "AWS::EKS::AccessEntry",
        "QueuesProvisioningAD5C7D8D": "AWS::SQS::Queue",
        "FunctionsProvisioner62EC19E2": "AWS::Lambda::Function",
        "AlarmsUnwellF10BB23E": "AWS::CloudWatch::Alarm",
    }
    assert kept.items() <= {id_: r["Type"] for id_, r in template["Resources"].items()}.items()


def test_beside_other_resources_every_finding_of_cdk_nag_is_acknowledged(tmp_path: Path) -> None:
    app = checked_app(tmp_path)
    tenon = Tenon(Stack(app, "platform"), "Tenon", options=StackOptions(cluster="demo", bundle="source"))
    assert not findings(app)
    body = json.loads((tmp_path / "platform.template.json").read_text())
    (provisioner,) = (
        r["Properties"]
        for r in body["Resources"].values()
        if r["Properties"].get("FunctionName") == "tenon-demo-provisioner"
    )
    assert {"Key": "eks:eks-cluster-name", "Value": "demo"} in provisioner["Tags"]
    assert set(tenon.functions) == set(function_sizes.FUNCTIONS)
    assert {"NodeRoleArn", "ProvisionerRoleArn", "CatalogBucket"} <= set(tenon.outputs)


def test_in_a_stage_the_stack_has_the_same_name(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    options = StackOptions(cluster="demo", bundle="source", apply=False)
    stack = TenonStack(Stage(app, "Production"), options=options, env=Environment(region="eu-central-1"))
    assert stack.stack_name == "tenon-demo"


def test_arns_of_the_apps_own_resources_are_accepted() -> None:
    stack = Stack(App(analytics_reporting=False), "platform")
    topic = sns.Topic(stack, "Topic").topic_arn
    keys = (topic,)  # any token
    options = checked(StackOptions(cluster="demo", alarm_topic=topic, kms_keys=keys), region=None)
    assert (options.alarm_topic, options.kms_keys) == (topic, keys)
    with pytest.raises(OptionError, match="cluster: must be a name that is known before the deployment"):
        checked(StackOptions(cluster=topic), region=None)


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"relay": "pod", "relayImage": "r/x:1", "relayArchitecture": "arm64", "relayTolerations": "*"},
        {"relay": "pod", "oidcProvider": "https://oidc.eks.us-east-1.amazonaws.com/id/0A"},
        {"relay": "webhook", "webhookDigest": "0" * 64, "clusterSide": "printed"},
        {"kinds": "kept", "capacityBuffers": "kept", "bundle": "source", "functionArchitecture": "amd64"},
        {"relayMemory": "256", "sweepMemory": "1769", "reservedConcurrency": "true", "observability": "full"},
        {"nodeRole": "a", "nodeRoles": "b,c", "subnets": "s-1,s-2", "securityGroups": "g-1", "tracing": "active"},
        {"standby": "on", "nodeGroups": "on", "plannedPods": "off"},
        {"bufferQueues": "q", "bufferAlarms": "a", "bufferEvents": "s/T", "bufferEventBus": "b"},
        {
            "alarmTopic": "arn:aws:sns:us-east-1:123456789012:t",
            "kmsKeys": "arn:aws:kms:us-east-1:123456789012:key/0a",
        },
    ],
)
def test_options_of_every_context_are_valid_as_fields_too(context: dict[str, object]) -> None:
    options = stack_options.parse(context, cluster="demo")
    assert checked(options, region="us-east-1") == options


def test_values_are_brought_into_their_canonical_form() -> None:
    given: Any = {"subnets": "s-1,s-2", "security_groups": ["g-1"], "relay": "pod"}
    issuer = "https://oidc.eks.us-east-1.amazonaws.com/id/0A"
    options = checked(StackOptions(cluster="demo", oidc_provider=issuer, **given), region=None)
    assert (options.subnets, options.security_groups) == (("s-1", "s-2"), ("g-1",))
    assert options.oidc_provider == issuer.removeprefix("https://")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cluster": "de mo"}, "cluster=de mo: an EKS cluster's name"),
        ({"cluster": "a,b"}, "cluster=a,b: an EKS cluster's name"),
        ({"cluster": ""}, "cluster=: an EKS cluster's name"),
        ({"relay": "cloud"}, "relay=cloud: must be function or pod or webhook"),
        ({"relay_memory": 64}, "relay_memory=64: must be MiB from 128"),
        ({"relay_image": "x"}, "relay_image: is for the relay as a pod; give relay=pod"),
        ({"relay_tolerations": ({"operator": "Exists"},)}, "relay_tolerations: is for the relay as a pod"),
        ({"relay": "pod", "relay_architectures": ("riscv64",)}, "relay_architectures=riscv64: must be"),
        ({"relay": "webhook", "apply": False}, "only with relay=webhook and apply=False"),
        ({"subnets": ("s-1",)}, "subnets and security_groups: give both"),
        ({"alarm_topic": "t"}, "alarm_topic=t: must be the ARN"),
        ({"fleet": "prod"}, "fleet=prod: clusters of a fleet are deployed together"),
        ({"shadow": True}, "shadow=True: shadow mode is a stack"),
    ],
)  # fmt: skip
def test_an_invalid_field_is_refused_by_its_name(fields: dict[str, Any], message: str) -> None:
    app = App(analytics_reporting=False)
    with pytest.raises(OptionError, match=re.escape(message)):
        TenonStack(app, options=StackOptions(**{"cluster": "demo", **fields}))
