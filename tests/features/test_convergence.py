"""More features: Kfu Kuu⁻¹ Kuf tends to Kff at the known rate, and the bound rises to the evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import eval_chebyt, eval_gegenbauer
from scipy.stats import multivariate_normal

import inducing as ig
from inducing.features.spherical import count

F, k = ig.features, ig.kernels


def _left_out(features, kernel, X):
    """diag(Kff − Kfu Kuu⁻¹ Kuf)."""
    A = features.Kuu(kernel, 0.0).root_solve(features.Kuf(kernel, X))
    return kernel.diag(X) - jnp.sum(A**2, axis=0)


def test_inducing_points_tend_to_the_prior():
    """Midway between points h apart, the variance left falls like h, h³, h⁵ for Matérn 1/2, 3/2, 5/2."""
    kernels, sizes = (k.Matern12(0.8, 1.3), k.Matern32(0.8, 1.3), k.Matern52(0.8, 1.3)), (11, 21)
    steps = [1.0 / (n - 1) for n in sizes]

    @jax.jit
    def errors():
        return [
            [
                jnp.max(
                    _left_out(F.InducingPoints(jnp.linspace(0.0, 1.0, n)[:, None]), kernel, jnp.array([[0.5 + h / 2]]))
                )
                for n, h in zip(sizes, steps, strict=True)
            ]
            for kernel in kernels
        ]

    first, second, third = np.asarray(errors())
    np.testing.assert_allclose(first, 1.3 * np.tanh(np.array(steps) / 1.6), rtol=1e-9)  # in closed form: Markov
    np.testing.assert_allclose([second[0] / second[1], third[0] / third[1]], [8.0, 32.0], rtol=0.15)


def test_mercer_features_tend_to_the_prior_in_the_plane():
    """Features of all degrees up to d leave eigenvalues of the order (b/A)^(d+1) out: a geometric rate."""
    std, length = 0.7, 0.6
    a, b = 0.25 / std**2, 0.5 / length**2
    rate = b / (a + b + np.sqrt(a * a + 2 * a * b))
    kernel, X = k.SquaredExponential(length, 1.3), jnp.asarray(np.random.default_rng(0).normal(size=(6, 2))) * 0.5
    degrees = np.array([6, 12, 18, 24])

    @jax.jit
    def errors():
        features = [F.EigenMercer(int((d + 1) * (d + 2) // 2), [0.0, 0.0], [std, std]) for d in degrees]
        return jnp.stack([jnp.max(_left_out(f, kernel, X)) for f in features])

    error = np.asarray(errors())
    assert (error < 30 * rate ** (degrees + 1)).all() and error[-1] < 1e-4
    np.testing.assert_allclose(np.diff(np.log(error)) / 6, np.log(rate), atol=0.15)


@pytest.mark.parametrize("dim", [2, 3])
def test_spherical_harmonics_tend_to_the_prior(dim):
    """The tail Σ_{ℓ>L} N_ℓ a_ℓ of Matérn ν falls like (L + (dim − 1)/2)^(−2ν)."""
    kernels, degrees = (k.Spherical(k.Matern12(0.8, 1.3)), k.Spherical(k.Matern32(0.8, 1.3))), (8, 16)
    X = jnp.asarray(np.random.default_rng(1).normal(size=(3, dim)))
    errors = jax.jit(
        lambda: [[jnp.max(_left_out(F.SphericalHarmonics(dim, d), kernel, X)) for d in degrees] for kernel in kernels]
    )
    (first, second), (third, fourth) = errors()
    ratio = (16 + (dim - 1) / 2) / (8 + (dim - 1) / 2)
    np.testing.assert_allclose([first / second, third / fourth], [ratio, ratio**3], rtol=0.06)


def _gegenbauer(dim, degree, t):
    if dim == 2:
        return eval_chebyt(degree, t)
    return eval_gegenbauer(degree, dim / 2 - 1, t) / eval_gegenbauer(degree, dim / 2 - 1, 1.0)


def _arc_cosine(order, theta):
    if order == 0:
        return np.pi - theta
    if order == 1:
        return np.sin(theta) + (np.pi - theta) * np.cos(theta)
    return 3 * np.sin(theta) * np.cos(theta) + (np.pi - theta) * (1 + 2 * np.cos(theta) ** 2)


PROFILES = {
    "matern12": (k.Spherical(k.Matern12(0.8, 1.3)), lambda t: 1.3 * np.exp(-2 * np.sin(t / 2) / 0.8)),
    "short": (k.Spherical(k.SquaredExponential(3e-3)), lambda t: np.exp(-2 * (np.sin(t / 2) / 3e-3) ** 2)),
    "step": (k.SphericalArcCosine(0, 1.3), lambda t: 1.3 / np.pi * _arc_cosine(0, t)),
    "relu": (k.SphericalArcCosine(1, 1.3), lambda t: 1.3 / np.pi * _arc_cosine(1, t)),
    "quadratic": (k.SphericalArcCosine(2, 1.3), lambda t: 1.3 / np.pi * _arc_cosine(2, t)),
}


@pytest.mark.parametrize(("dim", "degrees"), [(2, range(9)), (5, range(9)), (9, range(5))], ids=["2", "5", "9"])
def test_spherical_spectrum_in_other_dimensions(dim, degrees):
    """a_ℓ = ∫ g P_ℓ over angles by SciPy; Kfu Kuu⁻¹ Kuf = Σ_ℓ N_ℓ a_ℓ P_ℓ (addition theorem); Kff − Q ⪰ 0."""
    degrees = tuple(d for d in degrees if not (dim == 5 and d in (5, 6, 7)))  # few enough features, and the highest
    features = F.SphericalHarmonics(dim, degrees)
    X = np.random.default_rng(2).normal(size=(12, dim))
    X /= np.linalg.norm(X, axis=1, keepdims=True)

    @jax.jit
    def compute(X):
        Y = features.harmonics(X)
        return Y, [
            (features.spectrum(kernel), features.Kuf(kernel, X), kernel.gram(X)) for kernel, _ in PROFILES.values()
        ]

    Y, got = jax.tree.map(np.asarray, compute(jnp.asarray(X)))
    sizes = np.array([count(dim, d) for d in degrees])
    blocks = np.split(Y, np.cumsum(sizes)[:-1], axis=1)
    P = [_gegenbauer(dim, d, np.clip(X @ X.T, -1, 1)) for d in degrees]
    for block, size, polynomial in zip(blocks, sizes, P, strict=True):
        np.testing.assert_allclose(block @ block.T, size * polynomial, atol=1e-8 * size)
    area = quad(lambda t: np.sin(t) ** (dim - 2), 0, np.pi)[0]
    for (name, (_, profile)), (a, Kuf, Kff) in zip(PROFILES.items(), got, strict=True):

        def weighed(t, d, profile=profile):
            return profile(t) * _gegenbauer(dim, d, np.cos(t)) * np.sin(t) ** (dim - 2)

        expected = np.array(
            [quad(weighed, 0, np.pi, args=(d,), epsabs=1e-13, limit=200, points=[0.02])[0] / area for d in degrees]
        )
        np.testing.assert_allclose(a, np.repeat(expected, sizes), atol=1e-10, err_msg=name)
        Q = (Kuf / a[:, None]).T @ Kuf
        series = sum(s * e * p for s, e, p in zip(sizes, expected, P, strict=True))
        np.testing.assert_allclose(Q, series, atol=1e-8, err_msg=name)
        assert np.linalg.eigvalsh(Kff - Q).min() > -1e-9


HILBERT = k.HilbertSpace(k.Matern32(0.4), (-1.5, 1.6), 24)


@pytest.mark.parametrize(
    ("kernel", "make", "sizes"),
    [
        (k.SquaredExponential(0.3), lambda n: F.EigenMercer(n, [0.0], [0.6]), (3, 6, 12, 24)),
        (k.Matern32(0.4), lambda n: F.EigenNumerical(np.linspace(-0.9, 0.9, 40)[:, None], n), (3, 6, 12, 24)),
        (HILBERT, lambda n: F.EigenLaplacian(HILBERT.box, n), (3, 6, 12, 24)),
        (k.Spherical(k.Matern32(0.4), [3.0, 1.0]), lambda n: F.SphericalHarmonics(2, n), (1, 3, 6, 12)),
        (k.Matern32(0.4), lambda n: F.FreeFourier(-1.5, 1.6, 1.1 * np.arange(1.0, n + 1)), (1, 3, 6, 12)),
        (k.Matern32(0.4), lambda n: F.InducingPoints(np.linspace(-0.7, 0.8, 13)[:: 12 // n, None]), (2, 4, 6, 12)),
    ],
    ids=["mercer", "numerical", "laplacian", "sphere", "free fourier", "points"],
)
def test_more_nested_features_raise_the_bound(kernel, make, sizes):
    X = jnp.linspace(-0.7, 0.8, 14)[:, None]
    inputs = k.with_bias(X) if isinstance(kernel, k.Spherical) else X
    data, likelihood = ig.Data(inputs, jnp.sin(7.0 * X)), ig.likelihoods.Gaussian(0.05)

    @jax.jit
    def bounds():
        models = [ig.Model(ig.SparseGP(ig.GP(kernel), make(n), jitter=1e-10), likelihood) for n in sizes]
        return jnp.stack([ig.collapsed_elbo(m, data) for m in models]), ig.log_evidence(models[0], data)

    values, evidence = bounds()
    nested = values if sizes[:3] != (2, 4, 6) else values[jnp.array([0, 2, 3])]  # 4 intervals' points are not 6's
    assert (np.diff(nested) > 0).all()
    assert values[-1] < evidence + 1e-8
    if isinstance(kernel, k.HilbertSpace):
        np.testing.assert_allclose(values[-1], evidence, rtol=1e-8)  # all of them: exact


def test_default_interval_does_not_hurt():
    """Up to lengthscales of half the range the bound reaches the evidence; on a narrower interval it cannot."""
    rng = np.random.default_rng(0)
    X, noise = np.sort(rng.uniform(2.0, 3.0, 40)), rng.normal(size=40)
    cases = [(k.Matern32, 0.1, 400), (k.Matern32, 0.5, 200), (k.Matern52, 0.2, 100), (k.Matern52, 0.5, 100)]

    @jax.jit
    def matrices(X):
        def Q(kernel, features):
            A = features.Kuu(kernel, 0.0).root_solve(features.Kuf(kernel, X))
            return A.T @ A

        around = F.Fourier.around
        return [
            (kind(ell).gram(X), Q(kind(ell), around(X, num)), Q(kind(ell), around(X, num, margin=ell)))
            for kind, ell, num in cases
        ]

    for K, *Qs in jax.tree.map(np.asarray, matrices(jnp.asarray(X)[:, None])):
        evidence = multivariate_normal(np.zeros(40), K + 0.01 * np.eye(40))
        y = np.linalg.cholesky(evidence.cov) @ noise
        bounds = [
            multivariate_normal(np.zeros(40), Q + 0.01 * np.eye(40)).logpdf(y) - np.trace(K - Q) / 0.02 for Q in Qs
        ]
        wide, narrow = evidence.logpdf(y) - np.array(bounds)
        assert 0 < wide < 0.5 and narrow > 10.0
