"""Every kind of features with every prior that maps its inputs: Cov(u, f(x)) is the prior's map of x ↦ Cov(u, g(x))."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

from ..features.cases import CASES, VARIANTS

SE = ig.kernels.SquaredExponential
STEP, DIFFERENCE = 1e-3, {-2: 1 / 12, -1: -8 / 12, 1: 8 / 12, 2: -1 / 12}  # of fourth order
WIDTH, AMPLITUDE = np.array([0.1, 0.4]), np.array([1.0, -0.7])
WEIGHTS = np.array([1.0, -0.6])


def smoothed(smoothing, X, kernel):
    """Nodes [N, P, Q, D] and weights [P, Q] of ∫ a_p N(t | 0, s_p²) g(x − t) dt: a fine grid, or the smoothing's own
    rule for kernels that are smoothed by it, since the accuracy of the rule is another test's matter."""
    D = X.shape[1]
    if kernel.smoothed(jnp.ones(D)) is None:
        t, c = smoothing.rule(D, jnp.float64)
        return X[:, None, None, :] - t[None, :, 0], np.asarray(c[:, 0])
    t = np.linspace(-6.0, 6.0, {1: 1601, 2: 241}[D])
    t = np.stack(np.meshgrid(*[t] * D, indexing="ij"), -1).reshape(-1, D)
    w = np.exp(-0.5 * (t**2).sum(1))
    return X[:, None, None, :] - WIDTH[None, :, None, None] * t, AMPLITUDE[:, None] * w / w.sum()


def differences(X):
    """Nodes [N, 1 + D, Q, D] and weights [1 + D, Q] of g and its partial derivatives."""
    D = X.shape[1]
    shifts = np.concatenate([np.zeros((1, D)), *[d * STEP * np.eye(D) for d in DIFFERENCE]])
    w = np.zeros((1 + D, len(shifts)))
    w[0, 0] = 1.0
    for i, c in enumerate(DIFFERENCE.values()):
        w[1 + np.arange(D), 1 + i * D + np.arange(D)] = c / STEP
    return np.broadcast_to(X[:, None, None, :] + shifts, (len(X), 1 + D, *shifts.shape)), w


def patches(X):
    """Nodes [N, 1, 2, D] and weights [1, 2] of the mean over two patches, D pixels wide, of images D + 1 wide."""
    return np.stack([X[:, :-1], X[:, 1:]], axis=1)[:, None], WEIGHTS[None] / 2


def pairs(kernel, X):
    """Priors with their inputs, and the map that defines each."""
    D, k = X.shape[1], ig.GP(kernel)
    wide = np.concatenate([X, 0.5 * X[:, :1] - 0.1], axis=1)
    smoothing = ig.priors.GaussianSmoothing(WIDTH[:, None], AMPLITUDE[:, None])
    image = ig.priors.ImageConvolution(k, (1, D + 1), (1, D), weights=WEIGHTS)
    nodes = smoothed(smoothing, X, kernel)
    out = [(ig.priors.ConvolutionProcess(smoothing, k), X, nodes), (image, wide, patches(wide))]
    if kernel.smoothness >= 1:
        out.append((ig.priors.Derivative(k, D, values=True), X, differences(X)))
    return out


@pytest.mark.parametrize("name", [name for name in CASES if name not in VARIANTS | {"plain fourier"}])
def test_priors_map_the_covariance_of_features(name):
    features, kernel, X = CASES[name]
    cases = pairs(kernel, np.asarray(X)[-2:])  # no points of the features
    nodes = [jnp.asarray(x.reshape(-1, x.shape[-1])) for _, _, (x, _) in cases]

    @eqx.filter_jit
    def compute(features, kernel, cases, nodes):
        Kuf = [prior.Kuf(features, jnp.asarray(x))[0] for prior, x, _ in cases]
        return (
            Kuf,
            [features.Kuf(kernel, x) for x in nodes],
            features.Kuu(kernel, 0.0).diagonal(),
            kernel.diag(nodes[0]),
        )

    every, latent, variance, own = jax.tree.map(np.asarray, compute(features, kernel, cases, nodes))
    scale = np.sqrt(variance * own.max())[:, None, None]
    for (prior, _, (x, w)), got, K in zip(cases, every, latent, strict=True):
        expected = np.einsum("mnpq,pq->mnp", K.reshape(len(K), *x.shape[:3]), w)
        assert np.abs(expected / scale).max() > 0.1
        np.testing.assert_allclose(got / scale, expected / scale, atol=1e-7, err_msg=type(prior).__name__)


