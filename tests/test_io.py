"""Model files: what is saved comes back, damage is reported, and writing is atomic."""

import copy
import functools
import json
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save as safetensors

import inducing as ig
from inducing.io import container
from inducing.io.structure import Writer
from inducing.parameters import positive

from .features.cases import CASES as FEATURES
from .likelihoods.cases import CASES as LIKELIHOODS
from .priors.cases import BUILDERS, INTERDOMAIN

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "tests" / "files"


class OwnKernel(ig.kernels.AbstractPointKernel):
    """A user's kernel."""

    variance: jax.Array = positive(1.0)

    def __call__(self, x, y):
        return self.variance * jnp.minimum(x, y).sum()


def wave(x):
    """A user's function."""
    return jnp.sin(x)


def deep_model(M=4):
    X = np.linspace(-1.0, 1.0, 12)[:, None]
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((12, 1))))
    return ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_layers=2, num_inducing=M, latent=latent)


def round_trip(folder, part, **options):
    ig.save(folder / "part.ig", part)
    return ig.load(folder / "part.ig", **options)


def assert_same(got, expected):
    """Structure, dtypes and every bit."""
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert type(a) is type(b)
        if eqx.is_array(a):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_array_equal(a, b)


def test_a_model_comes_back_as_it_was(tmp_path):
    saved = jax.tree.map(lambda a: 1.125 * a if isinstance(a, jax.Array) else a, deep_model())
    assert_same(round_trip(tmp_path, saved), saved)


@pytest.mark.parametrize("name", FEATURES)
def test_features_and_kernels_come_back(tmp_path, name):
    features, kernel, _ = FEATURES[name]
    if name == "integral":
        with pytest.raises(TypeError, match="lambda or a function that captures variables"):
            ig.save(tmp_path / "part.ig", features)
        return
    for part in (features, kernel):
        assert_same(round_trip(tmp_path, part), part)


@pytest.mark.parametrize("build", [*BUILDERS, *INTERDOMAIN], ids=lambda build: build.__name__)
def test_priors_come_back_in_a_model(tmp_path, build):
    case = build()
    gp = ig.SparseGP(case.prior, case.features)
    assert_same(round_trip(tmp_path, gp), gp)
    rows = ig.priors.as_input(case.prior)
    assert_same(round_trip(tmp_path, rows), rows)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods_come_back(tmp_path, name):
    likelihood = LIKELIHOODS[name].likelihood
    known = ig.likelihoods.Gaussian(ig.likelihoods.PerDatum([0.1, 0.2], new=0.0))
    both = ig.likelihoods.PerOutput([likelihood, known, ig.likelihoods.HeteroscedasticGaussian()])
    assert_same(round_trip(tmp_path, both), both)


@pytest.mark.parametrize(
    "likelihood",
    [
        ig.likelihoods.StudentT(df=5.0, scale=[1.0, 2.0]),
        ig.likelihoods.StudentT(df=[3.0, 5.0], scale=1.0),
        ig.likelihoods.ZeroInflatedNegativeBinomial(concentration=1.5, zero_probability=[0.2, 0.3, 0.4]),
    ],
)
def test_one_parameter_for_all_outputs_beside_one_for_each_comes_back(tmp_path, likelihood):
    assert_same(round_trip(tmp_path, likelihood), likelihood)


def test_networks_and_known_functions_come_back(tmp_path):
    network = eqx.nn.MLP(2, 3, 4, 2, activation=jax.nn.softplus, key=jax.random.key(0))
    for part in (
        ig.Deterministic(network),
        ig.Deterministic(jnp.tanh),
        ig.kernels.Warped(ig.kernels.Matern52(), network),
        ig.Skip([ig.Deterministic(jax.nn.relu), ig.BayesianDense(2, 1, full=True)]),
        ig.layers.Amortised.mlp(jax.random.key(0), dim=2, y=3),
    ):
        assert_same(round_trip(tmp_path, part), part)


