"""Which pods go where, on what, and why not. Pure: values in, values out. The heart."""
