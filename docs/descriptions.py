"""What the code can't say of itself: one sentence for each context key, setting, event and statement of a policy."""

from __future__ import annotations

CONTEXT = {
    "cluster": "The EKS cluster's name. One stack is made for it.",
    "clusters": "A list of names, in `cdk.json`: one stack for each. `cluster` goes before it.",
    "bundle": "`full` (usual) packs the functions' code with its dependencies; `source` leaves it out, for looking at "
    "the template only.",
    "clusterSide": "`applied` (usual): the stack applies the definitions, rights and the relay. `printed`: it leaves "
    "the cluster's side to you and `tenon manifests`.",
    "kinds": "`applied` (usual), or `kept` where Karpenter's own CustomResourceDefinitions are to stay.",
    "relayImage": "URI of the relay's image; without it Docker builds one while deploying.",
    "nodeRole": "An existing IAM role for nodes; without it the stack makes one.",
    "nodeRoles": "Other roles that node classes may name, separated by commas. Functions may pass no others.",
    "subnets": "Subnets for the functions, separated by commas, where the cluster's endpoint is private; needs "
    "`securityGroups`.",
    "securityGroups": "Security groups for the functions in those subnets.",
    "reservedConcurrency": "`true` (usual) reserves one execution each for lifecycle and catalog; `false` for accounts "
    "whose quota has none to give.",
    "alarmTopic": "ARN of an SNS topic that alarms tell; without it they only change their state.",
    "tracing": "`active` has Lambda send each invocation's trace to X-Ray (about a dollar a month); `off` otherwise.",
}

SETTINGS_MEANINGS = {
    "cluster_name": "The EKS cluster that the function works for.",
    "event_bus_name": "The cluster's own bus, for hints to other functions.",
    "table_name": "The DynamoDB table with what may be lost: scarce offerings, call budgets, wake-ups, decisions.",
    "catalog_bucket": "The S3 bucket with instance types and prices.",
    "node_instance_profile": "The instance profile of node classes that name neither a role nor a profile.",
    "termination_queue_url": "Where drains are begun and gone on with.",
    "disruption_queue_url": "Where disruption wakes itself up, to the second.",
    "dead_letter_queue_url": "Where the function puts messages that nobody can read, with the reason.",
}

EVENTS = {
    "AMINotFound": "Node class: no image matches its `amiSelectorTerms`, or its alias has none for this Kubernetes.",
    "CapacityReservationInterrupted": "NodeClaim: the capacity reservation of its instance is reclaimed; it is given "
    "up and replaced.",
    "CapacityReservationsNotFound": "Node class: no capacity reservation matches its terms.",
    "DisruptionBlocked": "Node: there is a reason for it to go, and this keeps it.",
    "DisruptionTerminating": "NodeClaim: it is given up, with the reason: expired, drifted, empty, underutilized, or "
    "moved because EC2 announced something.",
    "DisruptionUndone": "NodeClaim: its disruption was put back, because what should replace it did not come or it "
    "is used again.",
    "Evicted": "Pod: evicted because its node is terminated; as a warning, deleted because the node's "
    "`terminationGracePeriod` ends.",
    "FailedDraining": "Node: a pod can't be evicted now, and why.",
    "FailedScheduling": "Pod: no NodePool can place it; which criterion removed how many instance types, and the "
    "nearest miss.",
    "Initialized": "NodeClaim: pods can run on its node.",
    "InstanceGone": "NodeClaim or Node: its instance is gone, so it is removed.",
    "InstanceProfileNotFound": "Node class: its instance profile doesn't exist, or it names neither role nor profile "
    "and the deployment has none.",
    "InstanceProfileWithoutRole": "Node class: its instance profile has no role, so nodes could not join.",
    "InstanceStopping": "NodeClaim: EC2 stops its instance; it is given up and replaced.",
    "InstanceTerminating": "NodeClaim: its instance is being terminated, whoever asked for that.",
    "InstanceTypeUnknown": "NodeClaim: the instance that bears its tags is of a type or zone that it can't be.",
    "Invalid": "Any object that Tenon reads: the problems, by field.",
    "InvalidUserData": "NodeClaim: its class's user data can't be merged with the bootstrap.",
    "LaunchFailed": "NodeClaim: EC2 refused the launch without a code.",
    "LaunchTimeout": "NodeClaim: not launched within 5 minutes; it is deleted and its pods are scheduled again.",
    "NoCompatibleOffering": "NodeClaim: none of its types is to be had in the zones of its class's subnets now.",
    "NodeClaimGone": "Node: its NodeClaim is gone, so it is drained and removed.",
    "NodeClassNotFound": "NodePool: there is no valid class of that name.",
    "NodeClassNotReady": "NodePool: its class isn't ready, with the class's own words.",
    "NodeClassTerminating": "NodePool: its class is being deleted.",
    "NodeGarbageCollected": "Node: its NodeClaim and its instance are gone; it is removed.",
    "NodeGone": "NodeClaim: its node was deleted while its instance runs; the instance is terminated.",
    "NodeRepairBlocked": "NodePool: too many of its nodes are unhealthy, so none is replaced.",
    "NodeUnhealthy": "NodeClaim: its node was unhealthy for too long; it is deleted.",
    "ProviderIDRestored": "NodeClaim: its `status.providerID` was changed, and restored from the instance's tag.",
    "ProviderIDUnknown": "Node: its `spec.providerID` is no EC2 instance.",
    "Registered": "NodeClaim: its node joined the cluster.",
    "RegistrationTimeout": "NodeClaim: its node did not register within 15 minutes; it is deleted.",
    "ReplicasMissing": "NodePool with `replicas`: what keeps it from having that many nodes.",
    "RoleNotFound": "Node class: its role doesn't exist in this account.",
    "ScheduledChange": "NodeClaim: AWS Health announces maintenance of its instance; it is moved before.",
    "SecurityGroupsNotFound": "Node class: no security group matches its terms.",
    "SpotInterrupted": "NodeClaim: EC2 takes its spot instance back in two minutes; it is given up and replaced.",
    "SpotRebalanceRecommendation": "NodeClaim: EC2 recommends to replace its spot instance.",
    "SubnetsNotFound": "Node class: no subnet matches its terms.",
    "Unauthorized": "Node class: the function's role lacks the permission that is named.",
    "Unconsolidatable": "Node: why it is kept although it could be emptied or replaced for less.",
    "ZonesConflict": "NodePool: its zones and those of its class's subnets have none in common.",
}

