"""The trade-offs paper: agents and a coordinator."""

from majorant.app.reproduce import lazily

EXPERIMENTS = {
    "tradeoffs/iid": lazily(
        "majorant_reproductions.tradeoffs.images:iid", "agents and a coordinator, Tables 2 to 4, five ways to run them"
    ),
    "tradeoffs/two-digits": lazily(
        "majorant_reproductions.tradeoffs.images:two_digits", "Tables 5 to 7, whether λ matters, penalties that bite"
    ),
    "tradeoffs/fashion": lazily("majorant_reproductions.tradeoffs.images:fashion", "both experiments on Fashion-MNIST"),
    "tradeoffs/logistic": lazily(
        "majorant_reproductions.tradeoffs.theory:logistic", "softmax regression against the true Pareto front"
    ),
    "tradeoffs/collapse": lazily(
        "majorant_reproductions.tradeoffs.collapse:collapse", "large λ: is Θ = 0 the minimiser or a trap"
    ),
    "tradeoffs/theorem": lazily(
        "majorant_reproductions.tradeoffs.theory:theorem", "Theorem 2.4: measured suboptimality and the bound"
    ),
    "tradeoffs/chebyshev": lazily(
        "majorant_reproductions.tradeoffs.chebyshev:chebyshev",
        "a front that is not convex, and the worst client of fair methods",
    ),
}
