"""The whole system on one machine: a Kubernetes control plane, kubelets, AWS by moto, a clock that skips waiting."""
