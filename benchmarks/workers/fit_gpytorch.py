"""GPyTorch's fits: SVGP with Adam, and with natural gradients for q(u), as in its documentation."""

import gpytorch
import numpy as np
import torch
from gpytorch.variational import CholeskyVariationalDistribution, NaturalVariationalDistribution, VariationalStrategy
from protocol import serve
from race import Clock, load, log_density
from with_gpytorch import Kernel, gaussian


class SVGP(gpytorch.models.ApproximateGP):
    """q(u) starts at the prior."""

    def __init__(self, a: dict, natural: bool):
        family = NaturalVariationalDistribution if natural else CholeskyVariationalDistribution
        q = family(len(a["Z"]))
        super().__init__(VariationalStrategy(self, a["Z"].clone(), q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = Kernel(a["lengthscale"], a["variance"])

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def race(path: str, method: str, cap: float, batch: int) -> dict:
    """Train until the cap or until settled; the held-out log-likelihood along the way."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    arrays = load(path)
    a = {k: torch.from_numpy(np.array(v)) for k, v in arrays.items()}
    model, likelihood = SVGP(a, method == "ngd"), gaussian(a)
    N = len(a["X"])
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=N)
    if method == "ngd":
        optimisers = [
            gpytorch.optim.NGD(model.variational_parameters(), num_data=N, lr=0.1),
            torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], lr=0.01),
        ]
    else:
        optimisers = [torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)]

    def evaluate():
        model.eval()
        with torch.no_grad():
            parts = [likelihood(model(x)) for x in a["Xtest"].split(4096)]
            mean, variance = (torch.cat([getattr(p, name) for p in parts]) for name in ("mean", "variance"))
        model.train()
        return log_density(arrays["ytest"], mean.numpy(), variance.numpy())

    rows = torch.utils.data.TensorDataset(a["X"], a["y"][:, 0])
    loader = torch.utils.data.DataLoader(rows, batch, shuffle=True)
    model.train()
    likelihood.train()
    clock = Clock(evaluate, cap)
    while True:
        for x_batch, y_batch in loader:
            for optimiser in optimisers:
                optimiser.zero_grad()
            loss = -bound(model(x_batch), y_batch)
            loss.backward()
            for optimiser in optimisers:
                optimiser.step()
            if clock.look():
                return {"trace": clock.trace, "message": "stopped"}


if __name__ == "__main__":
    serve(None, {"race": race})
