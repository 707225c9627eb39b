"""The edge of the runtime: the one package that knows an event loop, real clocks and real randomness.

``system`` embeds a tree of actors in a host's program, ``driver`` drives it and performs its effects, ``reference`` is
how the host speaks to one actor, and ``session`` how a session does. All else in the runtime only decides.
"""
