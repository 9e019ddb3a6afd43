"""The part of a cluster's stack that is in the cluster: manifests, access, and the functions that apply them."""
