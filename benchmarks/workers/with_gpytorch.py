"""GPyTorch's side: its variational models, trained as its documentation shows."""

import itertools
import os
from unittest import mock

import gpytorch
import numpy as np
import torch
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    LargeBatchVariationalStrategy,
    LMCVariationalStrategy,
    VariationalStrategy,
)
from protocol import Timed, serve

torch.set_num_threads(os.cpu_count() or 1)


class Kernel(gpytorch.kernels.ScaleKernel):
    """A scaled squared exponential with given scales; those of several latents are stacked."""

    def __init__(self, lengthscale: torch.Tensor, variance: torch.Tensor, latents: int | None = None):
        shape = torch.Size([] if latents is None else [latents])
        base = gpytorch.kernels.RBFKernel(ard_num_dims=lengthscale.shape[-1], batch_shape=shape)
        super().__init__(base, batch_shape=shape)
        self.to(lengthscale.dtype)
        base.lengthscale = lengthscale.reshape(*shape, 1, -1)
        self.outputscale = variance.expand(shape)


def variational(a: dict, suffix: str = "", latents: int | None = None) -> CholeskyVariationalDistribution:
    mean, root = a["mean" + suffix], a["root" + suffix]
    shape = torch.Size([] if latents is None else [latents])
    q = CholeskyVariationalDistribution(mean.shape[-1], batch_shape=shape).to(mean.dtype)
    q.variational_mean.data.copy_(mean.reshape(*shape, -1))
    q.chol_variational_covar.data.copy_(root.reshape(*shape, *root.shape[-2:]))
    return q


def strategy(model, a: dict, jitter: float, suffix: str = "", latents: int | None = None) -> VariationalStrategy:
    kind = a.get("strategy", VariationalStrategy)
    q = variational(a, suffix, latents)
    out = kind(model, a["Z" + suffix].clone(), q, learn_inducing_locations=True, jitter_val=jitter)
    out.variational_params_initialized.fill_(1)  # q(u) is given, not to be set to the prior
    return out


class SVGP(gpytorch.models.ApproximateGP):
    """One latent, or several that are mixed."""

    def __init__(self, case: dict, a: dict):
        if case["kind"] == "lmc":
            L, P = case["latents"], case["outputs"]
            base = strategy(self, a, case["jitter"], latents=L)
            mixed = LMCVariationalStrategy(base, num_tasks=P, num_latents=L, latent_dim=-1, jitter_val=case["jitter"])
            mixed.to(a["W"].dtype).lmc_coefficients.data.copy_(a["W"].T)
            super().__init__(mixed)
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=torch.Size([L]))
            self.covar_module = Kernel(a["lengthscale"], a["variance"], L)
        else:
            super().__init__(strategy(self, a, case["jitter"]))
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = Kernel(a["lengthscale"], a["variance"])

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Projection(gpytorch.means.Mean):
    """x ↦ x A for each of the outputs, A fixed; the identity without A."""

    def __init__(self, A: torch.Tensor | None):
        super().__init__()
        self.register_buffer("A", A)

    def forward(self, x):
        # x is repeated for each output: [..., P, n, D] -> [..., P, n]
        mapped = x if self.A is None else x @ self.A
        return torch.diagonal(mapped, dim1=-3, dim2=-1).transpose(-1, -2)


class Layer(gpytorch.models.deep_gps.DeepGPLayer):
    """A layer whose outputs share kernel and inducing inputs."""

    def __init__(self, case: dict, a: dict, i: int):
        last = i == case["layers"] - 1
        width = None if last else case["width"]
        dim = a[f"Z{i}"].shape[-1]
        super().__init__(strategy(self, a, case["jitter"], str(i), width), dim, width)
        self.mean_module = gpytorch.means.ZeroMean() if last else Projection(a["project"] if i == 0 else None)
        self.covar_module = Kernel(a[f"lengthscale{i}"], a["variance"])

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Deep(gpytorch.models.deep_gps.DeepGP):
    """A stack of layers."""

    def __init__(self, case: dict, a: dict):
        super().__init__()
        self.stack = torch.nn.ModuleList([Layer(case, a, i) for i in range(case["layers"])])

    def forward(self, x):
        for layer in self.stack:
            x = layer(x)
        return x


