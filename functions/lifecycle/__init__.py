"""Claims are carried through their states, statuses are kept, what is left behind is found."""
