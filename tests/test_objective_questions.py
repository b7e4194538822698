"""What objectives say about themselves, through partials and in classes of users."""

import copy
import inspect
import pickle
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.bounds.objective import Target, unwrapped

from .bounds import DATA, KEY, NOISE, N, X, Y, gp, latent_gp


def regression():
    return ig.Model(gp(), ig.likelihoods.Gaussian(NOISE))


def asked(question, fn, model):
    """The answer of an objective, inside any number of partials, to a question about a model."""
    objective, options = unwrapped(fn)
    return getattr(objective, question)(model, options)


ORDINARY = [
    ig.elbo,
    partial(ig.elbo, beta=1.0),
    partial(ig.elbo, beta=np.float64(1.0), integrate=True),
    partial(partial(ig.elbo, samples=3), importance=2, beta=1),
    partial(ig.elbo, key=KEY),
]
OTHERS = [
    partial(ig.elbo, beta=0.5),
    partial(ig.elbo, beta=jnp.ones(())),
    partial(ig.elbo, integrate=False),
    partial(ig.elbo, num_data=7),
    partial(partial(ig.elbo, samples=3), beta=0.5),
    ig.iw_elbo_global,
    lambda model, data: ig.elbo(model, data),
]


@pytest.mark.parametrize("objective", ORDINARY)
def test_options_that_change_nothing_leave_the_optimum(objective):
    model = regression()
    optimum = asked("optimum", objective, model)
    assert optimum == asked("optimum", ig.elbo, model) and optimum.bound is ig.collapsed_elbo
    best = optimum.attain(model, DATA)
    bound, best_bound = eqx.filter_jit(ig.elbo)(best, DATA), eqx.filter_jit(ig.collapsed_elbo)(model, DATA)
    np.testing.assert_allclose(bound, best_bound, rtol=1e-9)


@pytest.mark.parametrize("objective", OTHERS)
def test_other_objectives_have_no_optimum(objective):
    assert asked("optimum", objective, regression()) is None


def test_other_models_have_no_optimum():
    assert asked("optimum", ig.elbo, latent_gp()) is None
    assert asked("optimum", ig.elbo, ig.Model(gp(), ig.likelihoods.Bernoulli())) is None


@pytest.mark.parametrize("objective", [ig.collapsed_elbo, ig.log_evidence])
def test_objectives_at_the_optimum_ignore_q(objective):
    model, target = regression(), Target(objective)
    assert asked("optimum", objective, model).bound is objective
    assert asked("optimum", partial(objective), model).bound is objective
    assert not target.takes_key and not target.takes_num_data and not asked("is_noisy", objective, model)


def test_noise_and_minibatches():
    shallow, deep = regression(), latent_gp()
    elbo = Target(ig.elbo)
    assert elbo.takes_key and elbo.takes_num_data
    assert asked("is_quadratic", ig.elbo, shallow) and not asked("is_quadratic", ig.elbo, deep)
    assert asked("is_noisy", ig.elbo, deep) and not asked("is_noisy", ig.elbo, shallow)
    assert asked("is_noisy", partial(ig.elbo, integrate=False), shallow)
    assert not Target(partial(ig.elbo, key=KEY)).takes_key
    assert asked("is_noisy", ig.iw_elbo_global, shallow) and not Target(ig.iw_elbo_global).takes_num_data


def test_a_plain_function_says_what_is_in_its_signature():
    model = regression()

    def noisy(model, data, key):
        return ig.elbo(model, data)

    def scaled(factor, model, data, num_data):
        return factor * ig.elbo(model, data, num_data=num_data)

    assert asked("is_noisy", noisy, model) and Target(noisy).takes_key and not Target(noisy).takes_num_data
    target = Target(partial(scaled, 2.0))
    assert target.takes_num_data and not target.takes_key and not asked("is_quadratic", partial(scaled, 2.0), model)
    np.testing.assert_allclose(target(model, DATA, None, N), 2.0 * ig.elbo(model, DATA))
    with pytest.raises(ValueError, match="must be one number, got shape"):
        Target(lambda model, data: data.x)(model, DATA, None, N)


class Average(ig.bounds.AbstractObjective):
    """The bound per datum, which knows that it takes minibatches and how noisy it is."""

    takes_minibatches = True

    def __call__(self, model, data, *, key=None, num_data=None, beta=1.0):
        return ig.elbo.evaluate(model, data, key=key, num_data=num_data, beta=beta) / (num_data or len(data))

    def is_noisy(self, model, options):
        return model.is_stochastic

    def optimum(self, model, options):
        found = ig.elbo.optimum(model, options)
        return None if found is None else found._replace(collapsed=False, bound=Evidence())


class Evidence(ig.bounds.AbstractObjective):
    def __call__(self, model, data):
        return ig.log_evidence.evaluate(model, data)


