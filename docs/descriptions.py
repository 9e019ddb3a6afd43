"""Descriptions that the code doesn't have: context keys, settings, events, and statements of policies."""

from __future__ import annotations

CONTEXT = {
    "cluster": "The EKS cluster's name. One stack is created for it. Required, but for `clusters`.",
    "clusters": "A list of names in `cdk.json`: one stack for each. `cluster` takes precedence.",
    "fleet": "The name of a [fleet](../fleets.md): one more stack has what the clusters of the list `clusters` share. "
    "Default: none, and they share nothing.",
    "bundle": "`full` (default) includes the functions' code and dependencies; `source` leaves them out, to inspect "
    "only the template.",
    "clusterSide": "`applied` (default): the stack applies CustomResourceDefinitions, RBAC and the relay. `printed`: "
    "you apply the output of `tenon manifests`.",
    "kinds": "`applied` (default; refused where the CustomResourceDefinitions are another product's), or `kept`.",
    "capacityBuffers": "`applied` (default; refused where another autoscaler brought the definition of "
    "CapacityBuffers), or `kept`.",
    "relay": "`function` (default): a function holds the watch of the cluster, and nothing of Tenon's runs in the "
    "cluster. `pod`: a Deployment with two pods holds it, with the image and the role that the next keys give. "
    "`webhook`: nothing watches the cluster, and an admission webhook announces new pods, for clusters that idle "
    "([what it lacks](../architecture.md#the-webhook)).",
    "sweepMemory": "MiB of memory of the functions lifecycle and disruption; default: 885, half of a processor. "
    "With 1769 they sweep clusters of more than 1,000 nodes twice as fast.",
    "relayMemory": "MiB of memory of the relay function; default: 128. "
    "[How much a cluster needs](../architecture.md#the-relay).",
    "relayImage": "URI of the relay's image; default: Docker builds one during the deployment.",
    "relayArchitecture": "`both` (default): the image is built for arm64 and amd64, which needs a Docker with its "
    "containerd image store (the default since Docker 29). `arm64` or `amd64`: only for one, with any Docker, and the "
    "relay only runs on nodes of it.",
    "relayTolerations": "Taints that the relay tolerates, separated by commas, as `KEY[=VALUE][:EFFECT]`; `*` for all.",
    "webhookDigest": "With `relay=webhook` and `clusterSide=printed`: the SHA-256 digest of the webhook's secret "
    "path, in hexadecimal ([how](../upgrades.md#the-webhook-with-printed-manifests)).",
    "oidcProvider": "The cluster's OIDC issuer: the relay gets its role by IRSA, and IAM must have the issuer's "
    "provider. Default: by EKS Pod Identity, which the China Regions don't have.",
    "functionArchitecture": "`arm64` (default), or `amd64` where a Region's Lambda has no arm64.",
    "nodeRole": "An existing IAM role for nodes; default: the stack creates one.",
    "nodeRoles": "Other roles that node classes may use, separated by commas. Functions can't pass any other role.",
    "subnets": "Subnets of the functions, separated by commas, for clusters with a private endpoint; requires "
    "`securityGroups`. The catalog function stays outside: it doesn't call the cluster, but the Pricing API.",
    "securityGroups": "Security groups of the functions in those subnets.",
    "reservedConcurrency": "`true` reserves one concurrent execution each for lifecycle and catalog, which limits "
    "their calls to EC2 in a burst of events, and limits how many batches of a queue are handled at once. "
    "Default: `false`, because Lambda keeps 100 executions unreserved, and "
    "new accounts don't have more; `tenon preflight` says what the quota allows.",
    "kmsKeys": "ARNs of customer managed KMS keys for nodes' volumes; those that launch may use them through EC2.",
    "observability": "`lean`: one alarm (`unwell`) and the metric that it needs. `full`: an alarm for each symptom, "
    "all metrics, and a dashboard, for about USD 9 more a month. Default: `lean`.",
    "alarmTopic": "ARN of an SNS topic that alarms notify; default: alarms only change their state.",
    "tracing": "`active` sends a trace of each invocation to X-Ray (about a dollar a month); default: `off`.",
    "plannedPods": "`nominated` (default): pending pods are nominated for the nodes that were launched for them "
    "(`status.nominatedNodeName`), so that kube-scheduler binds them as planned; `off`: kube-scheduler fills nodes in "
    "its own order.",
    "bufferQueues": "SQS queues of this account and Region that [CapacityBuffers may follow]"
    "(../capacity-buffers.md#queues-alarms-and-events), by name, separated by commas. Without these, alarms and "
    "events, the function `buffers` isn't deployed.",
    "bufferAlarms": "CloudWatch alarms of metrics that CapacityBuffers may follow, by name, separated by commas.",
    "bufferEvents": "Events that CapacityBuffers may follow, as `SOURCE/DETAIL-TYPE` separated by commas.",
    "bufferEventBus": "The bus of these events; default: `default`.",
    "nodeGroups": "`on` lets functions scale the cluster's Auto Scaling groups and managed node groups "
    "([node groups](../node-groups.md)); default: `off`.",
    "commitments": "`on` reads the account's Savings Plans and Reserved Instances each hour, so that decisions count "
    "them ([commitments](../commitments.md)); default: `off`.",
    "commitmentShare": "With `commitments=on`: the part of the account's commitments that the cluster may use, 0 to 1; "
    "default: its part of the running instances.",
    "mode": "`shadow` deploys only what [compares](../shadow-mode.md) what Tenon would do with what another autoscaler "
    "does, and changes nothing; default: `active`.",
    "shadowInterval": "Minutes between two runs of shadow mode, 2 to 30; default: `5`.",
    "shadowPools": "A file with NodePools and node classes for shadow mode; default: the cluster's own, and NodePools "
    "[derived](../shadow-mode.md#nodepools) from the nodes of Cluster Autoscaler and EKS Auto Mode.",
    "standby": "`on` lets functions stop and start instances of NodePools, which standby nodes need "
    "([standby nodes](../standby-nodes.md)); default: `off`.",
}

