"""Random models beside a dense reference in NumPy that shares no code with the library."""
