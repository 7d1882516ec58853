"""Of properties that are tested on many instances, the instances that `make test` looks at.

Each of these tests compiles programs of its own for every instance. The others of them run in `make test-all`, and
wherever a test is asked for by its name. An instance may be left out here if what it alone has is tested elsewhere:
every kind of algorithm has the rest of the protocol suite, every surrogate and estimator its own tests, every method a
page or an example whose code runs. Who edits a page that is left out, runs it by its name.
"""

from __future__ import annotations

from collections.abc import Iterable

# Kinds of rounds: sums at a server, points that peers mix; and with a set-up round and duals of single samples.
ROUNDS, STATES = ("fedem", "gossip:ring"), ("fedem", "gossip:ring", "mocha")

PROTOCOL = "tests/test_protocol.py"
# Options of methods that are in the protocol suite without them, and have tests of their own: left out of all of it.
# So are methods whose rounds are those of another there: of FedAvg with a penalty or with training at the end, of
# ASVRCD without variates, of the Chebyshev criterion with weights that stay.
VARIANTS = {
    *("asvrcd:replay", "fedavg:hold", "fedem:newton", "fedem:shares", "fedrep", "gossip:failing", "pfedme:paper"),
    *("surrogate:bohning", "fedprox", "fedavg_plus", "acd", "weighted_sum"),
}

LOOKED_AT: dict[str, tuple[str, ...]] = {
    "tests/flower/test_network_rounds.py::test_the_same_seed_gives_the_numbers_of_the_simulator": ("fedem",),
    "tests/flower/test_network_privacy.py::test_the_budget_ends_training_and_the_seed_does_not_tell_the_noise": (
        "together",
    ),
    "tests/test_protocol.py::test_runs_side_by_side_are_the_single_runs": ROUNDS,
    "tests/test_protocol.py::test_one_client_at_a_time_from_files_and_with_more_padding_changes_nothing": STATES,
    "tests/test_protocol.py::test_resident_clients_one_at_a_time_change_nothing": ("fedem",),
    "tests/test_protocol.py::test_streaming_clients_through_in_chunks_changes_nothing": ROUNDS,
    "tests/core/test_lanes.py::test_a_simulation_in_lanes_is_the_same": ("fedem-participation1",),
    "tests/flower/test_network_faults.py::test_who_reads_each_upload_bears_one_that_does_not_arrive": ("clustered",),
    "tests/test_protocol.py::test_a_message_that_is_lost_changes_nobody": (*STATES, "fedmm"),
    "tests/engines/test_mesh.py::test_eight_devices_are_as_one": (  # clients, and whole runs, dealt over the devices
        "gossip:ring/mesh-gossip:ring/one",
        "fedem/many-fedem/many_one",
    ),
    "tests/engines/test_mesh.py::test_two_processes_each_with_its_own_samples_are_as_one": ("mocha/streamed",),
    "tests/cli/test_main.py::test_quick_experiments_run": ("fedem/j4-clusters-clusters recovered",),
    "tests/engines/test_extremes.py::test_an_upload_too_large_to_be_added_up_is_rejected_and_its_client_named": (
        "fedavg-1e+36-options1",
        "fedem-3e+38-options2",
    ),
    "tests/engines/test_rounds.py::test_a_deployed_model_knows_training_samples_alone": ("fedem",),
    "tests/estimators/test_surrogate_estimators.py::test_scikit_learns_own_checks": ("FederatedKMeans",),
    "tests/estimators/test_fedem_estimators.py::test_scikit_learns_own_checks": ("FedEMRegressor",),
    "tests/exchange/test_channel.py::test_compressed_training_still_comes_to_the_optimum": ("top-k:0.3, quantized:8",),
    "tests/exchange/test_gossip.py::test_equal_weights_are_the_server": ("fedavg:adam",),
    "tests/exchange/test_gossip.py::test_statistics_gossip_too_and_equal_weights_are_the_server": ("0.3-True",),
    "tests/exchange/test_secure_sum.py::test_a_round_of_every_linear_method_sums_up_to_the_plain_sum": (
        "fedem",
        "fedmm",
        "scaffold",
    ),
    "tests/exchange/test_star.py::test_a_weighted_mean_of_uploads_side_by_side_is_that_of_their_sum": ("fedem",),
    "tests/methods/test_convergence.py::test_alpha_is_small_for_an_exact_solver_and_large_for_a_lazy_one": ("fedem",),
    "tests/methods/test_coordinate.py::test_half_of_the_clients_at_a_time_reach_the_same_minimiser": ("asvrcd-replay",),
    "tests/methods/test_coordinate.py::test_the_minimiser_is_scipys": ("acd-150", "asvrcd-2500"),
    "tests/models/test_maps.py::test_a_network_is_the_same_in_both": ("averaged",),  # and refreshed at the end
    "tests/objectives/test_solvers_agree.py::test_every_solver_finds_the_reference_solution": tuple(
        f"{objective}-{solver}"
        for objective in ("multi_task", "mixture", "apfl2", "weight_sharing", "residual", "custom")
        for solver in ("lsgd", "acd", "asvrcd")
    ),
    "tests/methods/test_lsgd.py::test_neural_networks_train": ("weight_sharing",),
    "tests/engines/test_predictions.py::test_scores_follow_from_predictions": ("fedem",),
    "tests/engines/test_replicas.py::test_replicas_are_the_separate_runs": ("fedem",),
    "tests/surrogates/test_checks.py::test_planted_faults_are_named": (
        "g drops far away",
        "KL in the other order",
        "always uniform",
        "zero",
        "half a step",
        "g tilted",
        "L too small by a tenth",
    ),
    "tests/surrogates/test_checks.py::test_shipped_surrogates_pass": ("em", "jaakkola", "proximal"),
    "tests/surrogates/test_em_surrogates.py::test_promises": ("full", "means", "poisson"),
    "tests/surrogates/test_factorization_surrogates.py::test_promises": ("dictionary", "k-means"),
    "tests/methods/test_fedmm.py::test_every_surrogate_is_its_centralized_algorithm_step_by_step": (
        "dictionary, ridge",
        "Gaussian mixture, full",
        "regression mixture",
        "proximal gradient, L1",
        "ratings, per item",
        "k-means",
        "Poisson",
        "Remark 1",
    ),
    "tests/models/test_packed.py::test_packed_networks_train_as_they_did": ("single-averaged", "mixed-batch"),
    "tests/solvers/test_black_box.py::test_methods_train_with_black_boxes": ("fedem",),
    "tests/solvers/test_by_client.py::test_each_client_has_its_solvers_result": ("vmap",),
    "tests/solvers/test_host_function.py::test_a_gradient_step_by_hand_is_one_of_sgd": ("fedem",),
    "tests/surrogates/test_em.py::test_surrogate_optimization_is_fed_em": ("epochs and momentum",),
}

