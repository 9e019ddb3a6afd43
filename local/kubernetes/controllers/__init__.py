"""The cluster's own controllers, as far as a cluster with coming and going nodes needs them."""
