"""Kuf and Kuu of every kind of features against the linear functional that defines u, and what follows from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

from .cases import CASES, IDS

F, k = ig.features, ig.kernels


def parts_of_kernel(kernel, X):
    """k(·, X), term by term for a sum: what a draw of the prior looks like to the features."""
    from inducing.priors.latents import Parts

    if isinstance(kernel, k.Sum):
        return Parts(
            [
                lambda Z, own=own: own.gram(jnp.pad(Z, ((0, 0), (0, X.shape[1] - Z.shape[1]))), X)
                for own in kernel.kernels
            ]
        )
    return lambda Z: kernel.gram(Z, X)


@pytest.mark.parametrize("name", IDS)
def test_covariances_follow_from_the_functional(name):
    """Kuf = apply(k(·, x)), Kuu = apply(Kuf); K − Q is positive semi-definite; the roots whiten."""
    features, kernel, X = CASES[name]
    X = jnp.asarray(X)

    @eqx.filter_jit
    def compute(features, kernel, X):
        Kuf, Kuu = features.Kuf(kernel, X), features.Kuu(kernel, 0.0)
        out = {"Kuf": Kuf, "Kuu": Kuu.dense(), "applied": features.apply(parts_of_kernel(kernel, X), kernel)}
        if not isinstance(features, F.Additive):  # its blocks are other cases'
            out["twice"] = features.apply(lambda Z: features.Kuf(kernel, Z).T, kernel)
        return out | {"A": Kuu.root_solve(Kuf), "Kff": kernel.gram(X), "jitter": Kuu.relative_jitter}

    got = jax.tree.map(np.asarray, compute(features, kernel, X))
    assert got["jitter"] == 0.0
    # where the kernel has a kink inside the interval, quadrature of k(·, x) has an error that vanishes slowly
    kinks = {"fourier 1/2": 3e-3, "fourier 3/2": 2e-5, "fourier beyond": 1e-6, "free fourier": 2e-5}
    tolerance = kinks.get(name, 1e-6)
    size = np.abs(got["Kuu"]).max()
    np.testing.assert_allclose(got["applied"], got["Kuf"], atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(got.get("twice", got["Kuu"]), got["Kuu"], atol=1e-9 * size, rtol=1e-9)
    Q = got["Kuf"].T @ np.linalg.solve(got["Kuu"], got["Kuf"])
    np.testing.assert_allclose(got["A"].T @ got["A"], Q, atol=1e-9)
    assert np.linalg.eigvalsh(got["Kff"] - Q).min() > -1e-9
    assert np.linalg.eigvalsh(Q).max() > 0.1  # the features see something


def rkhs_inner(p, lam, variance, a, b, g, h):
    """⟨g, h⟩ of the Matérn spaces by their definition: autodiff, a 400-point rule, boundary terms at a."""
    t, w = np.polynomial.legendre.leggauss(400)
    t, w = jnp.asarray(a + (b - a) * (t + 1) / 2), jnp.asarray(w * (b - a) / 2)

    def operator(f):
        for _ in range(p):

            def f(x, f=f):
                return lam * f(x) + jax.jacfwd(f)(x)

        return f

    def ends(f):
        out = []
        for _ in range(p):
            out.append(f(jnp.asarray(a)))
            f = jax.jacfwd(f)
        return out

    bulk = jnp.einsum("mg,ng,g->mn", jax.vmap(operator(g))(t).T, jax.vmap(operator(h))(t).T, w)
    G, H = ends(g), ends(h)

    def pair(x, y):
        return x[:, None] * y[None, :]

    if p == 1:
        return bulk / (2 * lam * variance) + pair(G[0], H[0]) / variance
    if p == 2:
        return bulk / (4 * lam**3 * variance) + (pair(G[0], H[0]) + pair(G[1], H[1]) / lam**2) / variance
    edge = 9 / 8 * pair(G[0], H[0]) + 9 / (8 * lam**4) * pair(G[2], H[2])
    edge = edge + 3 / lam**2 * (pair(G[1], H[1]) + (pair(G[2], H[0]) + pair(G[0], H[2])) / 8)
    return 3 * bulk / (16 * lam**5 * variance) + edge / variance


@pytest.mark.parametrize("p", [1, 2, 3])
def test_fourier_kuu_is_the_inner_product(p):
    a, b, length, variance = -0.4, 1.7, 0.7, 1.3
    kernel = (k.Matern12, k.Matern32, k.Matern52)[p - 1](length, variance)
    lam = np.sqrt(2 * p - 1) / length
    for features in (F.Fourier(a, b, 3), F.FreeFourier(a, b, [0.9, 3.3])):
        omega = features.frequencies

        def phi(x, omega=omega):
            return jnp.concatenate([jnp.ones(1), jnp.cos(omega * (x - a)), jnp.sin(omega * (x - a))])

        expected = jax.jit(lambda phi=phi: rkhs_inner(p, lam, variance, a, b, phi, phi))()
        np.testing.assert_allclose(features.Kuu(kernel, 0.0).dense(), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", [k.Matern32, k.Matern52])
def test_fourier_features_know_no_unit_of_x(kernel):
    """Seconds or nanoseconds, also in single precision, where powers of λ overflow."""

    @eqx.filter_jit
    def compute(features, kernel, X):
        Kuu, own = features.Kuu(kernel, 0.0), features.apply(lambda Z: kernel.gram(Z, X), kernel)
        return Kuu.dense(), Kuu.solve(own), features.Kuf(kernel, X)

    def in_units_of(unit):
        a, b, length, x = (jnp.asarray(np.multiply(unit, v), "float32") for v in (-1.0, 2.0, 0.3, [[0.1], [0.8]]))
        both = F.Fourier(a, b, 2), F.FreeFourier(a, b, 3.3 / b[None])
        return jax.tree.leaves([compute(features, kernel(length, jnp.ones_like(b)), x) for features in both])

    for small, one, large in zip(in_units_of(1e-9), in_units_of(1.0), in_units_of(1e9), strict=True):
        np.testing.assert_allclose(small, one, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(large, one, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_fourier_tends_to_the_prior_given_periodicity(p):
    """Kfu Kuu⁻¹ Kuf → Cov(f | f⁽ʲ⁾(a) = f⁽ʲ⁾(b), j < p), with an error of order 1/M."""
    a, b = -0.4, 1.7
    kernel = (k.Matern12, k.Matern32, k.Matern52)[p - 1](0.7, 1.3)
    X = jnp.linspace(0.1, 1.2, 4)[:, None]

    def Q(num):
        features = F.Fourier(a, b, num)
        A = features.Kuu(kernel, 0.0).root_solve(features.Kuf(kernel, X))
        return A.T @ A

    def functional(f):  # f and its derivatives at b minus at a
        out, ends = [], jnp.array([[a], [b]])
        for _ in range(p):
            values = f(ends)
            out.append(values[1] - values[0])

            def f(Z, f=f):
                return jax.jvp(f, (Z,), (jnp.ones_like(Z),))[1]

        return jnp.stack(out)

    @jax.jit
    def errors():
        C = functional(lambda Z: kernel.gram(Z, X))
        S = functional(lambda Z: functional(lambda Y: kernel.gram(Y, Z)).T)
        limit = kernel.gram(X) - C.T @ jnp.linalg.solve(S, C)
        return [jnp.max(jnp.abs(Q(num) - limit)) for num in (50, 100, 200)]

    e50, e100, e200 = errors()
    assert e200 < 0.02
    np.testing.assert_allclose([e50 / e100, e100 / e200], [2.0, 2.0], rtol=0.1)


def test_true_eigenfeatures_tend_to_the_prior():
    """The error of Kfu Kuu⁻¹ Kuf falls like the first eigenvalue that is left out."""
    kernel, X = k.SquaredExponential(0.6, 1.3), jnp.linspace(-0.9, 1.0, 5)[:, None]

    @jax.jit
    def errors():
        out = []
        for num in (6, 12, 24):
            features = F.EigenMercer(num, [0.0], [0.7])
            A = features.Kuu(kernel, 0.0).root_solve(features.Kuf(kernel, X))
            out.append((jnp.max(jnp.abs(kernel.gram(X) - A.T @ A)), features.spectrum(kernel)[-1]))
        return out

    for error, eigenvalue in errors():
        assert error < 30 * eigenvalue + 1e-12


def test_mercer_eigenfunctions_solve_the_integral_equation():
    from scipy.special import eval_hermite, factorial

    ell, s, variance, mean = 0.7, 0.9, 1.3, 0.2
    features, kernel = F.EigenMercer(6, [mean], [s]), k.SquaredExponential(ell, variance)
    x = np.linspace(-1.5, 1.9, 5)
    a, b = 1 / (4 * s**2), 1 / (2 * ell**2)
    c = np.sqrt(a**2 + 2 * a * b)
    n = np.arange(6)[None, :]
    z = x[:, None] - mean
    v = (c / a) ** 0.25 / np.sqrt(2.0**n * factorial(n)) * np.exp(-(c - a) * z**2) * eval_hermite(n, np.sqrt(2 * c) * z)
    np.testing.assert_allclose(features.eigenfunctions(kernel, jnp.asarray(x)[:, None]), v, rtol=1e-10)
    grid = np.linspace(-8, 8.4, 4001)
    rho = np.exp(-0.5 * ((grid - mean) / s) ** 2) / np.sqrt(2 * np.pi) / s
    vg = np.asarray(features.eigenfunctions(kernel, jnp.asarray(grid)[:, None]))
    K = variance * np.exp(-0.5 * ((x[:, None] - grid[None, :]) / ell) ** 2)
    expected = np.trapezoid(K[:, None, :] * (vg * rho[:, None]).T[None], grid, axis=2)
    np.testing.assert_allclose(features.Kuf(kernel, jnp.asarray(x)[:, None]).T, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("kernel", "profile"),
    [
        (k.Spherical(k.Matern12(0.8, 1.3)), lambda t: 1.3 * np.exp(-np.sqrt(2 - 2 * t) / 0.8)),
        (
            k.SphericalArcCosine(1, 1.3),
            lambda t: 1.3 / np.pi * (np.sqrt(1 - t**2) + (np.pi - np.arccos(t)) * t),
        ),
    ],
    ids=["matern12", "relu"],
)
def test_spherical_harmonics_are_the_legendre_expansion(kernel, profile):
    """In ℝ³, Kfu Kuu⁻¹ Kuf = Σ_ℓ (2ℓ + 1) a_ℓ P_ℓ(cos θ) with a_ℓ = ½ ∫ g P_ℓ, by SciPy."""
    from scipy.integrate import quad
    from scipy.special import eval_legendre

    X = np.random.default_rng(1).normal(size=(5, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    features = F.SphericalHarmonics(3, (0, 1, 2, 4))
    A = features.Kuu(kernel, 0.0).root_solve(features.Kuf(kernel, jnp.asarray(X)))
    expected = np.zeros((5, 5))
    for degree in (0, 1, 2, 4):
        a = 0.5 * quad(lambda t, d=degree: profile(t) * eval_legendre(d, t), -1, 1, epsabs=1e-12, limit=200)[0]
        expected += (2 * degree + 1) * a * eval_legendre(degree, np.clip(X @ X.T, -1, 1))
    np.testing.assert_allclose(A.T @ A, expected, atol=1e-8)


@pytest.mark.parametrize("dim", [2, 3, 4, 6, 9])
def test_spherical_harmonics_are_orthonormal(dim):
    """The addition theorem, Σ_k Y_ℓk(x) Y_ℓk(y) = N_ℓ P_ℓ(x·y), with SciPy's Gegenbauer polynomials."""
    from scipy.special import eval_chebyt, eval_gegenbauer

    from inducing.features.spherical import count, fundamental_system, legendre

    X = np.random.default_rng(2).normal(size=(30, dim))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    t = np.clip(X @ X.T, -1, 1)
    for degree in (1, 2, 3):
        alpha = dim / 2 - 1
        P = (
            eval_chebyt(degree, t)
            if dim == 2
            else eval_gegenbauer(degree, alpha, t) / eval_gegenbauer(degree, alpha, 1.0)
        )
        V, inverse = fundamental_system(dim, degree)
        Y = count(dim, degree) * legendre(dim, degree, X @ V.T)[degree] @ inverse.T
        np.testing.assert_allclose(Y @ Y.T, count(dim, degree) * P, atol=1e-8)


