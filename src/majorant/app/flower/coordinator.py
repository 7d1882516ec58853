"""The server's part of a study: who is there, what they agree on, the rounds, and the run folder.

The rounds are those of the simulator (`engines.remote.server`), asked for by letters. A silo from which nothing usable
comes in time is as one that did not take part: its state is that of its last upload that arrived.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.app.build import USUAL_RATE
from majorant.app.flower.desk import Desk
from majorant.app.flower.gathering import Gathering
from majorant.app.flower.ledger import Ledger, Record, outline
from majorant.app.flower.letters import Letter, Received, Task
from majorant.app.flower.office import POLL, Carrier, Reply
from majorant.app.flower.scores import heard, measured_like
from majorant.app.flower.secret_sums import exact_total
from majorant.app.flower.silo import told
from majorant.app.flower.study import Study
from majorant.app.flower.uploads import ask_in_secret, ask_openly
from majorant.core import Server
from majorant.core.compilation import jit
from majorant.engines import evaluation
from majorant.engines.divergence import Diverged, remedy
from majorant.engines.extremes import Largest, largest_allowed
from majorant.engines.memory import refuse_unequal_sizes
from majorant.engines.messages import bill_of
from majorant.engines.options import Evaluation as Plan
from majorant.engines.private_messages import refuse_uncovered
from majorant.engines.programs import enable_compilation_cache
from majorant.engines.remote.server import Center
from majorant.engines.remote.shapes import client_of, messages_of
from majorant.engines.remote.sums import answer_size, summed_answer
from majorant.engines.remote.wire import decode
from majorant.engines.run import Run
from majorant.engines.snapshots import Snapshot
from majorant.engines.stopping import Target, parse_bounds
from majorant.engines.tally import Tally
from majorant.exchange.federation import Federation
from majorant.metrics.scores import metric_name
from majorant.models.base import Spec


class Coordinator:
    """One run of a study, from the server's side."""

    def __init__(
        self,
        study: Study,
        carrier: Carrier,
        ledger: Ledger,
        tell: Callable[[str], None] = lambda line: None,
        *,
        poll: float = POLL,
    ) -> None:
        self.study, self.config, self.flower = study.check(), study.config, study.flower
        self.ledger, self.tell = ledger, tell
        self.record = ledger.record() if ledger.begun else Record()
        self.gathering = Gathering(study, carrier, self.record, tell, poll=poll)
        self.office = self.gathering.office
        enable_compilation_cache()

    def run(self) -> Run:
        """Trains to the end, from the beginning or from the folder's checkpoint."""
        with self.config.arithmetic():
            if self.ledger.begun:
                self.gathering.wait_for(self.record.names)
                self.build()
                like = jax.eval_shape(lambda: (self.center.start({}, 1), self.center.tally()))
                server, self.tally = self.ledger.states(*like)
                self.tell(f"resumed after round {self.record.round}")
            else:
                self.ledger.start()
                self.gathering.gather()
                self.build()
                server = self.begin()
            self.scores: Any = None
            server = self.train(server)
            if self.scores is None:  # resumed when already finished
                self.measure_silos(server)
            self.gathering.invite_newcomers(functools.partial(self.center.released, server, -1))
            run = self.result(server)
            self.ledger.finish(run, self.data, self.record.table())
        return run

    def build(self) -> None:
        """The method among the silos, from what they agreed on."""
        record, config = self.record, self.config
        spec = Spec(tuple(record.features), len(record.classes))
        precision = jnp.result_type(float)
        study = self.study
        if config.local.lr is None and self.study.make is None:
            local = config.local.model_copy(update={"lr": record.rate or USUAL_RATE})
            study = study._replace(config=config.model_copy(update={"local": local}))
        sizes = np.array([train for train, *_ in record.sizes]) if study.secure is None else None
        federation = study.federation(spec, sizes)
        one = client_of(spec, precision)
        self.data = outline(record, "silos" if config.is_table else config.data.partition(":")[0], precision)
        if study.secure is None:
            refuse_unequal_sizes(federation.algorithm, self.data)
        self.federation, self.metric = federation, metric_name(federation.algorithm, len(record.classes))
        if federation.guarantee is not None:
            refuse_uncovered(federation, one)
        self.center = Center(federation, messages_of(federation, one), len(record.names), self.key(federation))
        self.desk = Desk(self.study, self.gathering, self.center)
        if study.secure is not None:
            self.center.refuse_in_secret()
        self.bill, self.one = bill_of(federation, one), one
        self.target = Target(parse_bounds(config.until))
        diagnostics = federation.exchange.diagnostics(federation.algorithm)
        self.diagnoses = config.measures and diagnostics.measure is not None
        self.conclude = jit(functools.partial(evaluation.conclude, federation))

    def key(self, federation: Federation) -> Any:
        """The key of all that the server draws: the study's seed, or a secret where silos are hidden by noise."""
        if federation.guarantee is None:
            return jax.random.key(jnp.uint32(self.config.seed))
        self.record.secret = self.record.secret or os.urandom(8).hex()
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(bytes.fromhex(self.record.secret), "<u4")))

    def begin(self) -> Server:
        """The server before round 1, with all silos' answers to the method's set-up question."""
        server, messages = self.center.start({}, self.config.rounds), self.center.messages
        everyone = range(len(self.record.names))
        if self.study.secure is not None:
            return self.begun(self.begin_in_secret(server))
        answers: dict[int, Any] = {}
        task = Task(run=self.record.run, round=0, delivered=0)

        def hear(slot: int, reply: Reply) -> bool:
            letter = self.gathering.attempt(slot, reply, "begun")
            if letter is None:
                return False
            arrays = decode(letter.arrays, messages.answers, f"the answer of {self.name(slot)}")
            answers[slot] = jax.tree.unflatten(jax.tree.structure(messages.answer), arrays)
            return True

        send = lambda slot: self.desk.letter("welcome", task, self.center.welcome(server, slot))
        missing = self.office.ask(everyone, send, hear, seconds=self.flower.wait, needed=len(everyone))
        if missing:
            raise ValueError(f"{self.name(missing[0])} did not begin within {self.flower.wait:g} s: look at its log")
        return self.begun(self.center.answered(server, answers if messages.answer else {}))

    def begin_in_secret(self, server: Server) -> Server:
        """The server with the sum of all silos' answers, and of their numbers of samples."""
        like, task = self.center.messages.answer, Task(run=self.record.run, round=0, delivered=0)

        def send(slot: int, secret: Received) -> Letter:
            return self.desk.letter("welcome", task, self.center.welcome(server, slot), secret)

        total = exact_total(self.gathering, 3 + answer_size(like), send, "begun")
        self.record.totals = [int(number) for number in total[:3]]
        return self.center.answered_together(server, summed_answer(total[3:], like))

    def begun(self, server: Server) -> Server:
        """The server that rounds begin with, in a first checkpoint."""
        finished = jax.tree.map(jnp.asarray, server)
        lost = [name for name, value in finished.hyper.items() if np.isnan(np.asarray(value)).any()]
        if lost:
            raise ValueError(
                f"{self.federation.name} found no value for {', '.join(lost)}: give the numbers themselves"
            )
        self.record.heard, self.tally = [0] * len(self.record.names), self.center.tally()
        self.ledger.save(finished, self.tally, self.record)
        return finished

    def train(self, server: Server) -> Server:
        """Rounds until the last one, or until a bound is met."""
        config, record = self.config, self.record
        every, guarantee = Plan(every=config.evaluate_every).rounds(config.rounds), self.federation.guarantee
        last = config.rounds if guarantee is None else guarantee.allowed(config.rounds)
        while True:
            told_of = record.history[-1]["round"] if record.history else 0
            if record.round > told_of and (record.round % every == 0 or record.round == last):
                begin = time.perf_counter()
                self.note(server)
                record.seconds["evaluate"] += time.perf_counter() - begin
                self.tally = self.center.tally()
                self.ledger.save(server, self.tally, record)
            if record.round >= last or self.target.reached([record.history]):
                return server
            begin = time.perf_counter()
            server = self.one_round(server)
            record.seconds["train"] += time.perf_counter() - begin
            self.ledger.save(server, self.tally, record)  # before any silo is told what has arrived

    def one_round(self, server: Server) -> Server:
        """One round: the server after it."""
        this, record = self.center.round(server), self.record
        needed = min(self.flower.minimum or len(this.asked), len(this.asked))
        hidden = self.center.messages.secret
        lost, up, down = (ask_in_secret if hidden else ask_openly)(self.desk, this, needed)
        server, tally = this.end(self.tally)
        anew = [slot for slot in lost if self.begins_anew(server, slot)]
        answered = {*this.heard, *this.missed, *anew}
        if len(answered) < needed:
            names = ", ".join(self.name(slot) for slot in this.asked if slot not in answered)
            raise ValueError(
                f"round {this.number} has {len(answered)} answers of {needed} that it needs: nothing came from {names} "
                f"within {self.flower.timeout:g} s. Resume when they are back, or lower minimum"
            )
        self.tally, record.round = tally, this.number
        for slot in (*this.heard, *anew):
            record.heard[slot] = this.number
        record.communication["rounds"] += 1
        record.communication["wire_up"] += up
        record.communication["wire_down"] += down
        self.tell(f"round {this.number} of {self.config.rounds}: {len(this.heard)} of {len(this.asked)} silos")
        return server

    def begins_anew(self, server: Server, slot: int) -> bool:
        """Whether a silo that came back without its state has begun anew; stops where the method cannot bear that."""
        who = self.name(slot)
        if not self.center.forgives():
            raise ValueError(
                f"{who} has lost its private state, and with {self.federation.name} the server holds sums of what "
                "silos hold: restore the silo's folder from a backup, and resume"
            )
        round = int(server.round)
        task = Task(run=self.record.run, round=round, delivered=round)
        hear = lambda kind: lambda slot, reply: self.gathering.attempt(slot, reply, kind) is not None
        agreement = told(self.record.agreement(slot), "prepare")
        ask = functools.partial(self.office.ask, [slot], seconds=self.flower.timeout, needed=1)
        try:
            gone = ask(lambda slot: agreement, hear("ready")) or ask(
                lambda slot: self.desk.letter("welcome", task, self.center.welcome(server, slot)), hear("begun")
            )
        except ValueError as error:  # it refuses, or what it sends is of no use
            self.tell(f"{who} does not begin anew: {error}")
            return False
        if not gone:
            self.tell(f"{who} begins anew after round {round}")
        return not gone

    def note(self, server: Server) -> None:
        """Evaluates, and adds a line to the history."""
        record, tally, bill = self.record, self.tally, self.record.communication
        scores, noticed = self.measure_silos(server)
        numbers = jax.tree.map(np.asarray, tally)
        bill["bytes_up"] += self.bill.sent(numbers.up, numbers.messages)
        bill["bytes_down"] += self.bill.received(numbers.down, numbers.messages)
        count = record.round - (record.history[-1]["round"] if record.history else 0)
        line: dict[str, Any] = {
            "round": record.round,
            "seed": self.config.seed,
            "seconds": record.seconds["train"],
            "bytes_up": bill["bytes_up"],
            "bytes_down": bill["bytes_down"],
            "participants": int(numbers.participants) / count,
            "rejected": int(numbers.rejected),
        }
        if numbers.offender >= 0:
            line["rejected_client"] = record.names[int(numbers.offender)]
        weight = max(float(numbers.weight), 1e-30)
        line |= {name: float(total) / weight for name, total in numbers.info.items()}
        line |= {name: float(value) for name, value in noticed.items()} | scores.summary(self.metric)
        if self.federation.guarantee is not None:
            line["epsilon"] = self.federation.guarantee.epsilon(record.round)
        record.history.append(line)
        self.ledger.line(line)
        self.stop_if_diverged(scores, numbers)

    def measure_silos(self, server: Server) -> tuple[Any, dict[str, Any]]:
        """The scores of all silos' models, and what the method says of itself."""
        like = measured_like(self.desk, self.one) if self.diagnoses else ()
        self.scores, sums = heard(self.desk, server, like, self.data, self.metric)
        return self.scores, jax.tree.map(np.asarray, self.conclude(server, sums if self.diagnoses else None))

    def stop_if_diverged(self, scores: Any, tally: Tally) -> None:
        """A run in which most uploads are rejected, or most models give NaN, will not recover."""
        fruitless = int(tally.fruitless) > 0
        if not (fruitless or scores.lost()):
            return
        outlier = Largest(*tally.largest) if bool(tally.largest.stands_out()) else None
        what = "updates" if fruitless else "models"
        raise Diverged(
            f"{self.federation.name} diverged: at round {self.record.round} the {what} of most silos, or all, were "
            f"infinite, NaN or larger than {largest_allowed():.1e}. "
            f"{remedy(outlier, self.record.names, self.center.start({}, 1).hyper)}"
        )

    def result(self, server: Server) -> Run:
        """The run, as a simulation gives it."""
        record = self.record
        whole = jax.tree.map(lambda a: np.asarray(a)[None], server)
        counters = {"history": [record.history], "communication": [record.communication], "seconds": record.seconds}
        settings = [{"seed": self.config.seed, "hyper": {}}]
        snapshot = Snapshot(whole, (), counters)
        return Run(
            self.federation,
            [self.data],
            settings,
            [record.history],
            [self.scores],
            snapshot,
            snapshot,
            record.seconds,
            [record.communication],
            self.metric,
            record.round,
            self.target.reason([record.history]),
        )

    def name(self, slot: int) -> str:
        """A silo's name, for messages."""
        return repr(self.record.names[slot])
