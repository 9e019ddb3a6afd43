"""The provisioner: schedules pending pods and launches nodes for them."""
