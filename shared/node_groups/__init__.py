"""Node groups: Auto Scaling groups whose nodes join the cluster, also those of EKS's managed node groups."""
