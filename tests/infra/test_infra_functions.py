"""The Lambda functions of the stack, and their storage."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra import assembly, function_sizes
from infra.cluster import functions as functions_
from infra.cluster.kubernetes import cluster_manifests
from shared.base import aws, settings
from shared.cluster import client

Select = Callable[[str], dict[str, dict[str, Any]]]
Functions = dict[str, tuple[str, dict[str, Any]]]


def test_a_functions_environment_has_its_settings_and_the_common_variables(functions: Functions) -> None:
    assert set(functions) == set(function_sizes.FUNCTIONS)
    for name, (_, properties) in functions.items():
        declared = {settings.variable(field) for field in functions_.setting_names(name)}
        declared -= {settings.variable(field) for field in functions_.OF_FLEETS | functions_.OF_COMMITMENTS}
        common = function_sizes.RELAY_RUNTIME if name == function_sizes.RELAY else function_sizes.RUNTIME
        assert set(properties["Environment"]["Variables"]) == declared | set(common) | {"TENON_OBSERVABILITY"}


def test_functions_run_on_arm_with_their_own_handler(functions: Functions) -> None:
    for name, (_, properties) in functions.items():
        assert properties["Architectures"] == ["arm64"]
        assert properties["Runtime"] == "python3.13"
        assert properties["Handler"] == f"functions.{name}.handler.handle"


def test_recursion_is_allowed_where_a_function_sends_to_its_own_queue_and_nowhere_else(functions: Functions) -> None:
    allowed = {name for name, (_, properties) in functions.items() if properties.get("RecursiveLoop") == "Allow"}
    assert allowed == {"disruption", "termination"}


def test_a_function_only_knows_its_own_dead_letter_queue(of_type: Select, functions: Functions) -> None:
    queues = of_type("AWS::SQS::Queue")
    for mapping in of_type("AWS::Lambda::EventSourceMapping").values():
        queue = queues[mapping["EventSourceArn"]["Fn::GetAtt"][0]]
        (properties,) = (p for id_, p in functions.values() if id_ == mapping["FunctionName"]["Ref"])
        own = queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
        assert properties["Environment"]["Variables"]["TENON_DEAD_LETTER_QUEUE_URL"] == {"Ref": own}


def test_a_malformed_message_does_not_fail_its_batch(of_type: Select) -> None:
    for mapping in of_type("AWS::Lambda::EventSourceMapping").values():
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_logs_expire_after_a_month(of_type: Select, functions: Functions) -> None:
    groups = of_type("AWS::Logs::LogGroup")
    for _, properties in functions.values():
        assert groups[properties["LoggingConfig"]["LogGroup"]["Ref"]]["RetentionInDays"] == 30


def test_failed_asynchronous_invocations_are_kept(of_type: Select, functions: Functions) -> None:
    configured = {c["FunctionName"]["Ref"]: c for c in of_type("AWS::Lambda::EventInvokeConfig").values()}
    for name, (id_, _) in functions.items():
        # Each minute's check is the relay's retry.
        assert configured[id_]["MaximumRetryAttempts"] == (0 if name == function_sizes.RELAY else 2)
        kept = configured[id_]["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
        assert kept in of_type("AWS::SQS::Queue")


def test_a_failed_interruption_batch_is_retried_within_a_spot_warning(functions: Functions) -> None:
    timeout = functions[function_sizes.INTERRUPTION][1]["Timeout"]
    assert timeout <= function_sizes.visibility(function_sizes.INTERRUPTION) <= 60


def test_the_interruption_function_has_time_for_the_slowest_measured_invocation(functions: Functions) -> None:
    assert functions[function_sizes.INTERRUPTION][1]["Timeout"] > function_sizes.INTERRUPTION_SECONDS


@pytest.mark.parametrize(
    ("context", "sweeping", "relay"),
    [({"clusterSize": "5000"}, 885, 128), ({"clusterSize": "15000", "relayMemory": "2048"}, 1769, 2048)],
)
def test_functions_have_the_memory_that_a_large_cluster_needs(
    context: dict[str, str], sweeping: int, relay: int
) -> None:
    given = {"bundle": "source", "clusterSide": "printed", **context}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=given)
    template = json.loads((folder / "tenon-demo.template.json").read_text())
    memory = {
        name: resource["Properties"]["MemorySize"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function"
        for name in function_sizes.FUNCTIONS
        if resource["Properties"]["Handler"] == f"functions.{name}.handler.handle"
    }
    default = {name: function_sizes.SIZES[name].memory for name in function_sizes.FUNCTIONS}
    changed = dict.fromkeys(function_sizes.SWEEPING, sweeping) | {function_sizes.RELAY: relay}
    assert memory == default | changed


def test_calls_time_out_before_the_function_that_makes_them(functions: Functions) -> None:
    every_attempt = aws.ATTEMPTS * (aws.CONNECT_SECONDS + aws.READ_SECONDS)
    create_fleet = aws.CONNECT_SECONDS + aws.CREATE_FLEET_SECONDS
    for name, (_, properties) in functions.items():
        timeout = properties["Timeout"]
        assert timeout > client.CONNECT_SECONDS + client.READ_SECONDS, name
        assert every_attempt < timeout, name
        # No round of launches starts in the second half.
        assert timeout / 2 + create_fleet < timeout, name


def test_table_items_expire(of_type: Select) -> None:
    (table,) = of_type("AWS::DynamoDB::Table").values()
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires", "Enabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]] == [("pk", "HASH"), ("sk", "RANGE")]


def test_the_catalog_bucket_is_private_and_requires_tls(of_type: Select) -> None:
    (bucket,) = of_type("AWS::S3::Bucket").values()
    assert all(bucket["PublicAccessBlockConfiguration"].values())
    assert "VersioningConfiguration" not in bucket
    (policy,) = of_type("AWS::S3::BucketPolicy").values()
    effects = [(s["Effect"], s["Condition"]) for s in policy["PolicyDocument"]["Statement"]]
    assert ("Deny", {"Bool": {"aws:SecureTransport": "false"}}) in effects
    assert {effect for effect, _ in effects} == {"Deny"}


def test_each_function_but_the_catalog_has_its_own_kubernetes_group(of_type: Select, functions: Functions) -> None:
    roles = {properties["Role"]["Fn::GetAtt"][0]: name for name, (_, properties) in functions.items()}
    entries = of_type("AWS::EKS::AccessEntry").values()
    groups = {
        roles[entry["PrincipalArn"]["Fn::GetAtt"][0]]: entry["KubernetesGroups"]
        for entry in entries
        if entry["Type"] == "STANDARD"
    }
    assert groups == {
        name: [cluster_manifests.group(name)] for name in function_sizes.FUNCTIONS if name != function_sizes.CATALOG
    }
    assert sum(entry["Type"] == "EC2_LINUX" for entry in entries) == 1
    assert {entry["ClusterName"] for entry in entries} == {"demo"}


def test_the_relay_as_a_pod_is_the_service_account_of_the_manifest(with_relay_pod: dict[str, Any]) -> None:
    resources = [r["Properties"] | {"Type": r["Type"]} for r in with_relay_pod["Resources"].values()]
    (identity,) = (r for r in resources if r["Type"] == "AWS::EKS::PodIdentityAssociation")
    assert (identity["Namespace"], identity["ServiceAccount"]) == (cluster_manifests.NAMESPACE, cluster_manifests.RELAY)
    (bus,) = (r for r in resources if r["Type"] == "AWS::Events::EventBus")
    assert bus["Name"] == cluster_manifests.bus_name("demo")
    assert not [r for r in resources if "functions.relay" in r.get("Handler", "")]


def test_the_relay_as_a_function_has_no_identity_for_a_pod(of_type: Select, functions: Functions) -> None:
    assert not of_type("AWS::EKS::PodIdentityAssociation")
    assert not [id_ for id_ in of_type("AWS::IAM::Role") if id_.startswith("ClusterAccess")]
    _, relay = functions[function_sizes.RELAY]
    assert (relay["MemorySize"], relay["Timeout"]) == (128, 900)