SETTINGS_MEANINGS = {
    "shadow_interval": "Minutes between two runs of shadow mode.",
    "shadow_pools": "NodePools and node classes for shadow mode, packed; without them the cluster's own.",
    "cluster_name": "The EKS cluster's name.",
    "clusters": "Of a fleet: the names of its clusters, a list in JSON.",
    "sweeps_table": "Of a fleet: the DynamoDB table with the last sweep of each cluster.",
    "undelivered_queue_url": "Of a fleet: the queue of undelivered events.",
    "event_bus_name": "The cluster's event bus, for hints to other functions.",
    "table_name": "The DynamoDB table for data that may be lost: unavailable offerings, call budgets, wake-ups, "
    "decisions.",
    "planned_pods": "`nominated` or `off`: whether pods are nominated for the nodes that were launched for them.",
    "node_groups": "`on` or `off`: whether node groups are scaled.",
    "standby": "`on` or `off`: whether instances may be stopped and started, for standby nodes.",
    "commitments": "`on` or `off`: whether the account's Savings Plans and Reserved Instances count.",
    "commitment_share": "The part of the account's commitments that the cluster may use, 0 to 1; empty: its part of "
    "the running instances.",
    "catalog_bucket": "The S3 bucket with instance types and prices.",
    "node_instance_profile": "The instance profile for node classes without role and instance profile.",
    "provisioning_queue_url": "The provisioner's queue, for hints about new pods.",
    "relay": "`function`, `pod` or `webhook`: what sends hints about the cluster.",
    "webhook_digest": "The SHA-256 digest of the webhook's secret path.",
    "termination_queue_url": "The queue for starting and continuing drains.",
    "node_group_queue_url": "The queue for continuing drains of nodes of groups.",
    "disruption_queue_url": "The queue for wake-ups of the disruption function at a given second.",
    "dead_letter_queues": "All dead-letter queues, a list in JSON.",
    "dead_letter_queue_url": "The queue for malformed messages, with the reason.",
    "buffer_queues": "The queues that CapacityBuffers may follow, a list in JSON.",
    "buffer_alarms": "The alarms that CapacityBuffers may follow, a list in JSON.",
    "buffer_events": "The events that CapacityBuffers may follow, a list in JSON.",
}

