"""The life of a claim: launched, registered, initialized, drained, gone; and what is left behind."""
