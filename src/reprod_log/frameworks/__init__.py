"""frameworks: one module per framework, named like it; the only places that know a framework.

Each is loaded only when its framework is already in the process. `contract.py` describes the functions.
"""
