"""Quadrature, root finding in one dimension, and special functions."""