def test_settings_of_every_kind_come_back(tmp_path):
    class Settings(ig.Module):
        value: object = eqx.field(static=True)

    class Holder(ig.Module):
        key: jax.Array
        half: jax.Array
        rows: np.ndarray
        missing: object
        function: object

    values = (1, 1.0, True, None, "é", float("nan"), -0.0, float("inf"), 2**80, (1, [2.0, ("x",)]), {"a": (1,)})
    again = round_trip(tmp_path, Settings(values), parts=[Settings]).value
    assert repr(again) == repr(values)
    assert [type(v) for v in again] == [type(v) for v in values]
    half = jnp.asarray([1.5, -2.0], jnp.bfloat16)
    holder = Holder(jax.random.key(3), half, np.arange(3), None, jax.tree_util.Partial(jnp.add, jnp.ones(2)))
    with pytest.raises(TypeError, match="function is a lambda"):
        ig.save(tmp_path / "part.ig", eqx.tree_at(lambda h: h.function, holder, lambda x: x))
    holder = eqx.tree_at(lambda h: h.function, holder, jax.tree_util.Partial(wave))
    got = round_trip(tmp_path, holder, parts=[Holder, wave])
    assert (jax.random.key_data(got.key) == jax.random.key_data(holder.key)).all()
    assert got.half.dtype == jnp.bfloat16 and (got.half == half).all()
    assert isinstance(got.rows, np.ndarray) and got.missing is None
    assert got.function.func is wave


def test_numbers_of_numpy_and_values_whose_places_read_the_same_come_back(tmp_path):
    class Holder(ig.Module):
        numbers: object
        arrays: object
        function: object

    def scaled(a, b, x):
        return a * b * x

    numbers = (np.float32(0.1), np.int64(3), np.bool_(True), np.str_("w"))
    bound = functools.partial(functools.partial(scaled), jnp.ones(2))
    holder = Holder(
        numbers,
        {"a.b": jnp.ones(1), "a": {"b": jnp.zeros(1)}},
        jax.tree_util.Partial(bound, 2.0 * jnp.ones(2)),
    )
    got = round_trip(tmp_path, holder, parts=[Holder, scaled])
    assert got.numbers == numbers and [type(v) for v in got.numbers] == [np.float32, np.int64, np.bool_, str]
    assert_same(got.arrays, holder.arrays)
    np.testing.assert_array_equal(got.function(3.0), [6.0, 6.0])


def test_what_is_tied_comes_back_tied(tmp_path):
    part = ig.kernels.Matern52(2.0)
    again = round_trip(tmp_path, part + part)
    assert again.kernels[0].lengthscale is again.kernels[1].lengthscale
    assert ig.summary(again).num_trained == 2
    again = round_trip(tmp_path, ig.kernels.Matern52(2.0) + ig.kernels.Matern52(2.0))
    assert again.kernels[0].lengthscale is not again.kernels[1].lengthscale


def test_float32_stays_float32_and_float64_is_not_read_as_float32(tmp_path):
    kernel = ig.kernels.Matern52(jnp.asarray(2.0, jnp.float32), jnp.asarray(1.0, jnp.float32))
    assert round_trip(tmp_path, kernel).lengthscale.dtype == jnp.float32
    ig.save(tmp_path / "k.ig", ig.kernels.Matern52(2.0))
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"k\.ig.*float64, but JAX computes in 32 bits; call"):
        ig.load(tmp_path / "k.ig")


def test_users_classes_and_functions_are_passed_by_the_caller(tmp_path):
    gp = ig.SparseGP(ig.GP(OwnKernel(2.0)), ig.features.InducingPoints([[1.0], [2.0]]))
    model = ig.Model([ig.Deterministic(wave), gp], ig.likelihoods.Gaussian(0.1))
    assert_same(round_trip(tmp_path, model, parts=[OwnKernel, wave]), model)
    with pytest.raises(ValueError, match=r"function.*is a wave, which is not part of inducing; .*parts=\[wave\]"):
        ig.load(tmp_path / "part.ig", parts=[OwnKernel])
    with pytest.raises(ValueError, match=r"kernel is a OwnKernel, which is not part of inducing"):
        ig.load(tmp_path / "part.ig", parts=[wave])
    with pytest.raises(TypeError, match="parts must be classes and named functions"):
        ig.load(tmp_path / "part.ig", parts=[3])


