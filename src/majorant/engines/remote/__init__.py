"""Rounds by messages: what a server and clients on different machines compute, and the bytes that travel between them.

``client`` and ``server`` run the functions of `engines.client_part` on one client, and those of `engines.rounds` on
what arrives; ``wire`` turns trees of arrays into bytes and back; ``sums`` are numbers for secure sums. Who carries
the bytes is not known here: `majorant.app.flower` does it by Flower.
"""
