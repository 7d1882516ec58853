"""The FedMM paper: dictionary learning, transport maps, equivalences, Theorem 1."""

from majorant.app.reproduce import lazily

EXPERIMENTS = {
    "fedmm/figure1": lazily(
        "majorant_reproductions.fedmm.figures:figure1", "dictionary learning: averages of surrogates against parameters"
    ),
    "fedmm/figure2": lazily(
        "majorant_reproductions.fedmm.figures:figure2", "dictionary learning with control variates on and off"
    ),
    "fedmm/figure3": lazily(
        "majorant_reproductions.fedmm.transport:figure3",
        "transport maps on the Wasserstein-2 benchmark: FedMM-OT, FedAdam, FedAvg, centralized, alone",
    ),
    "fedmm/longer": lazily(
        "majorant_reproductions.fedmm.figures:longer", "the same with larger steps and more rounds: who drifts"
    ),
    "fedmm/bits": lazily(
        "majorant_reproductions.fedmm.figures:bits",
        "the objective against bits sent: 32, 8, 4, 2 a number, absent clients",
    ),
    "fedmm/equivalence": lazily(
        "majorant_reproductions.fedmm.equivalence:equivalence",
        "every surrogate against centralized MM, scikit-learn and Remark 1",
    ),
    "fedmm/theorem1": lazily(
        "majorant_reproductions.fedmm.theory:theorem1", "mean fields along runs under Theorem 1's bound"
    ),
}
