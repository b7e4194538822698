"""Deep, latent-variable and importance-weighted models: builders of the oracles' cases. A group's builder takes the case and returns what was got, key by key."""

BUILDERS = {}
