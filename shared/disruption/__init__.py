"""Which nodes may go, what replaces them, within which budget. Pure: values in, values out."""
