"""Every feature trains: by Adam, by natural gradients and by the collapsed bound, in u, v and w."""

import equinox as eqx
import numpy as np
import pytest

import inducing as ig

from .cases import IDS, VARIANTS, model_of


def _trains():
    """All combinations; by default one of nine for every other feature, in turn."""
    for number, name in enumerate(IDS):
        for i, method in enumerate(("adam", "natgrad", "collapsed")):
            for j, coordinates in enumerate("uvw"):
                shown = name not in VARIANTS and number % 2 == 0
                first = shown and (number + i) % 3 == 0 and (number // 3 + j) % 3 == 0
                yield pytest.param(name, method, coordinates, marks=[] if first else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "method", "coordinates"), list(_trains()))
def test_every_feature_trains(name, method, coordinates):
    """The bound rises, of the collapsed bound already from where the best q(u) at the start has it."""
    model, data = model_of(name, coordinates)
    options = {"progress": False, "initialise": False} | ({} if method == "collapsed" else {"learning_rate": 0.02})
    result = ig.fit(model, data, method=method, steps=200 if method == "adam" else 20, **options)
    assert result.method == method and "NaN" not in result.message
    layer = result.model.layers[0]
    assert layer.coordinates == coordinates and not eqx.tree_equal(layer.prior.kernel, model.layers[0].prior.kernel)
    rise = result.bound - result.history.bound[0]
    assert np.isfinite(rise) and rise > (0.0 if method == "collapsed" else 0.1)