def test_a_class_of_a_user_answers_for_itself():
    model, average = regression(), Average()
    objective = partial(average, beta=1.0)
    target = Target(objective)
    assert target.takes_key and target.takes_num_data
    assert not asked("is_noisy", objective, model) and asked("is_noisy", objective, latent_gp())
    assert isinstance(asked("optimum", objective, model).bound, Evidence)
    assert asked("optimum", partial(average, beta=0.5), model) is None
    np.testing.assert_allclose(target(model, DATA, KEY, N), ig.elbo(model, DATA) / N)
    unknown = Target(Evidence())
    assert not unknown.takes_key and not unknown.takes_num_data and asked("optimum", Evidence(), model) is None
    result = ig.fit(model, DATA, objective=average, method="natgrad", steps=2, progress=False)
    assert result.bound > ig.elbo(model, DATA) / N


def test_equal_partials_are_one_target():
    first, second = (Target(partial(ig.elbo, beta=0.5)) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    assert Target(partial(ig.elbo, beta=1)).fn is not Target(partial(ig.elbo, beta=1.0)).fn
    held = partial(ig.elbo, beta=jnp.ones(()))  # has no hash
    assert Target(held).fn is held
    assert unwrapped(partial(partial(ig.elbo, beta=0.5), beta=0.7))[1] == {"beta": 0.7}


def test_objectives_look_like_functions():
    assert list(inspect.signature(ig.elbo).parameters)[:4] == ["model", "data", "key", "samples"]
    assert ig.elbo.__name__ == "elbo" and ig.elbo.__doc__.startswith("The lower bound")
    assert repr(ig.log_evidence).startswith("<objective log_evidence(model")
    for objective in (ig.elbo, ig.collapsed_elbo, ig.log_evidence, ig.iw_elbo_global, ig.gplvm_elbo):
        assert pickle.loads(pickle.dumps(objective)) is objective and copy.deepcopy(objective) is objective


class Forwarding(ig.layers.AbstractLayer):
    """A layer of a user that holds a sparse GP and is one."""

    inner: ig.SparseGP
    random = True
    terminal = True

    def as_sparse_gp(self):
        return self.inner

    def propagate(self, x, key, data, replicates):
        return self.inner.propagate(x, key, data, replicates)

    def cache(self):
        return self.inner.cache()

    def moments(self, x, correlated=False, cache=None):
        return self.inner.moments(x, correlated, cache)

    def joint(self, X, cache=None):
        return self.inner.joint(X, cache)

    def kl(self):
        return self.inner.kl()

    def draw(self, key, num, dim):
        return self.inner.draw(key, num, dim)

    def width(self, inputs):
        return self.inner.width(inputs)


def test_a_layer_that_is_a_sparse_gp_has_the_collapsed_bound():
    model = ig.Model(Forwarding(gp()), ig.likelihoods.Gaussian(NOISE))
    bound = ig.collapsed_elbo(model, DATA)
    np.testing.assert_allclose(bound, ig.collapsed_elbo(regression(), DATA), rtol=1e-12)
    best = eqx.filter_jit(ig.collapse)(model, DATA)
    assert isinstance(best.layers[0], Forwarding)
    np.testing.assert_allclose(ig.elbo(best, DATA), bound, rtol=1e-9)


def test_sums_over_data_have_symmetric_derivatives():
    """Each order of summing and whitening is right by itself, before anything else is done with its result."""
    from inducing.bounds.conjugate import Conjugate
    from inducing.bounds.sums import whitened_first, whitened_last

    model = ig.Model(
        ig.SparseGP(
            ig.priors.LMC(np.array([[1.0, 0.5], [0.3, -1.0]]), [ig.kernels.Matern52(0.7), ig.kernels.Matern32(0.9)]),
            gp().features,
        ),
        ig.likelihoods.Gaussian([0.2, 0.3]),
    )
    data = ig.Data(X, np.concatenate([Y, -Y], axis=1))
    for case, rows in ((regression(), DATA), (model, data)):
        for order in (whitened_first, whitened_last):

            @jax.jit
            def psi(scale, case=case, rows=rows, order=order):
                Z = case.layers[0].features.Z
                moved = eqx.tree_at(lambda m: m.layers[0].features.Z, case, scale * Z)
                conjugate = Conjugate(moved)
                return order(conjugate, rows, conjugate.layer.Kuu()).Psi

            one = jnp.ones(())
            _, slope = jax.jvp(psi, (one,), (one,))
            h = 1e-6
            np.testing.assert_allclose(slope, np.swapaxes(slope, 1, 2), atol=1e-10)
            np.testing.assert_allclose(slope, (psi(one + h) - psi(one - h)) / (2 * h), rtol=1e-4, atol=1e-5)