def rows(kernel):
    """A kernel of rows (x, p) with two outputs."""
    return ig.kernels.ActiveDims(kernel, 0) * ig.kernels.ActiveDims(ig.kernels.Coregion([[1.0], [2.0]], [0.5, 0.5]), 1)


def test_matrix_valued_kernels_of_features():
    """k(x, x') B[p, q] with slopes in x of single outputs, and with Fourier features of each output."""
    B, X, z, ell = np.array([[1.5, 2.0], [2.0, 4.5]]), np.array([[-0.4], [0.5], [0.9]]), np.array([0.1, 0.7]), 0.6
    smooth, rough = (ig.priors.MatrixValued(rows(kernel(ell)), 2) for kernel in (SE, ig.kernels.Matern32))
    slopes = ig.features.InducingDerivatives([[0.1, 0.0], [0.7, 1.0]], dims=0)
    waves = ig.features.Product((ig.features.Fourier(-1.0, 1.5, 1), ig.features.InducingPoints([[0.0], [1.0]])))
    Kuf = jax.jit(lambda X: (smooth.Kuf(slopes, X)[0], rough.Kuf(waves, X)[0]))(X)
    d, angle = z[:, None] - X.T, 2 * np.pi / 2.5 * (X[:, 0] + 1.0)
    k = -d / ell**2 * np.exp(-0.5 * (d / ell) ** 2)
    np.testing.assert_allclose(Kuf[0], k[..., None] * B[:, None, :], rtol=1e-12)
    phi = np.stack([np.ones(3), np.cos(angle), np.sin(angle)])
    np.testing.assert_allclose(Kuf[1], np.einsum("mn,pq->mpnq", phi, B).reshape(6, 3, 2), rtol=1e-12)


Z1, Z2 = jnp.zeros((2, 1)), jnp.zeros((2, 2))
MATRIX = ig.priors.MatrixValued(rows(ig.kernels.Matern52()), 2)
IMAGE = ig.priors.ImageConvolution(ig.kernels.Matern52(), (1, 4), (1, 3))
VIEW = ig.priors.as_input(ig.priors.Independent(ig.kernels.Matern52(), num=2))


@pytest.mark.parametrize(
    ("prior", "Z", "columns", "message"),
    [
        (MATRIX, Z1, 1, r"MatrixValued are those of rows \(x, p\)"),
        (
            ig.priors.MatrixValued(ig.kernels.Matern52(), 2),
            Z1,
            1,
            r"MatrixValued.*rows \(x, p\).*1 dimension.*2 columns",
        ),
        (IMAGE, jnp.zeros((2, 4)), 4, r"ImageConvolution are those of patches \[3\].*4 dimensions.*3 columns"),
        (VIEW, Z2, 2, "as_input are those of the prior, of inputs without p.*2 dimensions.*1 column;"),
    ],
    ids=["active columns", "all columns", "image", "view"],
)
def test_features_of_other_inputs_say_what_they_are_features_of(prior, Z, columns, message):
    with pytest.raises(ValueError, match=message):
        ig.SparseGP(prior, ig.features.InducingPoints(Z)).width(columns)


def test_categories_are_checked_in_every_kind_of_features():
    """When the model is built: compiled code would take the nearest category in silence."""
    F, wrong = ig.features, jnp.asarray([[0.0, 1.0], [0.0, 2.0]])
    two = ig.priors.MatrixValued(rows(ig.kernels.Matern52()) + rows(ig.kernels.Matern32()), 2)
    good = F.InducingPoints(Z2)
    for prior, features, value in (
        (MATRIX, F.Union((good, F.InducingPoints(wrong))), 2.0),
        (MATRIX, F.EigenNumerical(wrong, 1), 2.0),
        (MATRIX, F.InducingDerivatives(wrong, 0), 2.0),
        (MATRIX, F.Product((F.InducingPoints(Z1), F.InducingPoints(wrong[:, 1:]))), 2.0),
        (two, F.Additive((good, F.InducingPoints(wrong))), 2.0),
        (MATRIX, F.RegionAverage(Z2, Z2 + 1.0, 2), 0.37),
        (MATRIX, F.Integral(lambda x: x, [0.0, 0.0], [1.0, 2.0], 2), 0.37),
    ):
        with pytest.raises(ValueError, match=f"whole numbers from 0 to 1, got {value}"):
            ig.SparseGP(prior, features)