class Shift:
    def __init__(self, c):
        self.c = c

    def apply(self, x):
        return x + self.c


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        (lambda c: functools.partial(lambda x: x + c))(2.0),
        Shift(2.0).apply,
        jax.jit((lambda c: functools.wraps(wave)(lambda x: x + c))(2.0)),
    ],
)
def test_lambdas_and_closures_are_refused_with_their_place(tmp_path, function):
    model = ig.Model(
        [ig.Deterministic(function), ig.BayesianDense(1, 1)],
        ig.likelihoods.Gaussian(0.1),
    )
    with pytest.raises(TypeError, match=r"layers\.0\.function is a lambda or a function that captures.*parts="):
        ig.save(tmp_path / "model.ig", model)
    gp = ig.GP(ig.kernels.Warped(ig.kernels.Matern52(), function), ig.means.Function(function))
    for part, place in (
        (ig.SparseGP(gp, ig.features.InducingPoints([[0.5]])), "prior.kernel.function"),
        (ig.GP(ig.kernels.Matern52(), gp.mean_function), "mean_function.function"),
        (ig.features.Integral(function, [-1.0], [1.0]), "phi"),
    ):
        with pytest.raises(TypeError, match=rf"^{place} is a lambda or a function that captures.*parts="):
            ig.save(tmp_path / "model.ig", part)
    assert not list(tmp_path.iterdir())


def test_only_paths_and_models_are_accepted(tmp_path, unchecked):
    with pytest.raises(TypeError, match=r"path must be a string or a pathlib\.Path, got 1"):
        ig.save(1, deep_model())
    with pytest.raises(TypeError, match=r"path must be a string or a pathlib\.Path, got b'x'"):
        ig.load(b"x")
    with pytest.raises(IsADirectoryError, match="path is a folder; add the name of a file"):
        ig.save(tmp_path, deep_model())
    with pytest.raises(TypeError, match=r"model must be an ig\.Model or a part of one, got dict"):
        ig.save(tmp_path / "model.ig", {})
    with pytest.raises(FileNotFoundError, match="nothing"):
        ig.load(tmp_path / "nothing.ig")
    with pytest.raises(ValueError, match="is not a regular file"):
        ig.load(tmp_path)


def crafted(path, structure, arrays, **metadata):
    """A file with a valid checksum, whatever it holds."""
    text = structure if isinstance(structure, str) else json.dumps(structure)
    given = {"format": "inducing", "version": "1", "structure": text}
    given["sha256"] = container._checksum(text, arrays)
    path.write_bytes(safetensors(arrays, given | metadata))


CONSTANT = ["part", "means.Constant", {"value": ["array", "value", "float64"]}]
VALUE = {"value": np.asarray(1.0)}


