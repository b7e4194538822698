"""What priors answer about themselves, against truths worked out by hand."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import inducing as ig
from inducing.likelihoods.base import LatentStart
from inducing.parameters import Start, real

SE, Matern = ig.kernels.SquaredExponential, ig.kernels.Matern52
C = ig.means.Constant


class Said:
    """A likelihood whose labels are the outputs themselves, with a parameter of its own."""

    noise = jnp.ones(())

    def start(self, y):
        variance = np.nanvar(y, axis=0)
        return LatentStart(np.nanmean(y, axis=0), variance, [Start(self.noise, variance.mean() / 10, False)])


class Delayed(ig.priors.AbstractPrior):
    """A user's prior, f_p(x) = c + g(x − delays[p]): the abstract methods and one question."""

    latent: ig.GP
    delays: Float[Array, " P"] = real()
    level: C

    num_latents: ClassVar[int] = 1
    mixing: ClassVar[None] = None

    @property
    def num_outputs(self):
        return self.delays.shape[0]

    @property
    def num_sites(self):
        return self.num_outputs

    @property
    def kernels(self):
        return self.latent.kernels

    @property
    def smoothness(self):
        return self.latent.smoothness

    def mean_functions(self):
        return ((None, self.level),)

    def input_columns(self, latent):
        return latent

    def places(self, X):
        return (X[:, None, :] - self.delays[None, :, None]).reshape(-1, X.shape[1])

    def mean(self, X):
        return self.latent.mean(self.places(X)).reshape(len(X), -1)

    def mu_u(self, features):
        return self.latent.mu_u(features)

    def Kuu(self, features, jitter):
        return self.latent.Kuu(features, jitter)

    def Kuf(self, features, X):
        return self.latent.Kuf(features, self.places(X)).reshape(1, -1, len(X), self.num_sites)

    def Kff(self, X, X2=None):
        X2 = X if X2 is None else X2
        K = self.latent.kernel.gram(self.places(X), self.places(X2))
        return K.reshape(1, len(X), self.num_sites, len(X2), self.num_sites)

    def Kff_diag(self, X):
        return self.latent.kernel.diag(self.places(X)).reshape(1, len(X), self.num_sites)

    def draw_latents(self, key, num, dim):
        g, _ = self.latent.draw_latents(key, num, dim)
        return g, lambda X: g(self.places(X)).reshape(len(X), 1, self.num_sites)


def priors():
    rows = ig.kernels.ActiveDims(SE(), (0,)) * ig.kernels.ActiveDims(ig.kernels.Coregion([[1.0]] * 2, [1.0] * 2), (1,))
    return {
        "gp": ig.GP(SE(), 1.0),
        "shared": ig.priors.Independent(ig.GP(SE(), 1.0), 2, mean=C([0.0, 0.0])),
        "separate": ig.priors.Independent([ig.GP(SE(), 1.0), ig.GP(Matern(), 2.0)]),
        "lmc": ig.priors.LMC([[1.0, 0.0], [3.0, 4.0]], [ig.GP(SE(), 1.0), Matern()], mean=C([0.0, 0.0])),
        "icm": ig.priors.IntrinsicCoregionalisation([1.0, 2.0], [0.5, 0.5], SE()),
        "convolution": ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing([[0.5], [1.0]]), SE(), mean=1.0),
        "responses": ig.priors.ImageConvolution(SE(), (1, 3), (1, 2), mean=1.0),
        "weighted": ig.priors.ImageConvolution(SE(), (1, 3), (1, 2), weights=True),
        "matrix": ig.priors.MatrixValued(rows, 2, mean=1.0),
        "gradient": ig.priors.Derivative(ig.GP(SE(), 1.0), 2),
        "values": ig.priors.Derivative(ig.GP(SE(), 1.0), 2, values=True),
        "hessian": ig.priors.Derivative(ig.priors.Derivative(ig.GP(SE(), 1.0), 2), 2),
        "view": ig.priors.as_input(ig.priors.LMC([[1.0], [2.0]], SE(), mean=C([0.0, 0.0]))),
        "delayed": Delayed(ig.GP(SE()), jnp.array([0.0, 1.0]), C(0.0)),
    }


