"""Interdomain features: builders of the oracles' cases, function(case) -> what was got, key by key."""

BUILDERS = {}
