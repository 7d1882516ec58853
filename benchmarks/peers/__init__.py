"""The tools that people use for federated experiments, side by side: same data, same steps, one machine, one run.

``python -m benchmarks.peers`` makes the data of every piece of work, lets each tool do it in a process of its own, and
prints and saves the table. The tools live in an environment of their own, as their dependencies exclude each other's:

    python -m venv peers && peers/bin/pip install torch pfl 'flwr[simulation]' fedjax
    python -m benchmarks.peers --python peers/bin/python --pfllib CLONE --fedem CLONE --out peers.json

Scripts of peers import NumPy and their own tool only. A tool that is not there is named in the table as not run.
"""
