"""GPflow's side: SVGP and SGPR as its documentation trains them, with every step inside a `tf.function`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import gpflow
import numpy as np
import tensorflow as tf
from protocol import Timed, serve


def exact_probit(x):
    """Φ(x), short of 0 and 1 by a rounding error: GPflow's own link squeezes the probabilities into [0.001, 0.999]."""
    tiny = np.finfo(x.dtype.as_numpy_dtype).eps
    return tf.clip_by_value(0.5 * (1.0 + tf.math.erf(x / np.sqrt(2.0))), tiny, 1.0 - tiny)


def configure(case: dict) -> None:
    """Precision and jitter, before any object is made."""
    gpflow.config.set_default_float(np.dtype(case["dtype"]).type)
    gpflow.config.set_default_jitter(case["jitter"])


def kernel_of(a: dict, lengthscale: np.ndarray) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(variance=a["variance"], lengthscales=lengthscale)


def build(case: dict, a: dict) -> Timed:
    """The work of a case."""
    configure(case)
    likelihood = (
        gpflow.likelihoods.Bernoulli(invlink=exact_probit)
        if case["likelihood"] == "bernoulli"
        else gpflow.likelihoods.Gaussian(a["noise"])
    )
    X, y = tf.constant(a["X"]), tf.constant(a["y"])
    if case["kind"] == "collapsed":
        return _collapsed(a, X, y)
    if case["kind"] == "lmc":
        kernel = gpflow.kernels.LinearCoregionalization([kernel_of(a, s) for s in a["lengthscale"]], W=a["W"])
        features = gpflow.inducing_variables.SharedIndependentInducingVariables(
            gpflow.inducing_variables.InducingPoints(a["Z"])
        )
    else:
        kernel, features = kernel_of(a, a["lengthscale"]), a["Z"]
    model = gpflow.models.SVGP(
        kernel,
        likelihood,
        features,
        q_mu=a["mean"].T,
        q_sqrt=a["root"],
        num_latent_gps=a["mean"].shape[0],
        num_data=len(a["X"]),
        whiten=True,
    )
    if case["kind"] == "predict":
        return _predict(model.posterior() if case["cached"] else model, X)
    bound, tuned = stepped(model.elbo, model.trainable_variables, X, y, a["index"])
    return Timed(bound, _drawn(model, (a["X"], a["y"]), a["index"].shape[1]), tuned=tuned)


def _drawn(model, data, batch: int):
    """Adam steps as the documentation takes them: the loss holds an iterator over rows, repeated, shuffled and cut."""
    rows = tf.data.Dataset.from_tensor_slices(data).repeat().shuffle(len(data[0]))
    loss = model.training_loss_closure(iter(rows.batch(batch)), compile=True)
    optimiser = tf.optimizers.Adam(1e-3)

    @tf.function
    def step():
        optimiser.minimize(loss, model.trainable_variables)

    def run(n):
        for _ in range(n):
            step()
        model.q_mu.numpy()

    return run


def stepped(elbo, variables, X, y, index: np.ndarray):
    """The bound of the first minibatch, and Adam steps on minibatches given by rows, one `tf.function` call each."""
    optimiser = tf.optimizers.Adam(1e-3)
    index = tf.constant(index)

    def batch(i):
        rows = index[i]
        return tf.gather(X, rows), tf.gather(y, rows)

    @tf.function
    def step(i):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = -elbo(batch(i))
        optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    numbers = [tf.constant(i) for i in range(len(index))]

    def run(n):
        for i in range(n):
            loss = step(numbers[i % len(numbers)])
        float(loss)

    return lambda: tf.function(elbo)(batch(0)), run


def _collapsed(a: dict, X, y) -> Timed:
    model = gpflow.models.SGPR((X, y), kernel_of(a, a["lengthscale"]), a["Z"], noise_variance=a["noise"])
    variables = model.trainable_variables

    @tf.function
    def bound_and_gradient():
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            bound = model.elbo()
        return bound, tape.gradient(bound, variables)

    def run(n):
        for _ in range(n):
            float(bound_and_gradient()[0])

    return Timed(lambda: bound_and_gradient()[0], run)


def _predict(model, X) -> Timed:
    """By a model, which computes everything anew, or by its posterior, which caches what does not depend on X."""
    moments = model.predict_f

    def runner(moments):
        def run(n):
            for _ in range(n):
                mean, variance = moments(X)
                mean.numpy(), variance.numpy()

        return run

    def value():
        mean, variance = moments(X)
        return tf.reduce_sum(tf.abs(mean)) + tf.reduce_sum(variance)

    return Timed(value, runner(moments), tuned=runner(tf.function(moments)))


def versions() -> dict:
    """What the numbers belong to."""
    return {"gpflow": gpflow.__version__, "tensorflow": tf.__version__}


if __name__ == "__main__":
    serve(build, {"versions": versions})
