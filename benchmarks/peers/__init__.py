"""The tools that people use for federated experiments, side by side: same data, same steps, one machine, one run.

``python -m benchmarks.peers`` makes the data of every piece of work, lets each tool do it in a process of its own, and
prints and saves the tables. The tools live in an environment of their own, as their dependencies exclude each other's;
FedJAX runs in ours, from a folder that it was unpacked to:

    python -m venv peers && peers/bin/pip install torch pfl 'flwr[simulation]' hydra-core scikit-learn pandas tqdm
    pip install --no-deps --target fedjax fedjax
    python -m benchmarks.peers --python peers/bin/python --path fedjax --pfllib CLONE/system --fl-bench CLONE \\
        --fedem CLONE --out benchmarks/results/peers.json --page docs/how-fast.md README.md

On a GPU the works are deep networks on images, and pieces can be chosen and are run in the order given:

    python -m benchmarks.peers --device cuda --tools ours-mixed ours torch_loop pfl_research --seconds 150 …

Scripts of peers import NumPy and their own tool only. A tool that is not there is named in the table as not run.
Packages that a tool imports but does not use here may be absent (`benchmarks.peers.absent`).
"""