# Studies, tests of the tests' own tools, and long pages on methods that have tests of their own.
LATER = {
    "reproductions/tests/test_fedem_deep.py"
    "::test_fedavg_ends_with_the_scores_of_fedavg_plus_and_of_clients_with_some_of_their_samples",
    "reproductions/tests/test_fedem_deep_seeds.py::test_seeds_side_by_side_are_put_together",
    "reproductions/tests/test_fedem_experiments.py::test_all_that_theorems_bound_is_measured_with_and_without_a_server",
    "reproductions/tests/test_fedem_experiments.py::test_networks_stand_beside_the_server_with_what_they_are_like",
    "reproductions/tests/test_fedmm_experiments.py::test_mean_fields_are_under_the_bound_of_theorem_1",
    "reproductions/tests/test_fedmm_experiments.py::test_the_step_of_parameter_averaging_is_measured_in_surrogate_space",
    "reproductions/tests/test_fedmm_transport.py::test_errors_are_zero_at_the_truth_and_exact_for_an_affine_map",
    "reproductions/tests/test_tradeoffs.py::test_the_theorem_holds_and_points_within_rounds_are_the_agents_own[None]",
    "reproductions/tests/test_tradeoffs.py::test_agents_with_labels_of_their_own_share_no_image",
    "reproductions/tests/test_unified.py::test_a_path_has_gaps_and_errors_of_every_data_set",
    "reproductions/tests/test_unified.py::test_a_quick_figure_has_its_tables_and_pictures",
    "reproductions/tests/test_unified_images.py::test_a_quick_comparison_runs",
    "tests/mutants/test_planted.py::test_outcomes_are_told_apart_kept_and_found_again",
    "tests/mutants/test_planted.py::test_a_test_that_fails_anyway_kills_nothing",
    "tests/cli/test_unlabelled_runs.py::test_a_gaussian_mixture_has_the_log_likelihood_of_scikit_learns",
    "tests/engines/test_mesh.py::test_a_run_that_began_on_eight_devices_goes_on_with_fewer[gossip:ring/resumed_2]",
    "tests/methods/test_coordinate.py"
    "::test_without_control_variates_a_noise_level_remains_that_shrinks_with_the_step[scd]",
    "tests/methods/test_coordinate.py::test_a_warm_start_with_absences_reaches_the_minimiser",
    "tests/methods/test_lsgd.py::test_gossip_on_the_complete_graph_is_the_server",
    "tests/objectives/test_solvers_agree.py::test_every_solver_finds_the_reference_solution[multi_task-asvrcd]",
    "tests/test_benchmarks.py::test_a_study_of_attacks_is_one_program_for_all_rules_and_attacks",
    "tests/test_benchmarks.py::test_asvrcd_in_numpy_does_our_iterations",
    "tests/test_benchmarks.py::test_gossip_is_measured_on_a_small_network",
    "tests/test_benchmarks.py::test_scaling_measures_a_small_population",
    "tests/test_benchmarks.py::test_solvers_are_measured_on_a_small_problem",
    *(
        f"tests/test_docs.py::test_python_blocks_run[docs/{page}.md]"
        for page in (
            "architecture",
            "local-solvers",
            "methods/compression",
            "methods/decentralized",
            "methods/fair",
            "methods/fedmm",
            "methods/personal-layers",
            "methods/surrogate-optimization",
            "methods/trade-offs",
            "methods/transport",
            "methods/unified-solvers",
        )
    ),
}

