"""The CDK's CLI: bootstrap, deploy, deploy again, destroy against AWS's APIs over HTTP."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from infra import assembly
from tests.infra.cdk_command import CDK

pytestmark = pytest.mark.usefixtures("fetched")
REGION = "us-east-1"
# kubectl's Lambda would have to run for the cluster's side, and moto's server runs none; its work is tested separately
SAID = ["-c", "cluster=demo", "-c", "bundle=source", "-c", "clusterSide=printed"]


@pytest.fixture
def aws() -> Iterator[str]:
    """The address of an AWS of its own: moto in another process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"http://localhost:{port}"  # by name: the S3 client puts bucket names before it
    environ = {**os.environ, "MOTO_IAM_LOAD_MANAGED_POLICIES": "true", "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(f"{address}/moto-api/data.json", server)
            request = urllib.request.Request(  # noqa: S310 - our own address
                f"{address}/moto-api/config", data=b'{"lambda": {"use_docker": false}}', method="POST"
            )
            request.add_header("Content-Type", "application/json")
            urllib.request.urlopen(request, timeout=30).close()  # noqa: S310 - the same
            yield address
        finally:
            server.send_signal(signal.SIGTERM)


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert server.poll() is None, "moto's server ended"
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(address, timeout=30).close()  # noqa: S310 - our own address
            return
        time.sleep(0.1)
    raise AssertionError("moto's server did not come up")


def cdk(aws: str, *arguments: str) -> str:
    """Runs the command line and returns its output."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(assembly.CHECKOUT),
        "AWS_ENDPOINT_URL": aws,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": REGION,
        "CI": "true",  # says everything on standard output, and asks nothing
    }
    done = subprocess.run(
        [*CDK, *arguments, "--no-notices"],
        cwd=assembly.CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_bootstrap_deploy_deploy_again_and_destroy(aws: str, tmp_path: Path) -> None:
    def client(service: str) -> Any:
        return boto3.client(  # type: ignore[call-overload]  # a name that is not known before
            service,
            endpoint_url=aws,
            region_name=REGION,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    assert "bootstrapped" in cdk(aws, "bootstrap", *SAID)
    deploy = ["deploy", "--require-approval", "never"]
    written = str(tmp_path / "cdk.out")
    assert "tenon-demo: creating CloudFormation changeset" in cdk(aws, *deploy, *SAID, "--output", written)
    (stack,) = client("cloudformation").describe_stacks(StackName="tenon-demo")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    names = {function["FunctionName"] for function in client("lambda").list_functions()["Functions"]}
    assert {"tenon-demo-provisioner", "tenon-demo-termination"} <= names

    assert "tenon-demo (no changes)" in cdk(aws, *deploy, "--app", written)

    assert "tenon-demo: destroyed" in cdk(aws, "destroy", "--force", "--app", written)
    # What stays is tested by the template: moto deletes what has RetainExceptOnCreate.
    assert not client("lambda").list_functions()["Functions"]
