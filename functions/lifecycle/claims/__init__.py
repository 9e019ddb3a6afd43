"""NodeClaims and their nodes over time: registration, initialization, nomination, adoption, liveness."""
