"""A simulation as it goes on: layout, engine, counters and history.

The clients are laid out (`laying_out`) and the resident or the streamed engine is picked by memory; blocks of rounds
alternate with evaluations of every client's personalized model.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Server, all_finite
from majorant.data.federated import FederatedData
from majorant.data.lazy import holding
from majorant.engines.client_part import Held
from majorant.engines.client_scores import Scores
from majorant.engines.divergence import Diverged, remedy, stop_if_unopened
from majorant.engines.embedding import embedded
from majorant.engines.extremes import Largest, largest_allowed
from majorant.engines.hosts import decided, least
from majorant.engines.laying_out import Plan, laid_out
from majorant.engines.memory import (
    default_budget,
    explained_shortage,
    fitting_chunk,
    most_side_by_side,
    rounds_that_count,
)
from majorant.engines.mesh import devices_for, shares_of_runs
from majorant.engines.options import Resources
from majorant.engines.patience import best_line, kept, out_of_patience
from majorant.engines.population import in_order, padding
from majorant.engines.probing import probed
from majorant.engines.resident import Resident
from majorant.engines.run import Run
from majorant.engines.settings import distinct_seeds
from majorant.engines.snapshots import Snapshot, in_order_of_ids, into_buckets, states_of
from majorant.engines.stopping import Target
from majorant.engines.streamed import Streamed
from majorant.engines.tally import Tally, merged
from majorant.exchange.federation import Federation
from majorant.metrics.scores import metric_name

PROBED = 4  # clients whose local solves are measured at an evaluation with diagnostics


class Simulation:
    """One call of `simulate`: layout, engine, counters and history."""

    def __init__(
        self,
        federation: Federation,
        data: FederatedData | list[FederatedData],
        settings: list[dict[str, Any]],
        rounds: int,
        resources: Resources = Resources(),  # noqa: B008 - a plain record
        diagnostics: bool = False,
        target: Target | None = None,
        patience: int | None = None,
    ) -> None:
        self.patience = patience
        self.best: Any = ()  # with patience: server, clients and memory of each run at its best evaluation
        given = [data] if isinstance(data, FederatedData) else data
        algorithm = federation.algorithm
        self.data_sets = given * (len(settings) // len(given))  # those of the runs
        given = [embedded(one, algorithm.deployment.model) for one in given]
        data = given[0]
        self.federation, self.algorithm, self.data = federation, algorithm, data
        self.settings, self.rounds, self.target = settings, rounds, target or Target()
        self.metric = metric_name(algorithm, len(data.classes))
        self.seconds = {"compile": 0.0, "train": 0.0, "evaluate": 0.0}
        self.history: list[list[dict[str, Any]]] = [[] for _ in settings]
        self.communication = [{"rounds": 0, "bytes_up": 0, "bytes_down": 0} for _ in settings]
        self.outlier: Largest | None = None  # what one client has sent that no other comes near
        self.resources, self.diagnostics, self.given = resources, diagnostics, given
        self.devices = devices_for(resources.devices)
        self.budget = resources.memory_budget or least(default_budget(len(self.devices)))
        self.seeds = distinct_seeds([s["seed"] for s in settings])
        shares = shares_of_runs(len(self.devices), len(settings), self.seeds)
        for self.share in shares:  # of the runs, on a device
            most = most_side_by_side(algorithm, data, self.budget, len(settings) // self.share)
            self.most = resources.side_by_side or most
            plan = self.planned()
            if plan.fits:
                break
        self.lay_out(plan)

    def planned(self, held: int | None = None) -> Plan:
        """Clients on devices; at most so many, where it is said, have their models there at once."""
        return laid_out(
            self.federation,
            self.given,
            self.devices,
            self.share,
            runs=len(self.settings),
            seeds=self.seeds,
            budget=self.budget,
            most=min(self.most, held or self.most),
            held=held,
            resources=self.resources,
            diagnostics=self.diagnostics,
        )

    def lay_out(self, plan: Plan) -> None:
        """The engine that runs a plan, with the samples of this process's clients."""
        self.layout, self.buckets, self.unseen, self.bill = plan.layout, plan.buckets, plan.unseen, plan.bill
        if self.federation.exchange.network is not None:
            for bill in self.communication:
                bill["bytes_per_link"] = self.bill.down_rest
        here = plan.clients_here()
        self.samples = [holding(one, here) for one in self.given]
        self.keys = jax.vmap(jax.random.key)(jnp.asarray([s["seed"] for s in self.settings], jnp.uint32))
        where = (self.buckets, self.unseen, self.keys, self.seconds)
        self.engine: Resident | Streamed = (
            Resident(plan.federation, self.layout, self.samples, *where, self.resources.made_from)
            if plan.fits
            else Streamed(plan.federation, self.layout, self.samples[0], *where, self.resources.state_folder)
        )
        if plan.fits and not self.diagnostics:
            self.samples = self.given  # the devices have them: nothing here asks for samples again

    def given_hyper(self) -> dict[str, jax.Array]:
        """The hyperparameters that are not the algorithm's own, ``(runs,)`` each."""
        own = jax.eval_shape(self.algorithm.server.init, jax.random.key(0)).hyper
        names = sorted({name for s in self.settings for name in s["hyper"]})
        return {n: jnp.asarray([s["hyper"][n] for s in self.settings], own[n].dtype) for n in names}

    def start(self) -> None:
        """The state before round 1, evaluated."""
        values = self.given_hyper()
        with explained_shortage(self.layout.at_once):  # compiling takes memory, too: kernels are tried out
            self.prepare(values)
        with explained_shortage(self.layout.at_once):
            self.engine.start(values, self.rounds)
        server = self.engine.server
        if self.algorithm.setup is not None and not all_finite((server.value, server.state)):
            raise ValueError(
                f"{self.federation.name} cannot start: clients' answers before round 1 are not finite when added up. "
                "Check the scale of the features"
            )
        lost = [name for name, value in server.hyper.items() if np.isnan(value).any()]
        if lost:
            raise ValueError(
                f"{self.federation.name} found no value for {', '.join(lost)}: the clients' constants give none. An "
                "accelerated method needs μ > 0 (add an L2 term to the objective, or give constants with a guess of "
                "mu); or give the numbers themselves"
            )

    def prepare(self, hyper: dict[str, jax.Array]) -> None:
        """Compiles; with fewer clients side by side where a program says that it would take more than there is."""
        while isinstance(self.engine, Resident) and jax.default_backend() != "cpu":
            whole = self.resources.memory_budget or 2 * self.budget  # the usual budget is half of the memory
            states = 2 * len(self.settings) * self.layout.training * self.bill.state // len(self.devices)
            room = int(0.9 * whole) - self.engine.resident_bytes() - states
            self.engine.prepare(hyper, self.rounds)
            held = fitting_chunk(max(self.layout.chunks), self.engine.temporary_bytes(), room)
            if held is None:
                return
            self.lay_out(self.planned(held))

    def train(self, every: int, report: Callable | None) -> None:
        """Blocks of rounds, each followed by an evaluation, until the target is reached or the rounds are done."""
        done, last = self.done, self.affordable
        while done < last and not decided(self.target.reached(self.history) or self.waited_enough):
            count = min(every - done % every, last - done)
            with explained_shortage(self.layout.at_once):
                tally = self.timed("train", functools.partial(self.block, count))
            done += count
            stop_if_unopened(self.federation, done, tally)
            self.record(done, count, tally)
            self.stop_if_diverged(done, tally)
            self.keep_best()
            if report is not None:
                report([lines[-1] for lines in self.history], self.snapshot)

    @property
    def affordable(self) -> int:
        """The rounds that can be made within the budget of privacy, where there is one."""
        guarantee = self.federation.guarantee
        return self.rounds if guarantee is None else guarantee.allowed(self.rounds)

    @property
    def waited_enough(self) -> bool:
        """Whether patience has run out."""
        return out_of_patience(self.history, self.metric, self.patience)

    def keep_best(self) -> None:
        """With patience, puts the states of runs whose last evaluation was their best aside."""
        if self.patience is None:
            return
        improved = [best_line(lines, self.metric) == len(lines) - 1 for lines in self.history]
        if any(improved):
            now = states_of(self.snapshot())
            self.best = kept(self.best or now, now, improved)

    def block(self, count: int) -> Tally:
        """Rounds in pieces whose messages can be counted."""
        most = rounds_that_count(self.federation, self.layout.training)
        pieces = (self.engine.block(min(most, count - begin)) for begin in range(0, count, most))
        wide = (jax.tree.map(lambda a: np.asarray(a, np.result_type(a.dtype, np.int64)), piece) for piece in pieces)
        return functools.reduce(lambda one, two: merged(one, two)._replace(fruitless=two.fruitless), wide)

    def timed(self, what: str, work: Callable[[], Any]) -> Any:
        """Runs something and books its time, less what was spent compiling."""
        begin, compiling = time.perf_counter(), self.seconds["compile"]
        result = work()
        self.seconds[what] += time.perf_counter() - begin - (self.seconds["compile"] - compiling)
        return result

    def record(self, done: int, count: int, tally: Tally) -> None:
        """Evaluates and appends a line of history for every run."""
        self.scores = self.timed("evaluate", self.evaluate)
        noticed = self.timed("evaluate", self.diagnose)
        for run, (lines, bill) in enumerate(zip(self.history, self.communication, strict=True)):
            bill["rounds"] += count
            bill["bytes_up"] += self.bill.sent(tally.up[run], tally.messages[run])
            bill["bytes_down"] += self.bill.received(tally.down[run], tally.messages[run])
            line = {
                "round": done,
                "seed": self.settings[run]["seed"],
                "seconds": self.seconds["train"],
                "bytes_up": bill["bytes_up"],
                "bytes_down": bill["bytes_down"],
                "participants": int(tally.participants[run]) / count,
                "rejected": int(tally.rejected[run]),
            }
            if tally.offender[run] >= 0:
                line["rejected_client"] = self.data.names[int(tally.offender[run])]
            weight = max(float(tally.weight[run]), 1e-30)
            line |= {name: float(total[run]) / weight for name, total in tally.info.items()}
            line |= {name: float(values[run]) for name, values in noticed.items()}
            if self.federation.guarantee is not None:
                line["epsilon"] = self.federation.guarantee.epsilon(done)
            lines.append(line | self.scores[run].summary(self.metric))

    def evaluate(self) -> list[Scores]:
        """Every client's scores, for every run."""
        with explained_shortage(self.layout.at_once):
            seen, new = self.engine.evaluate()
        values = in_order(self.buckets + self.unseen, seen + new)
        each = ({k: v[run] for k, v in values.items()} for run in range(len(self.settings)))
        runs = zip(each, self.data_sets, strict=True)
        hostile = self.federation.hostile
        mask = None if hostile is None else hostile.mask(self.data.clients)
        return [Scores.of(scores, data, data.unseen, self.metric, mask) for scores, data in runs]

    def diagnose(self) -> dict[str, np.ndarray]:
        """Scalars about the server's state and about convergence, ``(runs,)`` each."""
        diagnostics = self.federation.exchange.diagnostics(self.algorithm)
        if diagnostics.log is None and not self.layout.diagnostics:
            return {}
        found = self.engine.diagnose()
        if self.layout.diagnostics and diagnostics.probe is not None:
            found |= probed(self, self.sampled())
        return self.target.measured(found)

    def sampled(self) -> np.ndarray:
        """A few of the clients that train and have samples, other ones at every evaluation."""
        able = np.flatnonzero(~self.data.unseen & (self.data.train.sizes > 0))
        return np.random.default_rng([self.settings[0]["seed"], self.done]).permutation(able)[:PROBED]

    @property
    def done(self) -> int:
        """The rounds that have been made."""
        return self.engine.round

    def stop_if_diverged(self, done: int, tally: Tally) -> None:
        """A run in which most uploads are rejected, or most models give NaN, will not recover: say so, and why."""
        fruitless = np.asarray(tally.fruitless) > 0
        for run in np.flatnonzero(tally.largest.stands_out()):
            self.outlier = Largest(*(entry[run] for entry in tally.largest))
        if not (fruitless | [scores.lost() for scores in self.scores]).all():
            return
        what = "updates" if fruitless.all() else "models"
        raise Diverged(
            f"{self.federation.name} diverged: at round {done} the {what} of most clients, or all, were infinite, NaN "
            f"or larger than {self.largest_sent()}. {self.remedy()}"
        )

    def largest_sent(self) -> str:
        """What no number of an upload may exceed, in words."""
        channel = self.federation.channel
        if channel is None or channel.secure is None:
            return f"{largest_allowed():.1e}"
        return f"the range of the secure sum, {channel.secure[0].range:g} (give a larger one, or clip before it)"

    def remedy(self) -> str:
        """What may have made the run diverge, and what to do about it."""
        return remedy(self.outlier, self.data.names, self.engine.server.hyper)

    def snapshot(self) -> Snapshot:
        """The run as it is, with clients in the order of their ids."""
        counters = {
            "seconds": dict(self.seconds),
            "communication": [dict(c) for c in self.communication],
            "history": [list(lines) for lines in self.history],
        }
        held = in_order_of_ids(self.engine.clients, self.buckets)
        found = Snapshot(jax.tree.map(np.asarray, self.engine.server), held.state, counters, held.memory)
        best = () if self.patience is None else self.best or states_of(found)
        return found._replace(best=best)

    def restore(self, resume: Snapshot | Callable[[Snapshot], Snapshot]) -> None:
        """Resumes from a snapshot; a function is given a fresh one, to learn its structure."""
        self.start()
        fresh_terms = self.engine.server.terms
        saved = resume(self.snapshot()) if callable(resume) else resume
        self.refuse_other_hyper(saved.server)
        self.refuse_other_privacy(saved.counters["history"][0])
        terms = fresh_terms._replace(mean_weight=saved.server.terms.mean_weight)
        planned = self.engine.server.rounds
        self.put(saved.server._replace(terms=terms, rounds=planned), Held(saved.clients, saved.memory))
        self.best = saved.best if self.patience is not None else ()
        self.seconds.update(saved.counters["seconds"])
        self.communication = [dict(c) for c in saved.counters["communication"]]
        self.history = [list(lines) for lines in saved.counters["history"]]

    def put(self, server: Server, held: Held) -> None:
        """Puts states of server and clients, in the order of their ids, in place of those that there are."""
        self.engine.restore(server, into_buckets(held, self.buckets, self.engine.clients))

    def refuse_other_hyper(self, saved: Server) -> None:
        """A run goes on with the hyperparameters that it began with."""
        for run, setting in enumerate(self.settings):
            for name, value in setting["hyper"].items():
                before = float(np.asarray(saved.hyper[name])[run])
                if not math.isclose(before, value, rel_tol=1e-6):
                    raise ValueError(
                        f"the snapshot was trained with {name}={before:g}, not {value:g}: leave it as it was, or start "
                        "anew"
                    )

    def refuse_other_privacy(self, lines: Sequence[dict[str, Any]]) -> None:
        """A run goes on with the privacy that it began with: its first rounds count as rounds with the same noise."""
        guarantee = self.federation.guarantee
        if not lines:
            return
        made = lines[-1]["round"]
        before, now = lines[-1].get("epsilon"), None if guarantee is None else guarantee.epsilon(made)
        told = lambda epsilon: "no promise of privacy" if epsilon is None else f"ε = {epsilon:.4g}"
        if told(before) != told(now):
            raise ValueError(
                f"the first {made} rounds were made with {told(before)}, and what is asked for now would count them as "
                f"{told(now)}: resume with the same noise, clipping and δ, and a budget that was solved for as many "
                "rounds, or start anew"
            )

    def result(self) -> Run:
        """The finished run: with patience, its models are those of the best evaluation."""
        last, made = self.snapshot(), self.done
        reason = self.target.reason(self.history)
        if reason is None and self.waited_enough:
            reason = f"{self.patience} evaluations without a better one"
        guarantee = self.federation.guarantee
        if reason is None and guarantee is not None and made == self.affordable < self.rounds:
            reason = f"the budget of privacy, ε = {guarantee.budget:g} at δ = {guarantee.delta:g}"
        if self.patience is not None and self.best:
            self.put(self.best["server"], Held(self.best["clients"], self.best["memory"]))
            self.scores = self.timed("evaluate", self.evaluate)
        elif not hasattr(self, "scores"):  # resumed when already finished
            self.scores = self.timed("evaluate", self.evaluate)
        return Run(
            self.federation,
            self.data_sets,
            self.settings,
            self.history,
            self.scores,
            last._replace(**self.best, best=()) if self.best else last,
            last,
            dict(self.seconds),
            self.communication,
            self.metric,
            made,
            reason,
            self.target.optimum,
            padding=padding(self.data, self.buckets),
        )
