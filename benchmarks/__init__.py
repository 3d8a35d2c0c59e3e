"""The cost of Baton, compared with a hand-written loop and with its peers: `python -m benchmarks`.

Everything here except `__main__` and `report` needs only the standard library, so that an interpreter which has
nothing but a peer installed can run `benchmarks.session`.
"""