def test_a_kernel_is_shared_by_outputs_that_are_the_latents():
    have = {name: prior.shared_kernel for name, prior in priors().items()}
    assert {name for name, kernel in have.items() if kernel is not None} == {"gp", "shared"}
    assert isinstance(have["shared"], SE)


def test_only_the_view_has_numbers_of_outputs_in_its_inputs():
    assert {name for name, prior in priors().items() if prior.indexes_outputs} == {"view"}


def test_groups_of_outputs_are_functionals_of_one_function():
    sizes = {name: prior.group_size for name, prior in priors().items() if prior.group_size != 1}
    assert sizes == {"responses": 2, "gradient": 2, "values": 3, "hessian": 4}


def test_mean_functions_belong_to_outputs_or_to_latents():
    numbers = {name: tuple(number for number, _ in prior.mean_functions()) for name, prior in priors().items()}
    assert numbers == {
        **dict.fromkeys(["gp", "matrix", "gradient", "values", "hessian", "delayed"], (None,)),
        **dict.fromkeys(["shared", "convolution", "responses", "weighted", "lmc"], (None, 0)),
        **dict.fromkeys(["view", "icm"], (None,)),  # latents without a mean
        "separate": (None, 0, 1),
    }
    identity = ig.priors.LMC([[1.0]], [ig.GP(SE(), ig.means.Identity())])  # it has no parameters, but is a mean
    assert [number for number, _ in identity.mean_functions()] == [None, 0]
    lmc = priors()["lmc"]
    assert lmc.mean_functions()[0][1] is lmc.mean_function
    assert lmc.mean_functions()[1][1] is lmc.latents.latents[0].mean_function
    view = priors()["view"]
    assert view.mean_functions()[0][1] is view.prior.mean_function


def test_latents_see_the_inputs_patches_of_them_or_rows():
    p, X = priors(), np.array([[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]], np.float32)
    for name in ("gp", "shared", "separate", "lmc", "icm", "convolution", "gradient", "values", "hessian", "delayed"):
        seen = p[name].latent_inputs(jnp.asarray(X))
        assert isinstance(seen, np.ndarray) and seen.dtype == float
        np.testing.assert_array_equal(seen, X)
    for name in ("responses", "weighted"):
        patches = np.concatenate([X[:1, :2], X[:1, 1:], X[1:, :2], X[1:, 1:]])
        np.testing.assert_array_equal(p[name].latent_inputs(X), patches)
    np.testing.assert_array_equal(p["matrix"].latent_inputs(X[:, :1]), [[X[0, 0], 0], [X[0, 0], 1], [1, 0], [1, 1]])
    np.testing.assert_array_equal(p["view"].latent_inputs(X), X[:, :2])
    twice = ig.priors.as_input(p["responses"])
    assert twice.latent_inputs(np.zeros((5, 4))).shape == (10, 2)


def test_patches_of_a_few_hundred_images_are_enough():
    images = np.arange(3000.0).reshape(1000, 3)
    seen = priors()["responses"].latent_inputs(images)
    assert seen.shape == (500, 2)  # every fourth image, two patches each
    np.testing.assert_array_equal(seen[::2, 0], images[::4, 0])


def categories(num):
    kernel = ig.kernels.ActiveDims(SE(), (0,))
    return kernel * ig.kernels.ActiveDims(ig.kernels.Coregion(np.ones((num, 1)), np.ones(num)), (1,))


