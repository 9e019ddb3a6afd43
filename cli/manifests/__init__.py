"""``tenon manifests``: the objects that Tenon needs in the cluster, for GitOps."""
