"""`tenon template` and `tenon publish`: deployments by CloudFormation itself, in moto."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from infra import assembly, function_sizes
from infra.bundle import bundling
from tests.integration.cli.command import CHECKOUT, TENON, call
from tests.integration.cli.test_cli_bad_inputs import assert_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.cli.command import CommandResult

BUCKET, REGION = "artifacts-of-mine", "eu-central-1"
PRINTED = ("-c", "clusterSide=printed")
MOTO = {"lambda": {"use_docker": False}, "iam": {"load_aws_managed_policies": True}}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Small bundles: fetching the functions' packages needs a network."""
    folder = tmp_path_factory.mktemp("code")
    bundles = {}
    for name in function_sizes.FUNCTIONS:
        bundles[name] = folder / name
        (bundles[name] / "functions" / name).mkdir(parents=True)
        (bundles[name] / "functions" / name / "handler.py").write_text(f"# {name}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundling, "bundles", lambda *_, mode, machine: bundles)  # noqa: ARG005 (its signature)
        yield


@pytest.fixture(scope="module")
def aws() -> Iterator[None]:
    """An AWS with the user's bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            patch.setenv(name, "testing")
        with mock_aws(config=MOTO):
            configuration: Any = {"LocationConstraint": REGION}
            boto3.client("s3", REGION).create_bucket(Bucket=BUCKET, CreateBucketConfiguration=configuration)
            yield


@pytest.fixture(scope="module")
def published(aws: None, code: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandResult, Path]:  # noqa: ARG001 (what is there)
    file = tmp_path_factory.mktemp("published") / "template.json"
    done = call("publish", "demo", "--bucket", BUCKET, "--prefix", "tenon", "--template", str(file), *PRINTED)
    assert done.code == 0, done.err
    return done, file


def objects() -> dict[str, Any]:
    listed = boto3.client("s3", REGION).list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {str(item["Key"]): item["LastModified"] for item in listed}


@pytest.mark.filterwarnings("ignore:Tried to parse AWS:UserWarning")  # moto passes over some policies
def test_the_published_template_is_deployed_by_cloudformation_alone(published: tuple[CommandResult, Path]) -> None:
    done, _ = published
    cloudformation = boto3.client("cloudformation", REGION)
    cloudformation.create_stack(StackName="tenon-demo", TemplateURL=done.out.strip(), Capabilities=["CAPABILITY_IAM"])
    (stack,) = cloudformation.describe_stacks(StackName="tenon-demo")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    outputs = {output["OutputKey"] for output in stack["Outputs"]}
    assert {"NodeRoleArn", "CatalogBucket", "ProvisionerRoleArn"} <= outputs
    lambda_ = boto3.client("lambda", REGION)
    assert {f["FunctionName"] for f in lambda_.list_functions()["Functions"]} == {
        f"tenon-demo-{name}" for name in function_sizes.FUNCTIONS
    }
    for mapping in lambda_.list_event_source_mappings()["EventSourceMappings"]:
        lambda_.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)  # moto would run what isn't there


def test_every_code_location_is_an_uploaded_archive_with_the_code(published: tuple[CommandResult, Path]) -> None:
    _, file = published
    template = json.loads(file.read_text())
    defaults = {name: parameter["Default"] for name, parameter in template["Parameters"].items()}
    assert defaults == {"AssetsBucket": BUCKET, "AssetsPrefix": "tenon/"}
    assert "Rules" not in template  # no bootstrapping
    s3 = boto3.client("s3", REGION)
    for resource in template["Resources"].values():
        if resource["Type"] != "AWS::Lambda::Function":
            continue
        location = resource["Properties"]["Code"]
        assert location["S3Bucket"] == {"Fn::Sub": "${AssetsBucket}"}
        key = location["S3Key"]["Fn::Sub"].replace("${AssetsPrefix}", defaults["AssetsPrefix"])
        with zipfile.ZipFile(io.BytesIO(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())) as archive:
            (entry,) = archive.infolist()
            handler = resource["Properties"]["Handler"].removesuffix(".handle")
            assert entry.filename == f"{handler.replace('.', '/')}.py"
            assert entry.external_attr >> 16 == 0o644


def test_standard_output_is_the_url_alone_and_the_next_step_is_on_standard_error(
    published: tuple[CommandResult, Path],
) -> None:
    done, file = published
    (url,) = done.lines
    assert url.startswith(f"https://{BUCKET}.s3.{REGION}.amazonaws.com/tenon/")
    stored = boto3.client("s3", REGION).get_object(Bucket=BUCKET, Key=url.split("amazonaws.com/")[1])
    assert stored["Body"].read() == file.read_bytes()
    for words in ("--stack-name tenon-demo", "--region eu-central-1", "Key=eks:eks-cluster-name,Value=demo", url):
        assert words in done.err


def test_nothing_is_uploaded_twice(published: tuple[CommandResult, Path]) -> None:
    before = objects()
    again = call("publish", "demo", "--bucket", BUCKET, "--prefix", "/tenon/", *PRINTED)
    assert (again.code, again.out) == (0, published[0].out)
    assert objects() == before
    assert "uploaded" not in again.err


def test_a_stack_that_the_cdk_deployed_goes_on_with_the_published_template(
    published: tuple[CommandResult, Path],
) -> None:
    context = {"bundle": "source", "clusterSide": "printed"}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=context, region=REGION)
    deployed = json.loads((folder / "tenon-demo.template.json").read_text())
    template = json.loads(published[1].read_text())
    for resource in (*deployed["Resources"].values(), *template["Resources"].values()):
        resource["Properties"].pop("Code", None)  # all that differs
    assert template["Resources"] == deployed["Resources"]
    assert template["Outputs"] == deployed["Outputs"]


def test_the_template_is_the_published_one_without_the_bucket(published: tuple[CommandResult, Path]) -> None:
    done = call("template", "demo", *PRINTED, "--region", REGION)
    template, with_bucket = json.loads(done.out), json.loads(published[1].read_text())
    assert template.pop("Parameters").keys() == with_bucket.pop("Parameters").keys()
    assert template == with_bucket
    lint = Path(sys.executable).with_name("cfn-lint")
    linted = subprocess.run(
        [lint, "--ignore-checks", "W3005", "--", published[1]], capture_output=True, text=True, check=False
    )
    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.usefixtures("aws", "code")
@pytest.mark.parametrize(
    ("arguments", "words", "exit_code"),
    [
        (("template", "de,mo"), "NAME=de,mo: an EKS cluster's name", 2),
        (("template", "demo", "-c", "clutser=x"), "-c clutser=x: unknown; did you mean cluster?", 2),
        (("template", "demo", "-c", "relay"), "-c relay: must be KEY=VALUE", 2),
        (("template", "demo", "-c", "relay=x"), "-c relay=x: must be function or pod", 2),
        (("template", "demo", "-c", "cluster=x"), "the cluster is the argument NAME", 2),
        (("template", "demo", "-c", "fleet=x"), "deployed together, by cdk deploy", 2),
        (("template", "demo", "--region", "mars-1"), '"mars-1" is not an AWS Region', 2),
        (("template", "demo", "-c", "relay=pod"), "-c relay=pod: no image is built here", 2),
        (("publish", "demo", "--bucket", "not-there-4711"), "there is no such bucket; create it: aws s3 mb", 2),
        (("publish", "demo", "--bucket", "not a name"), "--bucket=not a name: is no bucket's name", 2),
        (("publish", "demo", "--bucket", BUCKET, "-c", "bundle=source"), "nothing to publish", 2),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...], words: str, exit_code: int) -> None:
    assert_error(list(arguments), words, code=exit_code)


def test_without_credentials_nothing_is_synthesised(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    files = {"AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    done = subprocess.run(
        [*TENON, "publish", "demo", "--bucket", BUCKET],
        env={**environ, **files, "AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": str(CHECKOUT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("tenon publish: no AWS credentials")


@pytest.mark.usefixtures("code")
def test_a_missing_part_of_the_cdk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_error(["template", "demo"], "Node.js isn't on PATH", code=1)
    monkeypatch.setitem(sys.modules, "constructs", None)
    assert_error(
        ["template", "demo"],
        "the template needs constructs, which isn't installed: "
        "pipx install --force 'dist/tenon_eks-0.1.0-py3-none-any.whl[demo,deploy,export]'",
        code=1,
    )


@pytest.mark.usefixtures("aws", "code")
def test_an_unwritable_file_is_refused_before_anything_is_uploaded() -> None:
    before = objects()
    done = call("publish", "other", "--bucket", BUCKET, "--template", "/none/x", *PRINTED)
    assert (done.code, done.out) == (1, "")
    assert "tenon publish: --template=/none/x: No such file" in done.err
    assert objects() == before