@pytest.mark.parametrize(
    "structure, arrays, metadata, error",
    [
        (CONSTANT, {"value": np.asarray(np.nan)}, {}, "value must be real, got nan"),
        (CONSTANT, {"value": np.asarray(1.0), "more": np.zeros(2)}, {}, "arrays that no part uses"),
        (CONSTANT, {}, {}, "value has no array in the file"),
        (CONSTANT, {"value": np.ones(2, "float32")}, {}, "declared as float64, but its array is in float32"),
        (CONSTANT, VALUE, {"version": "99"}, "version '99' of the file format"),
        (CONSTANT, VALUE, {"format": "pt"}, "of another program"),
        (CONSTANT, VALUE, {"sha256": "0"}, "checksum does not match"),
        ("[[[", VALUE, {}, "not valid JSON"),
        ("[" * 100_000, VALUE, {}, "not valid JSON"),
        (["part", "os.system", {}], VALUE, {}, "unknown kind 'os.system'"),
        (["part", "jnp.tanh", {}], VALUE, {}, "not a class of modules"),
        (["what"], VALUE, {}, "of an unknown kind"),
        (functools.reduce(lambda v, _: ["tuple", v], range(400), ["none"]), VALUE, {}, "nested more than 100 deep"),
        (["part", "means.Constant", {"value": ["array", "value", "object"]}], VALUE, {}, "unknown dtype 'object'"),
        (["part", "means.Constant", {"other": ["none"]}], {}, {}, r"other fields than its class: \['other'\]"),
        (["part", "means.Constant", {"value": ["str", "x"]}], {}, {}, "must be numbers, got 'x'"),
        (["tuple"], {}, {}, "holds a tuple, not a model"),
        (["int", "9" * 10_000_000], {}, {}, "is not a number"),
    ],
)
def test_crafted_files_are_refused_with_one_clear_error(tmp_path, structure, arrays, metadata, error):
    crafted(tmp_path / "bad.ig", structure, arrays, **metadata)
    with pytest.raises(ValueError, match=rf"bad\.ig.*{error}"):
        ig.load(tmp_path / "bad.ig")


def variance(value):
    """The description of a Matérn kernel with a given array as its variance."""
    fields = {"lengthscale": ["array", "lengthscale", "float64"], "variance": ["array", "variance", str(value.dtype)]}
    return ["part", "kernels.Matern52", fields], {"lengthscale": np.asarray(1.0), "variance": value}


@pytest.mark.parametrize(
    "value, error",
    [
        (np.asarray(-1.0), "must be positive, got -1.0"),
        (np.asarray(np.inf), "must be positive, got inf"),
        (np.asarray([1.0, 2.0]), "has shape .2., which does not fit its class"),
        (np.asarray(True), "does not fit its class"),
        (np.asarray(1), "does not fit its class"),
    ],
)
def test_values_that_a_part_does_not_allow_are_refused(tmp_path, value, error):
    crafted(tmp_path / "bad.ig", *variance(value))
    with pytest.raises(ValueError, match=error):
        ig.load(tmp_path / "bad.ig")


POINTS = ig.features.InducingPoints([[0.0], [0.5], [1.0]])
GP = ig.SparseGP(ig.GP(ig.kernels.Matern52()), POINTS)
TWO = ig.SparseGP(ig.priors.Independent(ig.kernels.Matern52(), 2), [POINTS, ig.features.InducingPoints([[0.2]])])
EXACT = ig.GP(ig.kernels.Matern52()).condition([0.0, 1.0], [1.0, 2.0], noise_variance=0.1)
SLOPES = ig.priors.Derivative(ig.GP(ig.kernels.Matern52()), dim=1)
DENSE = ig.BayesianDense(1, 2, prior_factor=1.0)
PADDED = (
    '["part","features.Padded",{"own":["part","features.InducingPoints",{"Z":["array","features.1.own.Z","float64"]}]'
)
PADDED += ',"num":["int","3"]}]'
BARE = '["part","features.InducingPoints",{"Z":["array","features.1.own.Z","float64"]}]'