@pytest.mark.parametrize(
    "prior",
    [
        ig.GP(categories(3)),
        ig.priors.Independent(categories(3), 2),
        ig.priors.Independent([SE(), categories(3)]),
        ig.priors.LMC([[1.0], [2.0]], categories(3)),
        Delayed(ig.GP(categories(3)), jnp.zeros(2), C(0.0)),
    ],
)
def test_kernels_judge_the_inputs(prior):
    good, bad = np.array([[0.5, 0.0], [0.7, 2.0]]), np.array([[0.5, 0.0], [0.7, 3.0]])
    prior.check_inputs(good)
    prior.check_inputs(jnp.asarray(good))
    with pytest.raises(ValueError, match="from 0 to 2, got 3"):
        prior.check_inputs(bad)
    jax.jit(lambda X: prior.check_inputs(X))(bad)  # values under jit are not seen
    view = ig.priors.as_input(prior)
    view.check_inputs(np.insert(good, 2, 0.0, axis=1))
    with pytest.raises(ValueError, match="from 0 to 2, got 3"):
        view.check_inputs(np.insert(bad, 2, 0.0, axis=1))
    jax.jit(lambda X: view.check_inputs(X))(np.insert(bad, 2, 0.0, axis=1))


def test_the_view_judges_numbers_of_outputs():
    view = priors()["view"]
    view.check_inputs(np.array([[0.5, 0.0], [0.5, 1.0]]))
    for wrong in (2.0, -1.0, 0.5):
        with pytest.raises(ValueError, match=f"last column of the inputs holds {wrong}"):
            view.check_inputs(np.array([[0.5, wrong]]))
    with pytest.raises(ValueError, match="got one column"):
        jax.jit(lambda X: view.check_inputs(X))(np.zeros((3, 1)))


def test_the_matrix_valued_prior_judges_rows():
    few = ig.priors.MatrixValued(categories(2), 3)
    with pytest.raises(ValueError, match="from 0 to 1, got 2"):
        few.check_inputs(np.zeros((1, 1)))
    ig.priors.MatrixValued(categories(3), 3).check_inputs(np.zeros((1, 1)))


def test_all_priors_take_valid_inputs():
    for name, prior in priors().items():
        D = {"responses": 3, "weighted": 3, "matrix": 1}.get(name, 2)
        prior.check_inputs(np.zeros((4, D)))


def labels(P, N=40):
    """Labels centre ± spread in turn, with their centres and variances."""
    centre, spread = np.array([1.0, 5.0, 9.0])[:P], np.array([2.0, 4.0, 6.0])[:P]
    return np.where(np.arange(N)[:, None] % 2, centre + spread, centre - spread), centre, spread**2


def values(starts):
    return {id(start.leaf): np.asarray(start.value) for start in starts}


@pytest.mark.parametrize("kernel", [SE(variance=2.0), SE(variance=2.0) * 1.0])
def test_start_of_one_output(kernel):
    y, centre, variance = labels(1)
    prior = ig.GP(kernel, 0.5)
    new = values(prior.start(Said(), np.zeros((40, 1)), y))
    assert new[id(Said.noise)] == variance[0] / 10
    assert new[id(prior.mean_function.value)] == centre[0]
    ((leaf, power),) = kernel.amplitude()
    assert power == 1.0
    np.testing.assert_allclose(new[id(leaf)] / leaf, variance[0] / 2.0)


def test_start_of_separate_outputs():
    y, centre, variance = labels(2)
    prior = ig.priors.Independent([ig.GP(SE(variance=2.0), 1.0), ig.GP(Matern(variance=0.5), 1.0)], mean=C([0.0, 0.0]))
    new = values(prior.start(Said(), np.zeros((40, 1)), y))
    np.testing.assert_array_equal(new[id(prior.mean_function.value)], centre)
    for gp, c, v in zip(prior.latents, centre, variance, strict=True):
        np.testing.assert_allclose(new[id(gp.kernel.variance)], v)
        assert new[id(gp.mean_function.value)] == c


def test_start_of_outputs_that_share_a_kernel():
    y, centre, variance = labels(2)
    prior = ig.priors.Independent(ig.GP(SE(variance=2.0), 1.0), 2, mean=C([0.0, 0.0]))
    new = values(prior.start(Said(), np.zeros((40, 1)), y))
    np.testing.assert_array_equal(new[id(prior.mean_function.value)], centre)
    np.testing.assert_allclose(new[id(prior.latents[0].kernel.variance)], variance.mean())
    assert id(prior.latents[0].mean_function.value) not in new


