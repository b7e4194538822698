"""Builders that turn the inputs of an oracle's case into the library's objects, one file for each family of groups."""

from . import deep, features, foundation, multioutput

BUILDERS = {**foundation.BUILDERS, **features.BUILDERS, **multioutput.BUILDERS, **deep.BUILDERS}
"""group -> function(case) -> {key of `expected`: value}; a builder raises NotBuilt for what the library lacks."""
