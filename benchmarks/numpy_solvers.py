"""The solvers of the mixture objective in NumPy, for logistic regression: what one would write without this library.

Each does one iteration, or for LSGD-PFL one round, of the method of the same name in `majorant.methods`. Clients are
done all at once, as arrays with a row for each (``loop=False``), or one after the other in a Python loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from majorant.data.federated import FederatedData

Place = Any  # of clients: slice(None), or the number of one


class Solver:
    """The problem, the coins, and gradients in both blocks; hyperparameters are those of the library's methods."""

    def __init__(
        self, data: FederatedData, lambda_: float, l2: float, hyper: dict[str, float], *, loop: bool, seed: int = 0
    ) -> None:
        self.m, (self.n, d) = data.clients, (int(data.train.sizes[0]), data.train.x.shape[1])
        x = data.train.x.reshape(self.m, self.n, d)
        self.x = np.concatenate([x, np.ones_like(x[:, :, :1])], axis=2)  # (M, n, d + 1)
        self.y = data.train.y.reshape(self.m, self.n).astype(x.dtype)
        self.lambda_, self.l2, self.s = x.dtype.type(lambda_), x.dtype.type(l2), x.dtype.type(self.m**-0.5)
        self.hyper = {name: x.dtype.type(value) for name, value in hyper.items()}
        self.places: list[Place] = list(range(self.m)) if loop else [slice(None)]
        self.clients, self.rng = np.arange(self.m), np.random.default_rng(seed)
        self.w, self.beta = np.zeros(d + 1, x.dtype), np.zeros((self.m, d + 1), x.dtype)
        self.start()

    def start(self) -> None:
        """The method's own state."""

    def rows(self) -> np.ndarray:
        """A sample for every client."""
        return self.rng.integers(0, self.n, self.m)

    def sample_loss_gradient(self, at: Place, beta: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """∇f'_{m,j}(β)."""
        where = self.clients[at], rows[at]
        x = self.x[where]
        error = 1 / (1 + np.exp(-(x * beta).sum(axis=-1))) - self.y[where]
        return error[..., None] * x + self.l2 * beta

    def loss_gradient(self, at: Place, beta: np.ndarray) -> np.ndarray:
        """∇f'_m(β)."""
        x = self.x[at]
        error = 1 / (1 + np.exp(-(x @ beta[..., None])[..., 0])) - self.y[at]
        return (error[..., None, :] @ x)[..., 0, :] / self.n + self.l2 * beta

    def pull(self, w: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """The gradient of the penalty in β; times −s it is that in w."""
        return self.lambda_ * (beta - self.s * w)


class Lsgd(Solver):
    """A round of τ steps on both blocks, and the average."""

    tau = 5

    def iterate(self) -> None:
        """All of them."""
        lr = self.hyper["lr"]
        drawn = [self.rows() for _ in range(self.tau)]
        reached = np.empty_like(self.beta)
        for at in self.places:
            w, beta = np.broadcast_to(self.w, self.beta[at].shape), self.beta[at]
            for rows in drawn:
                pull = self.pull(w, beta)
                slope = self.sample_loss_gradient(at, beta, rows) + pull
                w, beta = w + lr * self.s * pull, beta - lr / self.m * slope
            reached[at], self.beta[at] = w, beta
        self.w = reached.mean(axis=0)


class Acd(Solver):
    """Accelerated coordinate descent with full gradients."""

    def start(self) -> None:
        """The momentum."""
        self.w_z, self.beta_z = self.w.copy(), self.beta.copy()
        h = self.hyper
        flat = min(h["p_w"] ** 2 / h["smooth_w"], (1 - h["p_w"]) ** 2 / h["smooth_beta"])
        self.c_w, self.c_beta = flat / h["p_w"], flat / (1 - h["p_w"])

    def iterate(self) -> None:
        """A step in w or in β."""
        self.step(self.rng.random() < self.hyper["p_w"])

    def step(self, w_step: bool) -> None:
        """The step that is told."""
        h = self.hyper
        between = lambda y, z: (1 - h["theta"]) * y + h["theta"] * z
        x_w, pull = between(self.w, self.w_z), h["eta"] * h["nu"]
        change = np.zeros_like(self.beta)
        for at in self.places:
            x = between(self.beta[at], self.beta_z[at])
            self.beta[at], self.beta_z[at] = x, (self.beta_z[at] + pull * x) / (1 + pull)
            if w_step:
                change[at] = -self.s * self.pull(x_w, x)
            else:
                g = (self.loss_gradient(at, x) + self.pull(x_w, x)) / self.m
                self.beta[at] -= g / h["smooth_beta"]
                self.beta_z[at] -= h["eta"] * self.c_beta / (1 + pull) * g
        self.w, self.w_z = x_w, (self.w_z + pull * x_w) / (1 + pull)
        if w_step:
            g = change.mean(axis=0)
            self.w = self.w - g / h["smooth_w"]
            self.w_z = self.w_z - h["eta"] * self.c_w / (1 + pull) * g


class Ascd(Solver):
    """Accelerated stochastic coordinate descent; `Asvrcd` adds control variates."""

    control_variates = False

    def start(self) -> None:
        """Momentum, and the point v with the gradients there."""
        self.w_z, self.beta_z = self.w.copy(), self.beta.copy()
        self.theta_2 = self.hyper.get("theta_2", self.s.dtype.type(0))
        self.refresh(self.w, self.beta)

    def refresh(self, w: np.ndarray, beta: np.ndarray) -> None:
        """v ← (w, β), and ∇F there."""
        self.w_v, self.beta_v = w.copy(), beta.copy()
        self.slope_w, self.slope_beta = np.zeros_like(w), np.zeros_like(beta)
        if self.control_variates:
            for at in self.places:
                pull = self.pull(w, beta[at])
                self.slope_beta[at] = (self.loss_gradient(at, beta[at]) + pull) / self.m
                self.slope_w -= self.s / self.m * pull.reshape(-1, len(w)).sum(axis=0)

    def iterate(self) -> None:
        """An iteration with coins of its own."""
        w_step = self.rng.random() < self.hyper["p_w"]
        fresh = self.control_variates and self.rng.random() < self.hyper["rho"]
        self.step(w_step, fresh, self.rows())

    def step(self, w_step: bool, fresh: bool, rows: np.ndarray) -> None:
        """The iteration that is told."""
        h, t2 = self.hyper, self.theta_2
        between = lambda y, z, v: h["theta_1"] * z + t2 * v + (1 - h["theta_1"] - t2) * y
        momentum = lambda z, x, g: h["nu"] * z + (1 - h["nu"]) * x - h["gamma"] * g
        before = (self.w, self.beta.copy()) if fresh else None
        x_w = between(self.w, self.w_z, self.w_v)
        step = np.zeros_like(self.beta)
        for at in self.places:
            x, v = between(self.beta[at], self.beta_z[at], self.beta_v[at]), self.beta_v[at]
            g = self.slope_beta[at]
            if w_step:
                step[at] = -self.s * self.pull(x_w, x)
                if self.control_variates:
                    step[at] += self.s * self.pull(self.w_v, v)
            else:
                slope = self.sample_loss_gradient(at, x, rows) + self.pull(x_w, x)
                if self.control_variates:
                    slope -= self.sample_loss_gradient(at, v, rows) + self.pull(self.w_v, v)
                g = g + slope / ((1 - h["p_w"]) * self.m)
            self.beta[at], self.beta_z[at] = x - h["lr"] * g, momentum(self.beta_z[at], x, g)
        g = self.slope_w + step.mean(axis=0) / h["p_w"] if w_step else self.slope_w
        self.w, self.w_z = x_w - h["lr"] * g, momentum(self.w_z, x_w, g)
        if before is not None:
            self.refresh(*before)


class Asvrcd(Ascd):
    """With control variates."""

    control_variates = True


class L2sgdPlus(Solver):
    """Gradient and averaging steps with tables of past gradients; ``beta`` are the clients' models."""

    def start(self) -> None:
        """The tables and their means."""
        self.table = np.zeros((self.m, self.n, len(self.w)), self.x.dtype)
        self.mean, self.psi = np.zeros_like(self.beta), np.zeros_like(self.beta)

    def iterate(self) -> None:
        """A step with a coin of its own."""
        self.step(self.rng.random() < self.hyper["p_w"], self.rows())

    def step(self, averaging: bool, rows: np.ndarray) -> None:
        """The step that is told."""
        h = self.hyper
        middle = self.beta.mean(axis=0) if averaging else None
        for at in self.places:
            if averaging:
                pull = self.lambda_ * (self.beta[at] - middle)
                g, self.psi[at] = (pull - self.psi[at]) / h["p_w"] + self.psi[at] + self.mean[at], pull
            else:
                where = self.clients[at], rows[at]
                fresh = self.sample_loss_gradient(at, self.beta[at], rows)
                change = fresh - self.table[where]
                g = change / (1 - h["p_w"]) + self.mean[at] + self.psi[at]
                self.table[where] = fresh
                self.mean[at] += change / self.n
            self.beta[at] -= h["lr"] / self.m * g


SOLVERS: dict[str, type[Any]] = {
    "lsgd": Lsgd,
    "ascd": Ascd,
    "asvrcd": Asvrcd,
    "acd": Acd,
    "l2sgd+": L2sgdPlus,
}
