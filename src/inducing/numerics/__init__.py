"""Quadrature and cubature under Gaussians, cdfs by integration, zeros and maxima, special functions."""
