"""The paper on the unified framework: solvers of personalized objectives."""

from majorant.app.reproduce import lazily

EXPERIMENTS = {
    "unified/figure1": lazily(
        "majorant_reproductions.unified.figures:figure1",
        "solvers of personalized objectives: mixture, and Table 4's times",
    ),
    "unified/figure2": lazily(
        "majorant_reproductions.unified.figures:figure2",
        "solvers of personalized objectives: weight sharing, and Table 5",
    ),
    "unified/rates": lazily(
        "majorant_reproductions.unified.theory:rates", "linear rates, rounds against L^w/μ, who stalls and who does not"
    ),
    "unified/personalization": lazily(
        "majorant_reproductions.unified.theory:personalization", "fewer rounds the more personal models are"
    ),
    "unified/figure3": lazily(
        "majorant_reproductions.unified.images:figure3", "LSGD-, ASCD-, ASVRCD-PFL on images, 2 classes a device"
    ),
    "unified/figure4": lazily("majorant_reproductions.unified.images:figure4", "the same with 4 classes"),
    "unified/figure5": lazily("majorant_reproductions.unified.images:figure5", "the same with 8 classes"),
    "unified/figure6": lazily(
        "majorant_reproductions.unified.images:figure6", "ASCD-PFL: how often to communicate, against theory's p_w"
    ),
    "unified/figure7": lazily(
        "majorant_reproductions.unified.images:figure7", "ASCD-PFL with and without rescaling the shared block"
    ),
    "unified/figure8": lazily(
        "majorant_reproductions.unified.images:figure8", "the multi-task objective with growing relaxation"
    ),
}