def test_start_of_a_mixture():
    y, centre, variance = labels(2)
    prior = priors()["lmc"]  # prior variances 1 and 9 + 16
    new = values(prior.start(Said(), np.zeros((40, 1)), y))
    np.testing.assert_array_equal(new[id(prior.mean_function.value)], centre)
    for kernel in prior.kernels:
        np.testing.assert_allclose(new[id(kernel.variance)], variance.mean() / 13.0)
    assert id(prior.latents.latents[0].mean_function.value) not in new


@pytest.mark.parametrize("with_values", [True, False])
def test_start_of_derivatives(with_values):
    y, centre, variance = labels(2 + with_values)
    prior = ig.priors.Derivative(ig.GP(SE(lengthscale=0.5), 1.0), 2, values=with_values)
    new = values(prior.start(Said(), np.zeros((40, 2)), y))
    present = np.array([1.0, 4.0, 4.0])[-len(variance) :].mean()
    np.testing.assert_allclose(new[id(prior.kernels[0].variance)], variance.mean() / present)
    level = id(prior.prior.mean_function.value)
    assert new[level] == centre[0] if with_values else level not in new


def test_start_of_rows():
    """Labels of output 1 and 2 in turn; output 0 has none and counts with their mean variance."""
    y, centre, variance = labels(3, 400)
    p = 1 + np.arange(400) // 2 % 2
    rows = np.stack([np.zeros(400), p], axis=1)
    inner = ig.priors.Independent([ig.GP(SE(), 7.0) for _ in range(3)])
    new = values(ig.priors.as_input(inner).start(Said(), rows, y[np.arange(400), p][:, None]))
    expected = np.array([(variance[1] + variance[2]) / 2, variance[1], variance[2]])
    for number, gp in enumerate(inner.latents):
        np.testing.assert_allclose(new[id(gp.kernel.variance)], expected[number])
        level = id(gp.mean_function.value)
        assert level not in new if number == 0 else new[level] == centre[number]
    np.testing.assert_allclose(new[id(Said.noise)], expected[1:].mean() / 10)


def test_start_of_a_view_above_other_layers_scales_all_kernels():
    """Typical inputs do not say which output a label belongs to."""
    y, _, variance = labels(1)
    view = ig.priors.as_input(ig.priors.LMC([[2.0], [1.0]], SE(), mean=C([0.0, 0.0])))
    new = values(view.start(Said(), np.zeros((1, 2)), y))
    np.testing.assert_allclose(new[id(view.kernels[0].variance)], variance[0] / 4.0)
    assert id(view.prior.mean_function.value) not in new


def test_start_of_a_user_prior():
    y, centre, variance = labels(2)
    prior = Delayed(ig.GP(SE(variance=3.0)), jnp.array([0.0, 1.0]), C(0.0))
    new = values(prior.start(Said(), np.zeros((40, 1)), y))
    assert new[id(prior.level.value)] == centre.mean()
    np.testing.assert_allclose(new[id(prior.latent.kernel.variance)], variance.mean())


def test_nothing_is_set_where_labels_say_nothing():
    class Silent:
        def start(self, y):
            return LatentStart(np.full(2, np.nan), np.array([1.0, np.nan]), [])

    prior = ig.priors.Independent([ig.GP(SE(), 1.0), ig.GP(SE(), 1.0)], mean=C(0.0))
    (only,) = prior.start(Silent(), np.zeros((3, 1)), np.zeros((3, 2)))
    assert only.leaf is prior.latents[0].kernel.variance
    assert ig.priors.LMC(np.eye(2), SE()).start(Silent(), np.zeros((3, 1)), np.zeros((3, 2))) == []