EVENTS = {
    "AMINotFound": "Node class: no image matches its `amiSelectorTerms`, or its alias has none for this version.",
    "AwaitingVolumeDetachment": "Node: it is drained, and volumes haven't been detached for a minute.",
    "BootFailed": "NodeClaim: its instance was terminated at boot, with EC2's reason; its NodePool waits before it "
    "launches again.",
    "CapacityReservationInterrupted": "NodeClaim: the capacity reservation of its instance is reclaimed; it is "
    "deleted and replaced.",
    "CapacityReservationEnded": "NodeClaim: its capacity reservation has ended; it runs on, labelled on-demand.",
    "CapacityReservationsNotFound": "Node class: no capacity reservation matches its terms; it stays ready.",
    "CircuitBreakerOpen": "NodePool: its launches fail or its machines never join, so they are paused; one is tried.",
    "Conflict": "NodeOverlay: another of the same weight sets the same price or resource, so this one isn't applied.",
    "DaemonSetIgnored": "DaemonSet: new nodes keep no room for its pods, because no instance type has a resource that "
    "they request, or a field isn't supported.",
    "DemandUnknown": "CapacityBuffer: why its queue, alarm or event can't be followed.",
    "DisruptionBlocked": "Node: it should be disrupted, and what blocks that.",
    "DisruptionTerminating": "NodeClaim: it is disrupted, with the reason: expired, drifted, empty, underutilized, or "
    "a scheduled event of EC2.",
    "DisruptionUndone": "NodeClaim: its disruption was rolled back, because its replacement failed or pods use it "
    "again.",
    "Evicted": "Pod: evicted because its node is terminated, or to make room on a full node; as a "
    "warning, deleted because the node's `terminationGracePeriod` ends.",
    "Expired": "NodeClaim: it was older than its expireAfter.",
    "FailedDraining": "Node: a pod can't be evicted now, and why.",
    "FailedMakingRoom": "Pod and Node: a DaemonSet's pod or a resized pod has no room on its node, and why no pods are "
    "evicted for it.",
    "FailedScheduling": "Pod: no NodePool can run it; how many instance types each criterion excludes, and the "
    "nearest match.",
    "FailedTerminating": "NodeClaim: its node is drained, and EC2 refuses to terminate its instance, with its reason.",
    "FailedToScaleUpGroup": "Node group (on ConfigMap cluster-autoscaler-status): Auto Scaling refuses the size.",
    "FewFreeAddresses": "Node class: a subnet has fewer free addresses than a node needs.",
    "IAMUnreachable": "Node class: its role can't be looked up, because IAM can't be reached from the "
    "functions' subnets.",
    "Initialized": "NodeClaim: pods can run on its node.",
    "InstanceGone": "NodeClaim or Node: its instance no longer exists, so it is deleted.",
    "InstanceProfileNotFound": "Node class: its instance profile doesn't exist, or it has neither role nor profile "
    "and the deployment has no default.",
    "InstanceProfileWithoutRole": "Node class: its instance profile has no role, so nodes can't join.",
    "InstanceStopping": "NodeClaim: EC2 stops its instance; it is deleted and replaced.",
    "InstanceTerminating": "NodeClaim: its instance is being terminated, by whomever.",
    "InstanceTypeUnknown": "NodeClaim: the instance with its tags has an unexpected instance type or zone.",
    "Invalid": "Any object that Tenon reads: the problems, by field.",
    "InvalidDisruptionBudget": "NodePool: a disruption budget can't be read, so no node of the pool is disrupted.",
    "InvalidAnnotation": "NodePool: an annotation has an invalid value; the default is used.",
    "InvalidOption": "Node groups: what in ConfigMap tenon-node-groups, or in a group's tags, can't be used.",
    "InvalidRequest": "NodeClaim: its launch request is invalid, which is a bug of Tenon's; please report the message.",
    "InvalidUserData": "NodeClaim: its node class's user data can't be merged with the bootstrap script.",
    "LaunchFailed": "NodeClaim: EC2 refused the launch without an error code.",
    "LaunchTimeout": "NodeClaim: not launched within 5 minutes; it is deleted and its pods are scheduled again.",
    "LaunchUnconfirmed": "NodeClaim: its instance may exist though EC2 does not show it yet; no other is launched.",
    "LifecycleAction": "Node of a node group: Auto Scaling ends its instance, and waits for the drain.",
    "MaxNodesTotalReached": "Node group: it can't grow as planned, because `max-nodes-total` is reached.",
    "NoCompatibleInstanceTypes": "NodeClaim: no instance type meets what it requires.",
    "NoCompatibleOffering": "NodeClaim: none of its instance types is available in the zones of its subnets now.",
    "NodeClaimGone": "Node: its NodeClaim was deleted, so it is drained and deleted.",
    "NodeClassNotFound": "NodePool: there is no valid node class of that name.",
    "NodeClassNotReady": "NodePool: its node class is not ready, with the reason.",
    "NodeClassTerminating": "NodePool: its node class is being deleted.",
    "NodeGarbageCollected": "Node: its NodeClaim and its instance no longer exist; it is deleted.",
    "NodeGone": "NodeClaim: its node was deleted while its instance runs; the instance is terminated.",
    "NodePoolNotReady": "NodeClaim: it waits until its NodePool can launch.",
    "NodeRepairBlocked": "NodePool: too many of its nodes are unhealthy, so none is replaced.",
    "NodeUnhealthy": "NodeClaim: its node was unhealthy for too long; it is deleted.",
    "NotInitialized": "NodeClaim: its node registered 15 minutes ago, and what it waits for.",
    "NotTriggerScaleUp": "Pod: no node group and no NodePool can run it, and why; instead of FailedScheduling where "
    "node groups are scaled.",
    "Paused": "NodePool: it or the cluster is paused: since when, by whom, until when and why.",
    "ProviderIDRestored": "NodeClaim: its `status.providerID` was changed, and restored from the instance's tag.",
    "ProviderIDUnknown": "Node: its `spec.providerID` is not an EC2 instance.",
    "Registered": "NodeClaim: its node joined the cluster.",
    "RegistrationTimeout": "NodeClaim: its node did not register within 15 minutes; it is deleted.",
    "ReplicasMissing": "NodePool with `replicas`: why it has fewer nodes.",
    "Resumed": "NodePool: its pause, or the cluster's, has ended.",
    "RoleNotFound": "Node class: its role doesn't exist in this account.",
    "ScaleDown": "Node of a node group: it isn't needed and is being removed, or its instance is terminated.",
    "ScaleDownFailed": "Node of a node group: why it isn't removed after all.",
    "ScaleUpTimedOut": "Node group: why it is left alone for a while; its pods get nodes elsewhere.",
    "ScaledUpGroup": "Node group: its new and its old desired size.",
    "ScheduledChange": "NodeClaim: AWS Health announces maintenance of its instance; it is replaced before.",
    "SecurityGroupsNotFound": "Node class: no security group matches its terms.",
    "SpotInterrupted": "NodeClaim: EC2 interrupts its spot instance in two minutes; it is deleted and replaced.",
    "SpotRebalanceRecommendation": "NodeClaim: EC2 recommends replacing its spot instance.",
    "StandbyNotPossible": "NodePool with `tenon.sh/standby`: why it has fewer standby nodes.",
    "StandbyNotStarted": "NodeClaim: its standby node couldn't be started; another node is launched for its pods.",
    "StandbyNotStopped": "NodeClaim: EC2 refuses to stop its instance, which is to be kept on standby.",
    "StandbyRemoved": "NodeClaim: why its standby node is removed or replaced.",
    "SubnetsNotFound": "Node class: no subnet matches its terms.",
    "TriggeredScaleUp": "Pod: the node group that grows for it.",
    "Unauthorized": "Node class: the function's role lacks the named permission.",
    "Unconsolidatable": "Node: why it can't be consolidated.",
    "UnfulfillableCapacity": "NodeClaim: EC2 had capacity for a part of its launch only; its pods are scheduled again.",
    "ZonesConflict": "NodePool: its zones and those of its node class's subnets have none in common.",
}

