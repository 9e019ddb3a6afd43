"""NodeClaims and their nodes over time: registration, initialization, nomination, repair, adoption, liveness."""