def test_derivative_features_are_limits_of_differences():
    Z, X, h = jnp.asarray([[0.3, -0.2], [0.9, 0.5]]), jnp.asarray([[0.3, -0.2], [-0.4, 1.1], [0.1, 0.2]]), 1e-4
    for kernel, error in ((k.SquaredExponential([0.7, 0.9], 1.4), 1e-6), (k.Matern52([0.7, 0.9], 1.4), 1e-5)):
        features = F.InducingDerivatives(Z, dims=(1, 0))
        step = h * jnp.asarray([[0.0, 1.0], [1.0, 0.0]])

        def difference(f, step=step):
            return (f(Z + step) - f(Z - step)) / (2 * h)

        Kuf = difference(lambda P, kernel=kernel: kernel.gram(P, X))
        Kuu = difference(lambda P, kernel=kernel: difference(lambda P2: kernel.gram(P2, P)).T)
        np.testing.assert_allclose(features.Kuf(kernel, X), Kuf, atol=error)
        np.testing.assert_allclose(features.Kuu(kernel, 0.0).dense(), Kuu, atol=1e3 * error)


def test_multiscale_and_regions_are_averages():
    x = jnp.asarray([[0.4], [-1.0]])
    kernel = k.SquaredExponential(0.6, 1.3)
    grid = np.linspace(-6, 6, 6001)
    K = np.asarray(kernel.gram(jnp.asarray(grid)[:, None], x))
    bump = np.exp(-0.5 * ((grid - 0.2) / 0.5) ** 2) / np.sqrt(2 * np.pi) / 0.5
    expected = np.trapezoid(K * bump[:, None], grid, axis=0)
    np.testing.assert_allclose(F.Multiscale([[0.2]], [[0.5]]).Kuf(kernel, x)[0], expected, rtol=1e-9)
    inside = np.linspace(-0.3, 0.5, 4001)
    expected = np.trapezoid(np.asarray(kernel.gram(jnp.asarray(inside)[:, None], x)), inside, axis=0) / 0.8
    np.testing.assert_allclose(F.RegionAverage([[-0.3]], [[0.5]]).Kuf(kernel, x)[0], expected, rtol=1e-7)


