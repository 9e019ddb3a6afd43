"""Large clusters: what invocations ask of the API server, how long they take, and what a month costs."""