PURPOSES = {
    "AllowFirstSpot": "An account's first spot launch makes EC2's own service-linked role.",
    "BuryMalformed": "Put messages that nobody can read on the function's own dead-letter queue.",
    "DeleteOwnTemplates": "Remove launch templates of this cluster that nothing comes from any more.",
    "FillProfiles": "Put a class's role into the profile that was made for it.",
    "FindProfiles": "Find the instance profile of the role that a class names.",
    "KeepRecords": "Scarce offerings, call budgets, wake-ups and decisions. The table is never scanned.",
    "LaunchFromOwnTemplates": "Launch, from templates of this cluster only.",
    "LaunchTagged": "Launch what is tagged as this cluster's and as a NodePool's, and nothing else.",
    "LaunchWith": "What a launch uses and doesn't make: images, subnets, security groups, reservations.",
    "MakeProfiles": "An instance profile for a class that names a role without one, under Tenon's own name.",
    "MakeTemplates": "Launch templates, tagged as this cluster's.",
    "PassNodeRoles": "Give nodes the roles that the deployment names, to EC2 alone.",
    "PutHints": "Put hints on the cluster's own bus, in the functions' own name.",
    "ReachCluster": "The cluster's endpoint and certificate authority; the API itself is guarded by RBAC.",
    "ReadCatalog": "Read instance types and prices.",
    "ReadInstances": "See instances. EC2 limits this to no resource, so it is limited to the Region.",
    "ReadSpotRequests": "See whether EC2 does take a warned spot instance back: a forged warning overrides nothing.",
    "ReadPlaces": "See what a class selects: subnets, security groups, images, reservations; and instances.",
    "ReadPrices": "On-demand prices. The Pricing API has no resources.",
    "ReadPublicParameters": "AWS's own public parameters, which name images; never the account's.",
    "ReadTemplates": "See launch templates.",
    "ReadTypes": "Instance types, where they are offered, and spot prices.",
    "SeeCatalogMissing": "Without it S3 answers 403 instead of 404 for a catalog that isn't there yet.",
    "SeeProfiles": "Tell that a class's profile is there and has a role before a launch fails.",
    "SendToTermination": "Have drains begun, or gone on with.",
    "TagOwnInstances": "Write on an instance of this cluster which NodeClaim it was given to, and no other tag.",
    "TagWhileCreating": "Tag while creating; what exists already can't be tagged into this cluster.",
    "TerminateOwned": "Terminate instances that are tagged as this cluster's and as a NodePool's.",
    "WakeUpLater": "Have disruption look again at the second a node's time is up.",
    "WriteCatalog": "Keep the catalog.",
    "WriteLogs": "Write to the function's own log group.",
    "sqs:ReceiveMessage": "Take messages from the queue that feeds the function (the CDK's own grant).",
    "sqs:SendMessage": "Lambda's failure destination: what an asynchronous invocation could not do (the CDK's grant).",
}
