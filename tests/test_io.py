"""Models on disk."""

import copy
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig


def model(M=4, likelihood=None):
    X = np.linspace(-1.0, 1.0, 12)[:, None]
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((12, 1))))
    return ig.deep_gp(X, likelihood or ig.likelihoods.Gaussian(0.1), num_layers=2, num_inducing=M, latent=latent)


def test_a_model_comes_back_as_it_was(tmp_path):
    saved = jax.tree.map(lambda a: a + 0.125 if isinstance(a, jax.Array) else a, model())
    ig.save(tmp_path / "model.npz", saved)
    again = ig.load(tmp_path / "model.npz", model())
    assert jax.tree.structure(again) == jax.tree.structure(saved)
    for got, expected in zip(jax.tree.leaves(again), jax.tree.leaves(saved), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    with np.load(tmp_path / "model.npz") as file:  # anyone can read it
        np.testing.assert_array_equal(file[".likelihood.variance"], saved.likelihood.variance)


def test_float32_stays_float32(tmp_path):
    kernel = ig.kernels.Matern52(jnp.asarray(2.0, jnp.float32), jnp.asarray(1.0, jnp.float32))
    ig.save(tmp_path / "k", kernel)
    assert ig.load(tmp_path / "k", kernel).lengthscale.dtype == jnp.float32


def test_float64_is_not_read_as_float32(tmp_path):
    ig.save(tmp_path / "model", model())
    ig.save(tmp_path / "kernel", ig.kernels.Matern52(2.0))
    with jax.enable_x64(False):
        for name, like in (("model", model()), ("kernel", ig.kernels.Matern52())):
            with pytest.raises(ValueError, match=f"{name} holds a model in float64, but JAX computes in float32; call"):
                ig.load(tmp_path / name, like)


def test_damaged_archives_are_refused(tmp_path):
    ig.save(tmp_path / "kernel", ig.kernels.Matern52())
    whole = (tmp_path / "kernel").read_bytes()
    flags = whole.index(b"PK\x01\x02") + 8  # of the first entry in the directory: encrypted, or as yet unknown
    for place, bit in ((29, 8), (flags, 1), (flags, 64)):  # 29: where the first array begins
        damaged = bytearray(whole)
        damaged[place] ^= bit
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged is no file of"):
            ig.load(tmp_path / "damaged", ig.kernels.Matern52())


def test_what_is_tied_comes_back_tied(tmp_path):
    part = ig.kernels.Matern52(2.0)
    ig.save(tmp_path / "k", part + part)
    fresh = ig.kernels.Matern52()
    again = ig.load(tmp_path / "k", fresh + fresh)
    assert again.kernels[0].lengthscale is again.kernels[1].lengthscale and float(again.kernels[0].lengthscale) == 2.0
    assert ig.summary(again).num_trained == 2
    ig.save(tmp_path / "k", ig.kernels.Matern52(2.0) + ig.kernels.Matern52(3.0))
    with pytest.raises(ValueError, match=r"kernels\[1\].lengthscale and .*\[0\].lengthscale are tied in `like`"):
        ig.load(tmp_path / "k", fresh + fresh)


@pytest.mark.parametrize("form", ["coupled", "diagonal", "full"])
def test_roots_of_other_forms_come_back(tmp_path, form):
    def built(root=None):
        prior = ig.priors.LMC([[1.0, 0.3], [2.0, -0.5]], [ig.kernels.Matern52(0.5), ig.kernels.Matern52()])
        gp = ig.SparseGP(prior, ig.features.InducingPoints(np.linspace(-1.0, 1.0, 3)[:, None]), root=root)
        return ig.Model(gp, ig.likelihoods.Gaussian(0.1))

    diagonal = built(np.arange(1.0, 7.0).reshape(2, 3))
    model, like = {
        "coupled": lambda: (ig.collapse(built(), (np.zeros((1, 1)), np.ones((1, 2)))), built()),
        "diagonal": lambda: (diagonal, built()),
        "full": lambda: (built(), diagonal),
    }[form]()
    ig.save(tmp_path / "model", model)
    again = ig.load(tmp_path / "model", like).layers[0].root
    np.testing.assert_array_equal(again, model.layers[0].root)


@pytest.mark.parametrize("again", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_pickles_and_copies_hold_the_same_functions(again):
    prior = ig.priors.Independent(ig.kernels.Warped(ig.kernels.Matern52(), jax.nn.relu), num=2)
    latent = ig.LatentVariable(1, ig.layers.Amortised.mlp(jax.random.key(1), dim=1, x=1, y=1))
    gp = ig.SparseGP(prior, ig.features.InducingPoints([[0.0], [1.0]]))
    layers = [latent, ig.Deterministic(jnp.tanh), gp]
    one = ig.Model(layers, ig.likelihoods.HeteroscedasticGaussian())
    other = again(one)
    assert other.likelihood.link.exponential  # or closed forms would be lost
    assert jax.tree.structure(other) == jax.tree.structure(one)
    for got, expected in zip(jax.tree.leaves(other), jax.tree.leaves(one), strict=True):
        assert np.array_equal(got, expected) if eqx.is_array(expected) else got is expected


def test_files_that_do_not_fit_are_refused(tmp_path):
    ig.save(tmp_path / "model.npz", model())
    with pytest.raises(ValueError, match=r"layers\[1\].features.Z has shape \[4, 2\] .* and \[5, 2\]"):
        ig.load(tmp_path / "model.npz", model(5))
    with pytest.raises(ValueError, match=r"it lacks .likelihood.scale; it has .likelihood.variance"):
        ig.load(tmp_path / "model.npz", model(likelihood=ig.likelihoods.Laplace(0.1)))
    ig.save(tmp_path / "kernel", ig.kernels.Matern52(2.0))
    with pytest.raises(ValueError, match=r"the whole is Matern52\(\) .* and Matern32\(\) in `like`"):
        ig.load(tmp_path / "kernel", ig.kernels.Matern32())
    gp, points = ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]])
    ig.save(tmp_path / "gp", ig.SparseGP(gp, points))
    with pytest.raises(ValueError, match=r"coordinates='w'.* in .* and .*coordinates='u'.* in `like`"):
        ig.load(tmp_path / "gp", ig.SparseGP(gp, points, coordinates="u"))
    ig.save(tmp_path / "box", ig.features.EigenLaplacian(((-1.0, 1.0),), 4))
    with pytest.raises(ValueError, match=r"box=\(\(-1.0, 1.0\),\).* in .* and .*box=\(\(-2.0, 2.0\),\).* in `like`"):
        ig.load(tmp_path / "box", ig.features.EigenLaplacian(((-2.0, 2.0),), 4))
    ig.save(tmp_path / "warp", ig.kernels.Warped(ig.kernels.Matern52(), jnp.tanh))
    with pytest.raises(ValueError, match=r".function is tanh in .* and sin in `like`"):
        ig.load(tmp_path / "warp", ig.kernels.Warped(ig.kernels.Matern52(), jnp.sin))
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    np.savez(tmp_path / "later.npz", format=np.asarray("inducing-2"))
    np.save(tmp_path / "array.npy", np.ones(3))
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "empty.npz").write_text("")
    for name in ("other.npz", "later.npz", "array.npy", "text.npz", "empty.npz"):
        with pytest.raises(ValueError, match="is no file of"):
            ig.load(tmp_path / name, model())
    with pytest.raises(TypeError, match=r"like must be a model, .* got tuple; of a fit, pass result.model"):
        ig.load(tmp_path / "model.npz", (model(), "and a message"))
    with pytest.raises(FileNotFoundError):
        ig.load(tmp_path / "nowhere.npz", model())


class _Bent(eqx.Module):
    slope: jax.Array
    power: float = 1.0

    def __call__(self, x):
        return self.slope * x[0] ** self.power


def test_numbers_of_a_users_module_are_compared(tmp_path):
    ig.save(tmp_path / "bent.npz", ig.means.Function(_Bent(jnp.ones(()), 2.0)))
    with pytest.raises(ValueError, match=r"power=2\.0"):
        ig.load(tmp_path / "bent.npz", ig.means.Function(_Bent(jnp.ones(()), 3.0)))
