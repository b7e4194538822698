"""Priors over latents that are themselves priors, and latents with different numbers of features."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

K, P, F = ig.kernels, ig.priors, ig.features
X = jnp.linspace(0.0, 1.0, 5)[:, None]
W = np.array([[1.0, 0.3, 0.2], [2.0, -0.3, 0.5]])
CONVOLVED = P.ConvolutionProcess(P.GaussianSmoothing([[0.3], [0.5]]), K.SquaredExponential(0.6), mean=0.7)
SLOPES = P.Derivative(ig.GP(K.SquaredExponential(0.7), 2.0), dim=1, values=True)
ROUGH = P.ConvolutionProcess(P.GaussianSmoothing([[0.3], [0.5]]), K.Matern12())
RANDOM = np.random.default_rng(0)


def points(num):
    return F.InducingPoints(np.linspace(0.0, 1.0, num)[:, None])


SLOPES_AT = F.InducingDerivatives(points(3).Z)


@eqx.filter_jit
def covariance(prior, X):
    return prior.covariance(X)


@eqx.filter_jit
def drawn(prior, keys, X):
    return jax.lax.map(lambda key: prior.draw(key, 16)(X), keys, batch_size=50)


def side_by_side(covs, n):
    """The covariance of independent processes with covariances [n·P_i, n·P_i], datum by datum."""
    widths = [len(C) // n for C in covs]
    ends = np.cumsum([0, *widths])
    out = np.zeros((n, ends[-1], n, ends[-1]))
    for C, a, b in zip(covs, ends, ends[1:], strict=False):
        out[:, a:b, :, a:b] = np.reshape(C, (n, b - a, n, b - a))
    return out


@pytest.mark.parametrize("inner", [CONVOLVED, SLOPES, P.LMC([[1.0], [-2.0]], K.Matern52(), mean=1.0)])
def test_mixtures_of_priors(inner):
    """Covariance, mean and moments of draws of W g for g = (two outputs of a prior, a GP)."""
    rough = ig.GP(K.Matern32(0.5), 1.0)
    prior = P.LMC(W, [inner, rough], mean=ig.means.Constant(0.5))
    both = side_by_side([covariance(inner, X), rough.kernel.gram(X)], 5)
    truth = np.einsum("pa,naMb,qb->npMq", W, both, W).reshape(10, 10)
    np.testing.assert_allclose(covariance(prior, X), truth, atol=1e-12)
    mean = np.concatenate([inner.mean(X), np.ones((5, 1))], axis=1) @ W.T + 0.5
    np.testing.assert_allclose(prior.mean(X), mean, atol=1e-12)
    np.testing.assert_allclose(covariance(P.Stack([inner, rough]), X), both.reshape(15, 15), atol=1e-12)
    f = np.asarray(drawn(prior, jax.random.split(jax.random.key(0), 1000), X)).reshape(1000, 10)
    error = np.sqrt(np.diag(truth) / 1000)
    assert (np.abs(f.mean(axis=0) - mean.ravel()) < 5 * error).all()
    products = (f - mean.ravel())[:, :, None] * (f - mean.ravel())[:, None, :]
    assert (np.abs(products.mean(axis=0) - truth) < 5 * products.std(axis=0) / 1000**0.5 + 1e-9).all()


def test_mixtures_of_mixtures_are_mixtures():
    """All of a model, with features of different numbers, beside that with the product of the matrices."""
    A, B = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(2, 2))
    kernels, features = [K.Matern52(0.5), K.Matern32(0.8)], [points(3), points(4)]
    y = RANDOM.normal(size=(5, 3))
    q = {"mean": RANDOM.normal(size=(2, 4)), "root": 0.5 * np.eye(4) * np.ones((2, 1, 1))}

    @eqx.filter_jit
    def values(prior):
        model = ig.Model(ig.SparseGP(prior, features, **q), ig.likelihoods.Gaussian(0.1))
        return ig.elbo(model, (X, y)), ig.collapsed_elbo(model, (X, y)), model.posterior(X, full_cov=True).covariance

    nested, plain = values(P.LMC(A, P.LMC(B, kernels))), values(P.LMC(A @ B, kernels))
    for a, b in zip(nested, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_slopes_of_mixtures_have_the_derivative_on_the_smoothing():
    """Matern12 has no slopes, but smoothed ones have; the other latent has some of its own."""
    smooth = K.SquaredExponential(0.5)
    V = np.array([[1.0, -1.0, 2.0]])
    prior = P.Derivative(P.LMC(V, [ROUGH, smooth]), dim=1)
    slopes = [covariance(P.Derivative(p, dim=1), X) for p in (ROUGH, ig.GP(smooth))]
    truth = np.einsum("pa,naMb,qb->npMq", V, side_by_side(slopes, 5), V).reshape(5, 5)
    np.testing.assert_allclose(covariance(prior, X), truth, rtol=1e-9)


@pytest.mark.parametrize("coordinates", ["u", "w"])
def test_latents_have_different_numbers_of_features(coordinates):
    """Independent outputs with 3 and 5 features are two models with 3 and 5."""
    kernels, y = [K.Matern52(0.5), K.SquaredExponential(0.3)], RANDOM.normal(size=(5, 2))
    means = [ig.means.Constant(0.4), ig.means.Constant(-1.0)]
    features = [points(3), points(5)]

    @eqx.filter_jit
    def values(prior, features, y):
        model = ig.Model(ig.SparseGP(prior, features, coordinates=coordinates), ig.likelihoods.Gaussian(0.1))
        best = ig.collapse(model, (X, y))
        return ig.elbo(model, (X, y)), ig.collapsed_elbo(model, (X, y)), ig.elbo(best, (X, y)), best.posterior(X).mean

    gps = [ig.GP(k, m) for k, m in zip(kernels, means, strict=True)]
    own = [values(gp, f, y[:, i : i + 1]) for i, (gp, f) in enumerate(zip(gps, features, strict=True))]
    *bounds, mean = values(P.Independent(gps), features, y)
    np.testing.assert_allclose(bounds, np.sum([o[:3] for o in own], axis=0), rtol=1e-8)
    np.testing.assert_allclose(mean, np.concatenate([o[3] for o in own], axis=1), atol=1e-8)


def test_features_see_what_a_mixture_takes_of_values_and_slopes():
    """f = W (g, g', h): Cov(u, f(x)) = W_0 k(z, x) + W_1 ∂k(z, x)/∂x for u = g(z)."""
    prior, Z = P.LMC(W, [SLOPES, ig.GP(K.Matern32(0.5))]), np.array([[0.1], [0.6]])
    K_uf = eqx.filter_jit(lambda prior: prior.Kuf(F.InducingPoints(Z), X))(prior)
    x = np.asarray(X)[:, 0]
    d = (Z - x) / 0.7
    k = np.exp(-0.5 * d**2)
    truth = k[..., None] * W[:, 0] + (d / 0.7 * k)[..., None] * W[:, 1]
    np.testing.assert_allclose(K_uf[0], truth, atol=1e-12)
    r = np.sqrt(3.0) * np.abs(Z - x) / 0.5
    np.testing.assert_allclose(K_uf[1], ((1 + r) * np.exp(-r))[..., None] * W[:, 2], atol=1e-12)


def test_a_mixture_of_a_warped_process():
    """A kernel may hold a function, which has no dtype."""
    warped = K.Warped(K.Matern52(), jnp.sin)
    prior = P.LMC(W[:, :2], [P.LMC([[2.0]], warped), K.Matern32()])
    truth = np.kron(4.0 * warped.gram(X), np.outer(W[:, 0], W[:, 0]))
    truth += np.kron(K.Matern32().gram(X), np.outer(W[:, 1], W[:, 1]))
    np.testing.assert_allclose(covariance(prior, X), truth, atol=1e-12)


def test_a_convolution_of_a_mixture():
    """Covariance, mean, Kuf and moments of draws of ∫ G(t) (W g + μ)(x − t) dt, in closed form for Gaussians."""
    s, a = np.array([[0.3, 0.2], [0.1, 0.5]]), np.array([[1.0, -0.5], [0.3, 2.0]])
    V, lengths = np.array([[1.0, 0.3], [-0.4, 0.8]]), np.array([0.6, 0.9])
    inner = P.LMC(V, [K.SquaredExponential(l) for l in lengths], mean=ig.means.Linear([[2.0, -1.0]], 0.5))
    prior = P.ConvolutionProcess(P.GaussianSmoothing(s, a), inner, mean=1.0)

    def smoothed(d, variance):  # [p, q, …, l]: the kernel of each latent, smoothed by G_pq's own variance and more
        v = lengths**2 + np.asarray(variance)[..., None]
        return lengths / np.sqrt(v) * np.exp(-0.5 * d**2 / v)

    x = np.asarray(X)[:, 0]
    widths = s[:, :, None, None] ** 2 + s**2  # of outputs p and q' of G, through h_q and h_q'
    k = np.stack([smoothed(d, widths) for d in (x[:, None] - x).ravel()]).reshape(5, 5, 2, 2, 2, 2, 2)
    parts = np.einsum("pa,al,nmpaqbl,qb,bl->lnpmq", a, V, k, a, V)
    truth, Z = parts.sum(axis=0).reshape(10, 10), x[:3]
    k_uf = np.stack([smoothed(d, s**2) for d in (Z[:, None] - x).ravel()]).reshape(3, 5, 2, 2, 2)
    mean = 1.0 + (x[:, None] * [2.0, -1.0] + 0.5) @ a.T

    @eqx.filter_jit
    def values(prior):
        return prior.covariance(X), prior.Kff_diag(X), prior.Kuf(F.InducingPoints(X[:3]), X), prior.mean(X)

    expected = truth, np.einsum("lnpnp->lnp", parts), np.einsum("pa,al,mnpal->lmnp", a, V, k_uf), mean
    for value, wanted in zip(values(prior), expected, strict=True):
        np.testing.assert_allclose(value, wanted, atol=2e-4)  # the rule's
    f = np.asarray(drawn(prior, jax.random.split(jax.random.key(0), 1000), X)).reshape(1000, 10) - mean.ravel()
    products = f[:, :, None] * f[:, None, :]
    assert (np.abs(f.mean(axis=0)) < 5 * f.std(axis=0) / 1000**0.5).all()
    assert (np.abs(products.mean(axis=0) - truth) < 5 * products.std(axis=0) / 1000**0.5 + 1e-9).all()


def test_convolutions_of_convolutions_and_of_slopes():
    """Widths of Gaussians add in squares, and a convolution of a slope is the slope of a convolution."""
    G, smooth = P.GaussianSmoothing([[0.4]]), K.SquaredExponential(0.6)
    once = P.ConvolutionProcess(P.GaussianSmoothing([[0.5]]), smooth)
    twice = P.ConvolutionProcess(G, P.ConvolutionProcess(P.GaussianSmoothing([[0.3]]), smooth))
    np.testing.assert_allclose(covariance(twice, X), covariance(once, X), atol=2e-5)
    slope = P.ConvolutionProcess(G, P.Derivative(ig.GP(smooth), dim=1))
    truth = P.Derivative(P.ConvolutionProcess(G, smooth), dim=1)
    np.testing.assert_allclose(covariance(slope, X), covariance(truth, X), atol=1e-4)
    slopes = [covariance(P.Derivative(p, dim=1), X) for p in (twice, once)]
    np.testing.assert_allclose(*slopes, atol=1e-3)


def test_the_contract_of_a_convolution_of_priors():
    G = P.GaussianSmoothing([[0.2, 0.3, 0.1]])
    ig.testing.check_prior(P.ConvolutionProcess(G, P.LMC(np.eye(3), [K.Matern52(0.5)] * 3)), points(3), X)


def test_the_contract():
    ig.testing.check_prior(P.LMC(W, [SLOPES, K.Matern52(0.5)]), [points(3), SLOPES_AT], X)


def test_a_mixture_of_image_priors_is_trained_and_kept_in_a_file(tmp_path):
    """Each latent has patches of its own, as many as it needs."""
    images, y = RANDOM.random((12, 9)), RANDOM.normal(size=(12, 3))
    latents = [P.ImageConvolution(K.SquaredExponential(s), (3, 3), (2, 2), weights=True) for s in (1.0, 0.5)]
    patches = [F.InducingPoints(RANDOM.random((num, 4))) for num in (3, 5)]
    gp = ig.SparseGP(P.LMC(RANDOM.normal(size=(3, 2)), latents), patches)
    result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.5)), (images, y), steps=3, progress=False)
    assert result.history.bound[-1] > result.history.bound[0]
    ig.save(tmp_path / "model.ig", result.model)
    loaded = ig.load(tmp_path / "model.ig")
    np.testing.assert_array_equal(loaded.predict(images).mean, result.model.predict(images).mean)


def test_what_cannot_be_stacked():
    with pytest.raises(TypeError, match="as_input to the whole"):
        P.Stack([P.as_input(P.LMC([[1.0]], K.Matern52()))])
    with pytest.raises(TypeError, match=r"ig\.priors\.Stack"):
        P.Independent([ROUGH])
    with pytest.raises(TypeError, match="LMC take any priors, also image-convolutional"):
        P.ImageConvolution(P.LMC([[1.0]], K.Matern52()), (4, 4), (2, 2))
    with pytest.raises(TypeError, match="as_input to the whole"):
        P.ConvolutionProcess(P.GaussianSmoothing([[0.3]]), P.as_input(ROUGH))
    with pytest.raises(ValueError, match="3 columns but there are 2 latents"):
        P.ConvolutionProcess(P.GaussianSmoothing([[0.3, 0.1, 0.2]]), ROUGH)
    with pytest.raises(ValueError, match="3 columns but there are 2 latents"):
        P.LMC(W, ROUGH)
    with pytest.raises(ValueError, match="at least one"):
        P.Stack([])
    with pytest.raises(ValueError, match="less than the 3 features"):
        F.Padded(points(3), 2)
