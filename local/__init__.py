"""The whole system on one machine: an embedded Kubernetes API, kubelets, AWS by moto, a clock that can be turned."""
