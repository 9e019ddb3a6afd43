"""A real control plane: kube-apiserver, kube-scheduler and kube-controller-manager, and a world on it in real time."""