# Examples in docstrings that simulate a method, as its own page does in tests/test_docs.py.
ON_PAGES = {
    "src/majorant/methods": (
        *(
            "apfl",
            "clustered",
            "ditto",
            "fedavg",
            "fedavg_plus",
            "fedbn",
            "fedem",
            "fedmgda_plus",
            "fedper",
            "fedprox",
            "fedrep",
        ),
        *("local", "mocha", "pfedme", "q_ffl", "scaffold"),
    ),
    "src/majorant/exchange": ("gossip",),
}
TESTED_ALIKE = {  # by the tests of their packages
    "src/majorant/models/convex.py::majorant.models.convex.dense_icnn",
    "src/majorant/solvers/private_sgd.py::majorant.solvers.private_sgd.local_private_sgd",
    "src/majorant/surrogates/checks.py::majorant.surrogates.checks.check_surrogate",
    "src/majorant/surrogates/em.py::majorant.surrogates.em.em_surrogate",
    "src/majorant/surrogates/logistic_bounds.py::majorant.surrogates.logistic_bounds.logistic_bound",
    "src/majorant/surrogates/linear/gradient.py::majorant.surrogates.linear.gradient.proximal_gradient",
    "src/majorant/surrogates/quadratic.py::majorant.surrogates.quadratic.quadratic_surrogate",
    "src/majorant/surrogates/proximal.py::majorant.surrogates.proximal.proximal_surrogate",
    "src/majorant/tradeoffs/centralized.py::majorant.tradeoffs.centralized.agreement",
    "src/majorant/tradeoffs/front.py::majorant.tradeoffs.front.pareto_front",
    "src/majorant/tradeoffs/weighted_sum.py::majorant.tradeoffs.weighted_sum.weighted_sum",
}
EXAMPLES = TESTED_ALIKE | {
    f"{folder}/{name}.py::{folder.removeprefix('src/').replace('/', '.')}.{name}.{name}"
    for folder, names in ON_PAGES.items()
    for name in names
}


def is_left_out(test: str) -> bool:
    """Whether a test, by pytest's id, is an instance that `make test` does not look at."""
    name, _, instance = test.partition("[")
    instance = instance.removesuffix("]")
    return (
        test in EXAMPLES
        or test in LATER
        or (name in LOOKED_AT and instance not in LOOKED_AT[name])
        or (name.startswith(f"{PROTOCOL}::") and instance in VARIANTS)
    )


def unknown(tests: Iterable[str]) -> list[str]:
    """Instances in the table that are none of the tests, of those whose files are among them."""
    found = set(tests)
    files = {test.partition("::")[0] for test in found}
    listed = [f"{name}[{one}]" for name, some in LOOKED_AT.items() for one in some if name.partition("::")[0] in files]
    listed += [test for test in EXAMPLES | LATER if test.partition("::")[0] in files]
    listed += [f"{PROTOCOL}::test_resuming_is_bitwise[{one}]" for one in VARIANTS if PROTOCOL in files]
    return [test for test in listed if test not in found]
