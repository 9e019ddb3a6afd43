"""The extended resources that EC2 tells of an instance type; NodeOverlays may add others."""

from __future__ import annotations

POD_ENI = "vpc.amazonaws.com/pod-eni"
EFA = "vpc.amazonaws.com/efa"
NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"
PRIVATE_IPV4 = "vpc.amazonaws.com/PrivateIPv4Address"
GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}
KNOWN_DEVICES = frozenset({POD_ENI, EFA, NEURON, NEURON_CORE, PRIVATE_IPV4, *GPU_RESOURCES.values()})
