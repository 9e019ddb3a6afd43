"""NodeClaims launched by CreateFleet: request, response, errors, rate limit, batching."""
