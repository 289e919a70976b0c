"""Ports in other formulations: the suite against which pairing is held."""