@pytest.mark.parametrize(("variance", "far"), [(1e-7, True), (1e-5, False), (1e5, False), (1e8, True)])
def test_an_amplitude_in_other_units_is_far(variance, far):
    y, *_ = labels(1)
    (_, amplitude) = ig.GP(SE(variance=variance)).start(Said(), np.zeros((3, 1)), y)
    assert amplitude.far is far


class Gaussian(ig.kernels.AbstractPointKernel):
    """A user's squared exponential, which answers how it is smoothed by handing on to ours."""

    own: ig.kernels.SquaredExponential

    def __call__(self, x, y):
        return self.own(x, y)

    def smoothed(self, variance):
        return self.own.smoothed(variance)

    def smoothed_features(self, key, num, dim):
        return self.own.smoothed_features(key, num, dim)


def test_a_user_kernel_is_smoothed_in_closed_form():
    """In four dimensions, where there is no quadrature."""
    X, Z = np.linspace(-1.0, 1.0, 12).reshape(3, 4), ig.features.InducingPoints(np.eye(4))
    smoothing = ig.priors.GaussianSmoothing([[0.5], [1.0]], [[1.0], [-2.0]])
    ours, users = (ig.priors.ConvolutionProcess(smoothing, k) for k in (SE(0.7), Gaussian(SE(0.7))))
    np.testing.assert_array_equal(users.Kff(jnp.asarray(X)), ours.Kff(jnp.asarray(X)))
    np.testing.assert_array_equal(users.Kuf(Z, jnp.asarray(X)), ours.Kuf(Z, jnp.asarray(X)))
    key = jax.random.key(0)
    np.testing.assert_array_equal(*(p.draw_latents(key, 11, 4)[1](jnp.asarray(X)) for p in (users, ours)))


@pytest.mark.parametrize("kernel", [SE(0.6), Matern(0.6)])
def test_a_draw_is_averaged_over_gaussian_shifts(kernel):
    """ψ(x) = φ(x)·(d(v) ⊙ w) against the integral ∫ N(t | 0, v) φ(x − t)·w dt on a grid."""
    phi, damping = kernel.smoothed_features(jax.random.key(0), 20, 1)
    w = jax.random.normal(jax.random.key(1), (20,))
    v, t = 0.3, jnp.linspace(-6.0, 6.0, 2001)
    density = jnp.exp(-0.5 * t**2 / v) / jnp.sqrt(2.0 * jnp.pi * v)
    expected = jnp.sum(density * (phi((0.4 - t)[:, None]) @ w)) * (t[1] - t[0])
    got = phi(jnp.array([[0.4]])) @ (w * damping(jnp.array([v])))
    np.testing.assert_allclose(got[0], expected, rtol=1e-10)


def test_a_kernel_without_smoothed_features_says_what_to_implement():
    with pytest.raises(TypeError, match=r"Linear cannot be smoothed.*implement smoothed_features"):
        ig.kernels.Linear().smoothed_features(jax.random.key(0), 4, 1)


def test_the_kernel_of_rows():
    prior = ig.priors.LMC([[1.0], [2.0]], SE())
    kernel, rows = ig.priors.as_input(prior).kernel, np.array([[0.3, 0.0], [0.3, 1.0]])
    np.testing.assert_allclose(kernel.gram(rows), [[1.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(kernel.diag(rows), [1.0, 4.0])
    with pytest.raises(ValueError, match="holds 2"):
        kernel.gram(rows, rows + np.array([0.0, 1.0]))
    with pytest.raises(TypeError, match="no random features"):
        kernel.random_features(jax.random.key(0), 4, 2)


def test_rows_smooth_in_x_are_as_smooth_as_their_kernel_without_categories():
    assert priors()["matrix"].smoothness == np.inf
    rough = ig.kernels.ActiveDims(ig.kernels.Matern32(), (0,))
    mixed = rough * ig.kernels.ActiveDims(ig.kernels.Coregion([[1.0]] * 2, [1.0] * 2), (1,))
    assert ig.priors.MatrixValued(mixed, 2).smoothness == 1
