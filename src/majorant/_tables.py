"""Facts about tables with natural clients that go by a name: where they come from, how they are read, what to mind.

The files are this project's conversions to CSV; ``sha256`` is that of the uncompressed text. ``licence`` is what was
found with the source, not legal advice. No imports of weight: the command line lists these before it loads anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPLITTING = ("time_column", "together_column", "split_column")  # one of them says how rows are split


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A table: who its clients are, what is predicted, and all that its user should know."""

    what: str
    client: str
    label: str
    task: str
    size: tuple[int, int, int]  # clients, rows, features
    sha256: str
    licence: str
    source: str
    drop: tuple[str, ...] = ()
    split: tuple[str, str] | None = None  # the option and the column of a split that does not leak
    caution: str = ""

    @property
    def summary(self) -> str:
        """One line for lists."""
        clients, rows, features = self.size
        counts = f"{clients} clients, {rows:,} rows, {features} features, {self.task}"
        mind = f"; mind: {self.caution}" if self.caution else ""
        return f"{self.what}; {counts}; licence: {self.licence}{mind}"

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of `from_table`: those ``given``, and what the facts say of the others.

        Columns to drop are added up. Of another label or client column, the table's own one is no feature.

        >>> facts = TABLES["star"]
        >>> facts.options({"label_column": "read", "time_column": "yrs"})["drop"]
        ('id', 'tch', 'math')
        """
        own: dict[str, Any] = {"client_column": self.client, "label_column": self.label, "task": self.task}
        if given.get("label_column", self.label) != self.label:
            own["task"] = "auto"
        if self.split is not None and not any(name in given for name in SPLITTING):
            own |= [self.split]
        found = own | dict(given)
        asked = given.get("drop", ())
        every = [*self.drop, self.client, self.label, *([asked] if isinstance(asked, str) else asked)]
        roles = (found["client_column"], found["label_column"])
        return found | {"drop": tuple(dict.fromkeys(name for name in every if name not in roles))}


MLMREV = "the data set {} of R's package mlmRev (Bates, Maechler, Bolker), {}"
IMBALANCED = "{} % of the rows have one class: read the AUC, not the accuracy"
RECUR = "leaky: pupils recur; unless you ask for another split, all rows of a pupil are in one part"

TABLES = {
    "heart": Facts(
        what="patients of four hospitals, heart disease (comes with the library)",
        client="hospital", label="disease", task="classification", size=(4, 740, 15),
        sha256="868d94a7ccfecdecd980f4184a008316d353ba48dd83bce868ca8dccad8c700d",
        licence="CC BY 4.0",
        source="Janosi, Steinbrunn, Pfisterer, Detrano (1989), Heart Disease, UCI, doi:10.24432/C52P4X",
    ),
    "school": Facts(
        what="pupils' examination scores in London schools, 1985 to 1987",
        client="school", label="score", task="regression", size=(139, 15362, 27),
        sha256="5898a01184455a2c161416f1408750c3ffada60f9a3166a8e5f0d503c5b6ac4f",
        licence="none stated",
        source="the Inner London Education Authority's examination records, as multi-task learning uses them (Argyriou,"
        " Evgeniou, Pontil 2008, Convex multi-task feature learning)",
    ),
    "computers": Facts(
        what="how likely people are to buy each of 20 personal computers, from 0 to 10",
        client="person", label="likes", task="regression", size=(190, 3800, 13),
        sha256="d8441101af4322ff868344adc9f8f248a97c5927a74388aedf755de88aa98000",
        licence="none stated",
        source="the conjoint study of Lenk, DeSarbo, Green, Young (1996), Marketing Science 15",
    ),
    "exam": Facts(
        what="pupils' normalised examination scores in inner London",
        client="school", label="normexam", task="regression", size=(63, 4049, 15), drop=("student",),
        sha256="c2027f2d595cae0d1538a6684f86a8dbe756d732ad83954319b1f0e9d17f9d7d",
        licence="GPL-2 or later",
        source=MLMREV.format("Exam", "without two schools of fewer than 10 pupils"),
    ),
    "hsb82": Facts(
        what="pupils' achievement in mathematics, High School and Beyond 1982",
        client="school", label="mAch", task="regression", size=(160, 7185, 9),
        sha256="cf7d11f2a007ae6862d4f8b9d60660aa915ee740cf66982fbe6e96086460c92d",
        licence="GPL-2 or later",
        source=MLMREV.format("Hsb82", "all rows"),
    ),
    "contraception": Facts(
        what="contraceptive use of women in districts of Bangladesh",
        client="district", label="use", task="classification", size=(57, 1922, 7), drop=("woman",),
        sha256="8729f7f0c146d0c6dc44dea0bcec9c529f3b04c135afdad185c54701d212143c",
        licence="GPL-2 or later",
        source=MLMREV.format("Contraception", "without three districts of fewer than 10 women"),
    ),
    "eicu": Facts(
        what="patients of intensive care units, death in hospital",
        client="hospital", label="died", task="classification", size=(169, 2044, 48),
        sha256="0e23040eedddcfe8e73541e255aeb3ab8b901d14f3b33f2367d197da32badfe8",
        licence="ODbL 1.0",
        source="the demo of the eICU Collaborative Research Database (Pollard et al. 2018, Scientific Data 5) on"
        " PhysioNet: its APACHE variables, missing values filled in and marked, hospitals of at least 10 patients",
        caution=IMBALANCED.format(91),
    ),
    "landmine": Facts(
        what="objects in mine fields by radar, mine or clutter",
        client="field", label="mine", task="classification", size=(29, 14820, 9),
        sha256="ecb35722140fda89fc2d2db23b65deb20eb5cef3b363483dbfe36f296b75d3e3",
        licence="none stated",
        source="the landmine data of Xue, Liao, Carin, Krishnapuram (2007), JMLR 8",
        caution=IMBALANCED.format(94),
    ),
    "tcga_brca": Facts(
        what="patients with breast cancer in six regions, death",
        client="region", label="E", task="classification", size=(6, 1088, 39), drop=("pid", "fold", "T"),
        sha256="96a5fb96f00f37800118f5d8c43b594191973088f1beb711f9fb076580c566d3",
        licence="terms of the Genomic Data Commons",
        source="TCGA-BRCA of the Genomic Data Commons, as FLamby has it (Ogier du Terrail et al. 2022, Fed-TCGA-BRCA);"
        " its column fold is FLamby's split",
        caution=IMBALANCED.format(86) + "; who was followed for longer died more often, and that time is left out",
    ),
    "wisdm": Facts(
        what="activities of people with a phone in the pocket, windows of 10 s",
        client="user", label="activity", task="classification", size=(36, 5418, 43),
        sha256="79a39d20e7ca5b591672f8800b196adcb350862572fdca067fe1db472cc6894f",
        licence="cite the paper, keep its readme",
        source="the transformed data, version 1.1, of the WISDM laboratory (Kwapisz, Weiss, Moore 2010, Activity"
        " recognition using cell phone accelerometers)",
    ),
    "har": Facts(
        what="activities of people with a phone at the waist, windows of 2.56 s",
        client="subject", label="activity", task="classification", size=(30, 10299, 60),
        sha256="7347c28e3cb8b3fccce2eff90e12c0a85e4c09f292e94ac1724cb3e5d75013a8",
        licence="no commercial use",
        source="Human Activity Recognition Using Smartphones, UCI (Anguita et al. 2013, ESANN): mean, deviation, least,"
        " largest value and mean step of its inertial signals",
        caution="leaky: windows overlap and have no times, so personal models score too well; a shared model on"
        " unseen clients (fedavg with --unseen 0.2) is scored honestly",
    ),
    "parkinsons": Facts(
        what="voices of patients with Parkinson's disease, severity of symptoms",
        client="subject", label="total_UPDRS", task="regression", size=(42, 5875, 19), drop=("motor_UPDRS",),
        sha256="01d549336e178e55eb4252ff19ad5e4c55ebfeb2d39692f8bb5eb26fd2c8438f",
        licence="cite the paper",
        source="Parkinsons Telemonitoring, UCI (Tsanas, Little, McSharry, Ramig 2010, IEEE Transactions on Biomedical"
        " Engineering 57)",
        split=("time_column", "test_time"),
        caution="leaky: age and sex name the subject, and severity is interpolated between few visits; unless you ask"
        " for another split, each subject's last rows are for test",
    ),
    "star": Facts(
        what="pupils' scores in mathematics, Tennessee's class size experiment",
        client="sch", label="math", task="regression", size=(80, 22815, 60), drop=("id", "tch", "read"),
        sha256="fb4948cfbc54ec5a851a17860ba1c530e1a1b3d30466c55c19784f27948c2828",
        licence="GPL-2 or later",
        source=MLMREV.format("star", "rows without missing values"),
        split=("together_column", "id"),
        caution=RECUR,
    ),
    "egsingle": Facts(
        what="pupils' growth in mathematics, US Sustaining Effects Study",
        client="schoolid", label="math", task="regression", size=(60, 7230, 10), drop=("childid",),
        sha256="393290dfed2d4cf1d03807f9baa1fead1ec16233a74ff004faffe2c045f6e089",
        licence="GPL-2 or later",
        source=MLMREV.format("egsingle", "all rows"),
        split=("together_column", "childid"),
        caution=RECUR,
    ),
    "census2000": Facts(
        what="weekly incomes (logarithms) in the United States' census of 2000",
        client="state", label="lweekinc", task="regression", size=(51, 29501, 3), drop=("puma",),
        sha256="34e2b6eab462b9540364c3866fbd9217be4b93c4e97eed56be6a2927d6b54da5",
        licence="unclear",
        source="the data set census2000 of R's package wooldridge, all rows",
    ),
}  # fmt: skip
