"""Ten thousand malformed requests on each wire.

A server may refuse them in any way it likes except with a 5xx, an INTERNAL
status or a panic, and it must answer a good request afterwards. Runs are
reproducible: everything random comes from the seed on the command line.
"""