@pytest.mark.parametrize(
    "part, text, arrays, error",
    [
        (GP, (), {"mean": np.zeros((1, 2))}, r"mean has shape \[1, 2\]; for 1 latents and 3 features"),
        (GP, (), {"root": np.ones((1, 2, 2)) * np.eye(2)}, r"root has shape \[1, 2, 2\]; for 1 latents and 3 features"),
        (GP, (), {"features.Z": np.zeros((4, 1))}, "mean has shape"),
        (TWO, (PADDED, BARE), {}, "features must be one object, or a tuple with features of one size"),
        (EXACT, (), {"noise": -np.ones((2, 1))}, "noise_variance must be finite and at least 0"),
        (EXACT, (), {"noise": np.ones((2, 2))}, r"noise has shape \[2, 2\]"),
        (EXACT, (), {"inverse_root": np.eye(3)}, "inverse_root has shape"),
        (SLOPES, ("Matern52", "Matern12"), {}, "has no derivative in mean square"),
        (SLOPES, ('["tuple",["int","0"]]', '["tuple",["int","1"]]'), {}, "dims must hold the columns"),
        (DENSE, (), {"prior_factor": np.ones((2, 2))}, "prior_factor has shape"),
        (ig.priors.LMC([[1.0]], [ig.kernels.Matern52()]), (), {"W": np.ones((1, 2))}, "W has 2 columns"),
    ],
)
def test_what_constructors_refuse_is_refused(tmp_path, part, text, arrays, error):
    """A file with a valid checksum, in which parts do not fit together."""
    writer = Writer()
    structure = json.dumps(writer.describe(part, ""), separators=(",", ":"))
    changed = structure.replace(*text) if text else structure
    assert set(arrays) <= set(writer.arrays) and (changed != structure or arrays)
    crafted(tmp_path / "bad.ig", changed, writer.arrays | arrays)
    with pytest.raises(ValueError, match=rf"bad\.ig.*{error}"):
        ig.load(tmp_path / "bad.ig")


def test_damaged_files_are_refused(tmp_path):
    ig.save(tmp_path / "model.ig", deep_model())
    whole = (tmp_path / "model.ig").read_bytes()
    bad, rng = tmp_path / "bad.ig", np.random.default_rng(0)
    damaged = [whole[:n] for n in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1)]
    damaged += [whole + b"x", b"PK\x03\x04" + whole, struct.pack("<Q", 2**62) + whole[8:]]
    for place in rng.integers(0, len(whole), 150):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.ig"):
            ig.load(bad)


def test_a_file_of_the_first_release_loads():
    """This file must load in all later releases."""
    model = ig.load(FILES / "model-1.ig")
    assert isinstance(model, ig.Model)
    np.testing.assert_allclose(model.predict([0.25]).mean, [[0.30901699]], atol=1e-6)


def test_pickles_and_copies_work():
    model = deep_model()
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert_same(again, model)


FAULTS = """
import contextlib, os, random, resource, signal, sys, time
from pathlib import Path
import numpy as np
from inducing.io.container import read, write

kind, path = sys.argv[1], Path(sys.argv[2])
sizes = {"a": 40_000, "b": 90_000}

def save(name):
    write(path, [name], {"x": np.full(sizes[name], ord(name), "float64")})

def intact():
    (name,), arrays = read(path)
    return (arrays["x"] == ord(name)).all() and arrays["x"].size == sizes[name]

def child(run):
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            run()
        os._exit(0)
    return pid

def for_ever(name):
    while True:
        save(name)

save("a")
random.seed(0)
if kind == "kill":
    for _ in range(50):
        pid = child(lambda: for_ever("b"))
        time.sleep(random.uniform(0.0, 0.02))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert intact()
elif kind == "full":
    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        save("b")
    os.waitpid(child(limited), 0)
    assert intact() and read(path)[0] == ["a"]
    assert [f.name for f in path.parent.iterdir()] == [path.name]
else:
    writers = [child(lambda name=name: for_ever(name)) for name in "ab"]
    end, reads = time.time() + 1.5, 0
    while time.time() < end:
        assert intact()
        reads += 1
    for pid in writers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert intact() and reads > 20
print("intact")
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs os.fork")
@pytest.mark.parametrize("kind", ["kill", "full", "readers"])
def test_kills_full_disks_and_other_writers_leave_a_whole_file(tmp_path, kind):
    """kill −9 at random times, a limit on file sizes, and readers beside two writers."""
    command = [sys.executable, "-c", FAULTS, kind, str(tmp_path / "model.ig")]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, timeout=120)
    assert done.stdout == "intact\n", done.stderr