def test_hilbert_space_needs_its_own_kernel():
    kernel = k.Matern32(0.5)
    with pytest.raises(TypeError, match=r"EigenLaplacian.*HilbertSpace.*Matern32.*exceed the evidence"):
        ig.SparseGP(ig.GP(kernel), F.EigenLaplacian((-1.0, 1.0), 8))
    with pytest.raises(ValueError, match="EigenLaplacian"):
        ig.SparseGP(ig.GP(k.HilbertSpace(kernel, (-1.0, 1.0), 8)), F.EigenLaplacian((-1.0, 2.0), 8))
    with pytest.raises(TypeError, match="RationalQuadratic"):
        k.HilbertSpace(k.RationalQuadratic(), (-1.0, 1.0), 8)


SMOOTH_AND_ROUGH = k.ActiveDims(k.SquaredExponential(0.7), 0) * k.ActiveDims(k.Matern12(0.5), 1)


def test_derivatives_along_a_smooth_column_of_a_rough_kernel():
    """∂/∂z of σ² exp(−(z − x)²/2ℓ²) exp(−|w − y|/m) is −(z − x)/ℓ² times it."""
    Z, X = np.array([[0.1, 0.3], [0.8, -0.2]]), np.array([[0.5, 0.1], [-0.3, 0.3]])
    layer = ig.SparseGP(ig.GP(SMOOTH_AND_ROUGH), F.InducingDerivatives(Z, 0))
    d = Z[:, None] - X[None]
    K = np.exp(-0.5 * (d[..., 0] / 0.7) ** 2 - np.abs(d[..., 1]) / 0.5)
    np.testing.assert_allclose(
        layer.prior.Kuf(layer.features, jnp.asarray(X))[0, ..., 0], -d[..., 0] / 0.49 * K, rtol=1e-12
    )


