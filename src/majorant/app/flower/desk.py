"""What every part of a server's work needs: the study, who is there, and the server's side of the rounds."""

from __future__ import annotations

from typing import NamedTuple

from majorant.app.flower.gathering import Gathering, sent_arrays
from majorant.app.flower.ledger import Record
from majorant.app.flower.letters import Letter, Received, Task
from majorant.app.flower.office import Office
from majorant.app.flower.silo import told
from majorant.app.flower.study import FlowerSettings, Study
from majorant.engines.remote.server import Center, Sending


class Desk(NamedTuple):
    """A server at work on a study."""

    study: Study
    gathering: Gathering
    center: Center

    @property
    def flower(self) -> FlowerSettings:
        """The settings of the network."""
        return self.study.flower

    @property
    def record(self) -> Record:
        """What is known of the run."""
        return self.gathering.record

    @property
    def office(self) -> Office:
        """Who asks silos, and hears them."""
        return self.gathering.office

    def name(self, slot: int) -> str:
        """A silo's name, for messages."""
        return repr(self.record.names[slot])

    def tell(self, line: str) -> None:
        """What happens, for people."""
        self.gathering.tell(line)

    def letter(self, kind: str, task: Task, sending: Sending, secret: Received | None = None) -> Letter:
        """A letter with a view and the silo's own key; what it is answered by goes into a secure sum, or not."""
        return told(task.model_copy(update={"secret": secret}), kind, sent_arrays(sending))
