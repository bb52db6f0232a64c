"""Ten thousand malformed requests on each transport.

A server may refuse them in any way except with a 5xx, an INTERNAL status or a
panic. It must serve a valid request afterwards. Runs are reproducible: all random
choices come from the seed on the command line.
"""
