"""Events that interrupt instances: what each announces, and whether EC2 confirms it.

One module per event type, with its source, detail-type and parser.
"""