def test_pairs_that_cannot_work_are_refused_with_a_reason():
    refused = [
        (k.SquaredExponential(), F.Fourier(0.0, 1.0, 2), "Fourier.*Matern12.*SquaredExponential.*plain_fourier"),
        (k.Matern12(), F.InducingDerivatives([[0.0]]), "Derivative.*derivative along column 0.*Matern12.*Matern32"),
        (SMOOTH_AND_ROUGH, F.InducingDerivatives([[0.0, 1.0]]), "Derivative.*derivative along column 1.*Product"),
        (2.0 * k.Matern32(), F.Fourier(0.0, 1.0, 2), r"Fourier.*Product; a number in front.*variance of k"),
        (2.0 * k.Periodic(k.Matern32()), F.Fourier(0.0, 1.0, 2), "Fourier.*Product; for other kernels"),
        (k.ActiveDims(k.Matern32(), 1), F.Fourier(0.0, 1.0, 2), r"ActiveDims; features.Product\(\(Fourier\(…\),\)\)"),
        (k.Matern32(), F.Multiscale([[0.0]], [[1.0]]), "Multiscale.*SquaredExponential.*Matern32"),
        (k.Matern32(), F.EigenMercer(3, [0.0], [1.0]), "EigenMercer.*SquaredExponential.*EigenNumerical"),
        (k.Matern32(), F.SphericalHarmonics(3, 2), "SphericalHarmonics.*Matern32.*Spherical"),
        (k.Matern32(), F.Product((F.Fourier(0.0, 1.0, 2),) * 2), "Product.*ActiveDims"),
        (k.Matern32(), F.Additive((F.Fourier(0.0, 1.0, 2),) * 2), "Additive.*sum of 2"),
        (k.Matern32(), F.GaussianFourier([[1.0]], [0.0], [1.0]), "GaussianFourier.*SquaredExponential.*BoxFourier"),
    ]
    for kernel, features, message in refused:
        with pytest.raises(TypeError, match=message):
            ig.SparseGP(ig.GP(kernel), features)