PURPOSES = {
    "GrowNodeGroups": "Ask node groups of the cluster for nodes, with `-c nodeGroups=on`.",
    "ShrinkNodeGroups": "Remove instances of the cluster's node groups, with `-c nodeGroups=on`.",
    "ReadNodeGroups": "See node groups, their failed launches and launch templates.",
    "KeepRecord": "Write the record of shadow mode, and its days, into the stack's own bucket.",
    "ReadManagedNodeGroups": "See labels and taints of the cluster's managed node groups.",
    "AllowFirstSpot": "The first spot launch of an account creates EC2's service-linked role.",
    "BuryMalformed": "Send malformed messages to the function's own dead-letter queue.",
    "ContinueDrains": "Send messages to the function's own queue, so that drains of nodes of groups continue.",
    "CountDeadLetters": "Count the messages in Tenon's dead-letter queues.",
    "CountMessages": "Count the visible messages of queues that CapacityBuffers follow; not receive them.",
    "DeleteOwnTemplates": "Delete launch templates of this cluster that are no longer used.",
    "FillProfiles": "Add a node class's role to the instance profile that Tenon created for it.",
    "FindProfiles": "Find the instance profile of a node class's role.",
    "KeepRecords": "Unavailable offerings, call budgets, wake-ups and decisions. The table is never scanned.",
    "LaunchFromOwnTemplates": "Launch only from launch templates of this cluster.",
    "LaunchTagged": "Launch only resources that are tagged as this cluster's and as a NodePool's.",
    "LaunchWith": "Resources that a launch uses but doesn't create: images, subnets, security groups, reservations.",
    "MakeProfiles": "Create an instance profile, with Tenon's name prefix, for a node class's role that has none.",
    "MakeTemplates": "Create launch templates, tagged as this cluster's.",
    "PassNodeRoles": "Pass the deployment's node roles, only to EC2.",
    "PublishNotifications": "Publish on the cluster's event bus what happens to node groups.",
    "PutHints": "Put hints on the cluster's event bus, with the functions' own source.",
    "ReachCluster": "Read the cluster's endpoint and certificate authority; RBAC guards the API itself.",
    "RecordSweeps": "In a fleet: write the cluster's own row, that a sweep has completed.",
    "ReadCatalog": "Read instance types and prices.",
    "ReadInstances": "Read instances. EC2 supports no resources here, so it is limited to the Region.",
    "ReadSpotRequests": "Verify spot interruption warnings, so that forged ones have no effect.",
    "ReadPlaces": "Read what a node class selects: subnets, security groups, images, reservations; and instances.",
    "ReadPrices": "Read on-demand prices. The Pricing API supports no resources.",
    "ReadReservedInstances": "Read Reserved Instances and the instances that use them, with `-c commitments=on`.",
    "ReadSavingsPlans": "Read Savings Plans and their rates, with `-c commitments=on`.",
    "ReadPublicParameters": "Read AWS's public parameters with image ids, never the account's.",
    "ReadTemplates": "Read launch templates.",
    "ReadTypes": "Read instance types, where they are offered, and spot prices.",
    "SeeAlarms": "Read the state of alarms that CapacityBuffers follow.",
    "SeeCatalogMissing": "Without it S3 returns 403 instead of 404 for a catalog that doesn't exist yet.",
    "SeeSweeps": "In a fleet: read the last sweep of each cluster, and write from when a new one's is awaited.",
    "SeeUndelivered": "In a fleet: count undelivered events and see whose they are; not delete them.",
    "SeeProfiles": "Check that a node class's instance profile exists and has a role before a launch fails.",
    "SendToProvisioner": "Announce new pods.",
    "SendToTermination": "Start and continue drains.",
    "TagOwnInstances": "Tag instances of this cluster with their NodeClaim and name, and with no other tag.",
    "TagWhileCreating": "Tag resources only while creating them, so that no other resource gets this cluster's tags.",
    "TerminateOwned": "Terminate instances that are tagged as this cluster's and as a NodePool's.",
    "WakeUpLater": "Wake the disruption function at the second when a node's time is up.",
    "WriteCatalog": "Write the catalog.",
    "WriteLogs": "Write to the function's own log group.",
    "sqs:ReceiveMessage": "Receive messages from the function's queue (granted by the CDK).",
    "sqs:SendMessage": "Lambda's failure destination for asynchronous invocations (granted by the CDK).",
}