class SGPR(gpytorch.models.ExactGP):
    """Sparse regression by the collapsed bound."""

    def __init__(self, case: dict, a: dict, likelihood):
        super().__init__(a["X"], a["y"][:, 0], likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        base = Kernel(a["lengthscale"], a["variance"])
        self.covar_module = gpytorch.kernels.InducingPointKernel(base, a["Z"].clone(), likelihood)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gaussian(a: dict, **options) -> gpytorch.likelihoods.Likelihood:
    constraint = gpytorch.constraints.GreaterThan(1e-8)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=constraint).to(a["noise"].dtype)
    likelihood.noise = a["noise"]
    return likelihood


def build(case: dict, arrays: dict) -> Timed:
    """The work of a case.

    Tuned, shallow models in float64 have the strategy that GPyTorch offers for large batches. Its documentation advises
    against it on CPUs, but there it is the quicker one; in float32 and in deep models it is slower.
    """
    torch.set_default_dtype(torch.float64 if case["dtype"] == "float64" else torch.float32)
    a = {k: torch.from_numpy(np.array(v)) for k, v in arrays.items()}
    task = _build(case, a)
    if case["dtype"] == "float64" and case["kind"] in ("svgp", "lmc", "predict"):
        other = _build(case, a | {"strategy": LargeBatchVariationalStrategy})
        task.tuned = other.tuned or other.run
    return task


def _build(case: dict, a: dict) -> Timed:
    if case["kind"] == "collapsed":
        return _collapsed(case, a)
    if case["kind"] == "deep":
        model, likelihood = Deep(case, a), gaussian(a)
    elif case["kind"] == "lmc":
        model = SVGP(case, a)
        likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(
            num_tasks=case["outputs"], has_task_noise=False, noise_constraint=gpytorch.constraints.GreaterThan(1e-8)
        ).to(a["noise"].dtype)
        likelihood.noise = a["noise"]
    else:
        model = SVGP(case, a)
        likelihood = gpytorch.likelihoods.BernoulliLikelihood() if case["likelihood"] == "bernoulli" else gaussian(a)
    if case["kind"] == "predict":
        return _predict(model, a["X"], case["cached"])
    return _stepped(case, model, likelihood, a)


def _stepped(case: dict, model, likelihood, a: dict) -> Timed:
    N = len(a["X"])
    X, y, index = a["X"], a["y"] if case["kind"] == "lmc" else a["y"][:, 0], a["index"]
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=N)
    if case["kind"] == "deep":
        bound = gpytorch.mlls.DeepApproximateMLL(bound)
    parameters = {id(p): p for p in (*model.parameters(), *likelihood.parameters())}.values()
    optimiser = torch.optim.Adam(list(parameters), lr=1e-3)
    model.train()
    likelihood.train()

    def steps(batches):
        with gpytorch.settings.num_likelihood_samples(1):
            for x_batch, y_batch in batches:
                optimiser.zero_grad()
                value = -bound(model(x_batch), y_batch)
                value.backward()
                optimiser.step()
        value.item()

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), case["batch"], shuffle=True)
    drawn = itertools.chain.from_iterable(itertools.repeat(loader))  # epoch after epoch

    def run(n):
        steps(itertools.islice(drawn, n))

    def tuned(n):
        steps((X[rows], y[rows]) for rows in itertools.islice(itertools.cycle(index), n))

    def value():
        def ones(shape, dtype, device):
            return torch.ones(shape, dtype=dtype, device=device)

        with (
            gpytorch.settings.num_likelihood_samples(1),
            mock.patch("torch.distributions.normal._standard_normal", ones),
        ):
            return N * bound(model(X[index[0]]), y[index[0]]).item()

    return Timed(value, run, tuned=tuned)


def _collapsed(case: dict, a: dict) -> Timed:
    likelihood = gaussian(a)
    model = SGPR(case, a, likelihood)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    likelihood.train()
    X, y = a["X"], a["y"][:, 0]

    def loss():
        with gpytorch.settings.cholesky_jitter(case["jitter"], case["jitter"]):
            return -bound(model(X), y)

    def run(n):
        for _ in range(n):
            model.zero_grad()
            loss().backward()

    return Timed(lambda: -len(X) * loss().item(), run)


def _predict(model, X, cached: bool) -> Timed:
    model.eval()

    def moments():
        if not cached:
            model.variational_strategy._clear_cache()  # there is no public name for it
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            f = model(X)
            return f.mean, f.variance

    def run(n):
        for _ in range(n):
            moments()

    def value():
        mean, variance = moments()
        return mean.abs().sum().item() + variance.sum().item()

    return Timed(value, run)


def versions() -> dict:
    """What the numbers belong to."""
    return {"gpytorch": gpytorch.__version__, "torch": torch.__version__}


if __name__ == "__main__":
    serve(build, {"versions": versions})