def test_bad_arguments_are_named():
    wrong = [
        (lambda: F.Fourier(1.0, 1.0, 3), "a < b.*1.0"),
        (lambda: F.Fourier(0.0, np.inf, 3), "a < b.*inf"),
        (lambda: F.Fourier(0.0, 1.0, 0), "num"),
        (lambda: F.FreeFourier(2.0, 1.0, [1.0]), "a < b"),
        (lambda: F.Fourier(0.0, 1.0, 2).Kuf(k.Matern32(), jnp.zeros((3, 2))), "2 columns.*Product"),
        (lambda: F.InducingDerivatives([[0.0, 1.0]], 2), "dims holds 2"),
        (lambda: F.InducingDerivatives([[0.0, 1.0]], (0, 1)), "2 entries for 1 rows"),
        (lambda: F.Integral(lambda x: x, [0.0], [1.0], 0), "number of nodes in each dimension must be .*got 0"),
        (lambda: F.RegionAverage([[0.0]], [[1.0]], -1), "number of nodes in each dimension must be .*got -1"),
        (lambda: F.Integral(lambda x: x, [1.0], [0.0]), "lower must be below upper"),
        (lambda: F.RegionAverage([[0.0]], [[0.0]]), "lower must be below upper"),
        (lambda: F.EigenMercer(3, [0.0], [-1.0]), "std must be positive"),
        (lambda: F.EigenMercer(3, [0.0], [1.0]).Kuu(k.SquaredExponential([1.0, 2.0]), 0.0), "lengthscale has 2"),
        (lambda: F.EigenNumerical([[0.0], [1.0]], 3), "between 1 and the 2 points"),
        (lambda: F.SphericalHarmonics(3, 2.5), "degrees must be .*whole number.*got .2.5"),
        (lambda: F.SphericalHarmonics(10, 2), "dim must be from 2 to 9"),
        (lambda: F.SphericalHarmonics(8, 12), "features, more than"),
        (lambda: F.Multiscale([[0.0]], [[1.0, 2.0]]), "Z and widths"),
        (lambda: F.GaussianFourier([1.0], [0.0], [1.0]), r"frequencies must be \[F, D\]"),
        (lambda: F.GaussianFourier([[1.0, 2.0]], [0.0], [1.0, 1.0]), r"centre has shape \[1\].*2 columns"),
        (lambda: F.GaussianFourier([[1.0], [-1.0]], [0.0], [1.0]), "equal up to sign"),
        (lambda: F.GaussianFourier([[0.0]], [0.0], [1.0]), "must not be 0"),
        (lambda: F.GaussianFourier(np.eye(4), np.zeros(4), np.ones(4)).apply(jnp.sum), "up to 3"),
        (lambda: F.BoxFourier([[1.0]], [1.0], [0.0]), "lower must be below upper"),
        (
            lambda: F.InducingPoints([[0.0]]).Kuf(k.Matern32(), jnp.zeros((3, 2))),
            "InducingPoints.*1 dimension.*2 col.*for each",
        ),
        (
            lambda: F.EigenMercer(3, [0.0] * 2, [1.0] * 2).Kuf(k.SquaredExponential(), jnp.zeros((3, 1))),
            "1 column; give",
        ),
        (lambda: F.Multiscale([[0.0]], [[1.0]]).Kuf(k.SquaredExponential(), jnp.zeros((3, 2))), "live in 1 dimension"),
        (lambda: F.Multiscale([[0.0]], [[1.0]]).Kuu(k.SquaredExponential([1.0, 2.0]), 0.0), "lengthscale has 2"),
        (lambda: k.HilbertSpace(k.Matern32(), (1.0, -1.0), 4), "low < high"),
    ]
    for call, message in wrong:
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_numbers_that_are_not_whole_are_named(unchecked):
    for call, message in (
        (lambda: F.InducingDerivatives([[0.0, 1.0]], (0.5,)), "dims must be .*whole number.* got .0.5"),
        (lambda: F.Integral(lambda x: x, [0.0], [1.0], 2.5), "Integral.nodes must be a whole number, got 2.5"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_numerical_eigenfeatures_keep_their_signs(dtype):
    """A little more of a lengthscale turns no eigenvector round, nor does another unit of x."""
    Z, scales = np.linspace(-1.0, 1.1, 40)[:, None], np.linspace(0.3, 1.0, 200)

    @jax.jit
    def vectors(unit):
        features = F.EigenNumerical(unit * jnp.asarray(Z, dtype), 6)
        return jax.lax.map(
            lambda scale: features.eigenvectors(k.Matern32(unit * scale, jnp.ones((), dtype)))[1],
            jnp.asarray(scales, dtype),
        )

    U, other = (np.asarray(vectors(jnp.asarray(unit, dtype))) for unit in (1.0, 1e3))
    assert (np.sum(U[1:] * U[:-1], axis=1) > 0.9).all()
    assert (np.sum(U * other, axis=1) > 0.9).all()
