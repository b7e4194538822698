"""GPflow's fits: SGPR with L-BFGS, and SVGP with natural gradients and Adam, as in its documentation."""

import with_gpflow  # noqa: F401, I001  (sets TensorFlow's environment first)

import gpflow
import numpy as np
import tensorflow as tf
from protocol import serve
from race import Clock, load, log_density


class _Enough(Exception):
    pass


def race(path: str, method: str, cap: float, batch: int) -> dict:
    """Train until the cap or until settled; the held-out log-likelihood along the way."""
    gpflow.config.set_default_float(np.float64)
    gpflow.config.set_default_jitter(1e-6)
    a = load(path)
    X, y, Xtest = (tf.constant(a[k]) for k in ("X", "y", "Xtest"))
    kernel = gpflow.kernels.SquaredExponential(variance=a["variance"], lengthscales=a["lengthscale"])
    if method == "sgpr":
        model = gpflow.models.SGPR((X, y), kernel, a["Z"].copy(), noise_variance=a["noise"])
    else:
        likelihood = gpflow.likelihoods.Gaussian(a["noise"])
        model = gpflow.models.SVGP(kernel, likelihood, a["Z"].copy(), num_data=len(a["X"]))
    predict = tf.function(model.predict_y)

    def evaluate():
        mean, variance = predict(Xtest)
        return log_density(a["ytest"], mean.numpy(), variance.numpy())

    clock = Clock(evaluate, cap)
    message = _sgpr(model, clock) if method == "sgpr" else _natgrad(model, X, y, batch, clock)
    clock.look(last=True)
    return {"trace": clock.trace, "message": message}


def _sgpr(model, clock: Clock) -> str:
    def callback(step, variables, values):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        if clock.look():
            raise _Enough

    try:
        result = gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, options={"maxiter": 10_000}, step_callback=callback
        )
    except _Enough:
        return "stopped"
    return str(result.message)


def _natgrad(model, X, y, batch: int, clock: Clock) -> str:
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    natural, adam = gpflow.optimizers.NaturalGradient(gamma=0.1), tf.optimizers.Adam(0.01)
    dataset = tf.data.Dataset.from_tensor_slices((X, y)).repeat().shuffle(min(len(X), 50_000)).batch(batch)
    loss = model.training_loss_closure(iter(dataset.prefetch(4)), compile=False)

    @tf.function
    def step():
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        adam.minimize(loss, model.trainable_variables)

    while True:
        for _ in range(10):
            step()
        if clock.look():
            return "stopped"


if __name__ == "__main__":
    serve(None, {"race": race})
