"""Interdomain features: Fourier, derivative, Hilbert-space and Mercer features: builders of the oracles' cases. A group's builder takes the case and returns what was got, key by key."""

BUILDERS = {}
