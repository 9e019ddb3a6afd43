"""A kube-apiserver's HTTP side: authentication, request handling, discovery, watches and table printing over HTTPS."""
