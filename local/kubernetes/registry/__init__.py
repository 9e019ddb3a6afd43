"""The objects of the cluster and kube-apiserver's rules for changing them: defaults, validation, patches, deletion."""
