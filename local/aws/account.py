"""The account before Tenon is deployed: a VPC in three zones, an EKS cluster, and the CDK's bootstrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.aws import amis, backends
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import TagTypeDef

DISCOVERY = "karpenter.sh/discovery"
SERVICE_CIDR = "10.100.0.0/16"
_ZONES = 3
"""The number of zones of a usual cluster; a Region may have fewer, and their letters differ."""
PROFILE, ROLE = "KarpenterInstanceProfile", "TenonNodeRole-{cluster}"
"""The nodes' instance profile and its role, as manifests of Karpenter's guides and Tenon name them."""
_CDK_BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
_TRUST_POLICY = '{"Version": "2012-10-17", "Statement": []}'


class Account(Struct, kw_only=True):
    """The account's resources; ``subnets`` by zone."""

    vpc_id: str
    subnets: Mapping[str, str]
    security_group_id: str
    cluster: str
    region: str


def prepare(*, cluster: str, region: str, version: str, endpoint: str, certificate_authority: str) -> Account:
    """Create the resources in moto. ``certificate_authority`` is base64 PEM, as in DescribeCluster."""
    discovery: TagTypeDef = {"Key": DISCOVERY, "Value": cluster}
    owned: TagTypeDef = {"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"}
    ec2 = backends.client("ec2")
    vpc_id = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = {}
    for index, zone in enumerate(sorted(_zones(ec2))[:_ZONES]):
        subnets[zone] = ec2.create_subnet(
            VpcId=vpc_id,
            CidrBlock=f"10.0.{index * 64}.0/18",
            AvailabilityZone=zone,
            TagSpecifications=[
                {"ResourceType": "subnet", "Tags": [{"Key": "Name", "Value": f"{cluster}-{zone[-1]}"}, discovery]}
            ],
        )["Subnet"]["SubnetId"]
    group = ec2.create_security_group(
        GroupName=f"{cluster}-nodes",
        Description="Nodes of the cluster",
        VpcId=vpc_id,
        TagSpecifications=[
            {"ResourceType": "security-group", "Tags": [{"Key": "Name", "Value": cluster}, discovery, owned]}
        ],
    )["GroupId"]
    # EKS's own tag, which nobody else may set.
    backends.ec2(region).create_tags([group], {"aws:eks:cluster-name": cluster})
    prepared = Account(vpc_id=vpc_id, subnets=subnets, security_group_id=group, cluster=cluster, region=region)
    _create_cluster(prepared, version=version, endpoint=endpoint, certificate_authority=certificate_authority)
    _node_role(cluster)
    backends.client("ssm").put_parameter(Name=_CDK_BOOTSTRAP_PARAMETER, Value="21", Type="String", Overwrite=True)
    amis.publish(region, version)
    return prepared


def _create_cluster(prepared: Account, *, version: str, endpoint: str, certificate_authority: str) -> None:
    cluster = prepared.cluster
    role = backends.client("iam").create_role(RoleName=f"{cluster}-cluster", AssumeRolePolicyDocument=_TRUST_POLICY)[
        "Role"
    ]
    backends.client("eks").create_cluster(
        name=cluster,
        version=version,
        roleArn=role["Arn"],
        resourcesVpcConfig={
            "subnetIds": list(prepared.subnets.values()),
            "securityGroupIds": [prepared.security_group_id],
        },
        kubernetesNetworkConfig={"serviceIpv4Cidr": SERVICE_CIDR},
    )
    eks_cluster = backends.eks(prepared.region).clusters[cluster]
    eks_cluster.endpoint = endpoint
    eks_cluster.certificate_authority = {"data": certificate_authority}
    eks_cluster.access_config = {"authenticationMode": "API_AND_CONFIG_MAP"}  # which moto drops
    eks_cluster.resources_vpc_config |= {
        "vpcId": prepared.vpc_id,
        "endpointPublicAccess": True,
        "publicAccessCidrs": ["0.0.0.0/0"],
    }


def _zones(ec2: EC2Client) -> list[str]:
    return [zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]]


def _node_role(cluster: str) -> None:
    iam = backends.client("iam")
    role = ROLE.format(cluster=cluster)
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=_TRUST_POLICY)
    if PROFILE in {profile["InstanceProfileName"] for profile in iam.list_instance_profiles()["InstanceProfiles"]}:
        return  # of the cluster before
    iam.create_instance_profile(InstanceProfileName=PROFILE)
    iam.add_role_to_instance_profile(InstanceProfileName=PROFILE, RoleName=role)
