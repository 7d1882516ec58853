"""Flower: the same algorithms on a real network, each silo with its own rows and private state on its own disk.

====================================  =================================================================================
`study`                               what all parties agree to run, and what cannot run on a network
`letters`, `post`                     messages: facts in JSON and checked bytes; how Flower carries them
`own_rows`, `states`, `silo`          a silo: its rows, its folder, its answers
`gathering`, `coordinator`, `ledger`  the server: who is there, the rounds, the run folder
`desk`, `uploads`, `scores`           what it asks for in a round, and at an evaluation
`masks`, `secret_sums`                secure sums: the silo's side, the server's
`apps`                                the ClientApp and the ServerApp
`new`, `certificates`, `up`           a Flower app folder; a whole federation on this machine
====================================  =================================================================================

Flower itself (``flwr``, an extra) is imported in `post` and `apps` alone.
"""
