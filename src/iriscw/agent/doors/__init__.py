"""Doors of the node agent: what callers on its socket find."""
