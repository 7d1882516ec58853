"""The protocol behind a secure sum between real machines: masks that cancel, and drop-outs at every step.

Four steps, as in Flower's SecAgg+ with every client a neighbour of every other. A `Member` is a client in one round, a
`Collector` the server; both are plain Python around arrays of residues (`SecureSum.encode`), so that any transport can
carry their messages::

    keys       each member sends two public keys                                        and hears those of the others
    shares     each sends to each, encrypted, a share of its own seed and of its key     and hears those for itself
    masked     each sends residues + own mask ± a mask with every member that shared     to the server alone
    reveal     each gives, of members whose vector arrived, the share of their seed, and of members who were lost after
               they had shared, the share of their key; never both. Enough shares open seeds and keys, and these the sum

Who is lost before ``shares`` is out of the sum, and has no masks in it. Who is lost before ``masked`` is out of it,
and its masks with the others are taken off with its key. Who is lost before ``reveal`` is in the sum. With fewer than
``threshold`` members left at any step nobody can open anything.

The cryptography is not ours: keys, key agreement, encryption and Shamir's shares are Flower's
(`flwr.common.secure_aggregation`, on the packages cryptography and pycryptodome), masks are the key stream of ChaCha20
from cryptography. Flower's own generator of masks (1.41) is not used: it folds a seed of 32 bytes to 32 bits, which a
curious server could try one after the other. It protects against a server that is curious and follows the protocol;
one that lies about public keys, or about who was lost, needs signatures and a round of consistency checks on top
(Bonawitz et al., section 6.2), which are not here.

References: Bonawitz et al., CCS 2017; Bell et al., CCS 2020 (see `secure_sum`).
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

PublicKeys = tuple[bytes, bytes]  # for masks, and for encryption


class Stopped(RuntimeError):
    """Too few members are left to open a sum, or a message is not what the protocol allows."""


class Shares(NamedTuple):
    """What a member gives at the end: shares of seeds, and of keys, by whose they are."""

    seeds: dict[int, bytes]
    keys: dict[int, bytes]


class Member:
    """A client in one round of the protocol; keys and seeds are drawn anew for every round."""

    def __init__(self, own: int, threshold: int) -> None:
        from flwr.supercore.primitives.asymmetric import generate_key_pairs, private_key_to_bytes, public_key_to_bytes

        if threshold < 2:
            raise ValueError(f"the threshold of a secure sum must be at least 2, got {threshold}")
        self.own, self.threshold = own, threshold
        pairs = [generate_key_pairs() for _ in range(2)]
        self.private = [private_key_to_bytes(private) for private, _ in pairs]
        self.public: PublicKeys = (public_key_to_bytes(pairs[0][1]), public_key_to_bytes(pairs[1][1]))
        self.seed = os.urandom(32)
        self.others: dict[int, PublicKeys] = {}
        self.held = Shares({}, {})  # of members that shared with this one
        self.revealed = False

    def shares(self, public: Mapping[int, PublicKeys]) -> dict[int, bytes]:
        """For every other member an encrypted share of the seed and of the key."""
        from flwr.common.secure_aggregation.crypto.shamir import create_shares
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
        from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

        enough(len(public), self.threshold, "sent their keys")
        keys = [key for pair in public.values() for key in pair]
        if public.get(self.own) != self.public or len(set(keys)) != len(keys):
            raise Stopped("the public keys that came back are not those that were sent: somebody stands between")
        self.others = {number: pair for number, pair in public.items() if number != self.own}
        order = sorted(public)
        seeds = dict(zip(order, create_shares(self.seed, self.threshold, len(order)), strict=True))
        secrets = dict(zip(order, create_shares(self.private[0], self.threshold, len(order)), strict=True))
        self.held = Shares({self.own: seeds[self.own]}, {self.own: secrets[self.own]})
        plain = lambda to: share_keys_plaintext_concat(self.own, to, seeds[to], secrets[to])
        return {to: encrypt(agreed(self.private[1], pair[1]), plain(to)) for to, pair in self.others.items()}

    def masked(self, residues: np.ndarray, modulus: int, received: Mapping[int, bytes]) -> np.ndarray:
        """The residues modulo 2^modulus with the member's own mask and those that it has with all who shared."""
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt
        from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_separate

        enough(len(received) + 1, self.threshold, "shared their secrets")
        for number, ciphertext in received.items():
            opened = decrypt(agreed(self.private[1], self.others[number][1]), ciphertext)
            source, target, seed, key = share_keys_plaintext_separate(opened)
            if (source, target) != (number, self.own):
                raise Stopped(f"member {self.own} was given shares that are not from {number} to it")
            self.held.seeds[number], self.held.keys[number] = seed, key
        total = residues.astype(np.uint64) + stream(self.seed, residues.size)
        for number in received:
            total += sign(self.own, number) * pairwise(self.private[0], self.others[number][0], residues.size)
        return modulo(total, modulus)

    def reveal(self, arrived: set[int], lost: set[int]) -> Shares:
        """Shares of the seeds of those whose vectors arrived, and of the keys of those who were lost: once, and never
        both of one member's, which would open its vector."""
        enough(len(arrived), self.threshold, "sent their vectors")
        if self.revealed or arrived & lost or not (arrived | lost) <= set(self.held.seeds):
            raise Stopped(f"member {self.own} is asked for shares that would open a single vector: it gives none")
        self.revealed = True
        return Shares({n: self.held.seeds[n] for n in arrived}, {n: self.held.keys[n] for n in lost})

    def saved(self) -> bytes:
        """All that the member must remember between two messages; private."""
        return json.dumps(packed(self.__dict__)).encode()

    @classmethod
    def restored(cls, saved: bytes) -> Member:
        """A member from what it remembered."""
        found = cls.__new__(cls)
        found.__dict__.update(unpacked(json.loads(saved)))
        found.held, found.public = Shares(*found.held), (found.public[0], found.public[1])
        return found


class Collector:
    """The server in one round: it hands messages on, and opens the sum."""

    def __init__(self, threshold: int, modulus: int) -> None:
        self.threshold, self.modulus = threshold, modulus
        self.public: dict[int, PublicKeys] = {}
        self.letters: dict[int, dict[int, bytes]] = {}  # from, to
        self.vectors: dict[int, np.ndarray] = {}

    def with_keys(self, public: Mapping[int, PublicKeys]) -> dict[int, PublicKeys]:
        """The keys that all members are sent."""
        enough(len(public), self.threshold, "sent their keys")
        self.public = dict(public)
        return self.public

    def with_shares(self, letters: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
        """What each member that has shared is sent: the shares for it, by whose they are."""
        enough(len(letters), self.threshold, "shared their secrets")
        self.letters = {number: dict(sent) for number, sent in letters.items()}
        return {to: {n: sent[to] for n, sent in self.letters.items() if n != to} for to in self.letters}

    def with_vectors(self, vectors: Mapping[int, np.ndarray]) -> tuple[set[int], set[int]]:
        """Whose vectors have arrived, and who was lost after it had shared."""
        enough(len(vectors), self.threshold, "sent their vectors")
        self.vectors = dict(vectors)
        return set(vectors), set(self.letters) - set(vectors)

    def opened(self, revealed: Mapping[int, Shares]) -> np.ndarray:
        """The sum of the residues of all whose vectors arrived, modulo 2^modulus."""
        from flwr.common.secure_aggregation.crypto.shamir import combine_shares

        enough(len(revealed), self.threshold, "gave their shares")
        size = next(iter(self.vectors.values())).size
        total = sum((v.astype(np.uint64) for v in self.vectors.values()), np.zeros(size, np.uint64))
        together = lambda kind, number: combine_shares([getattr(s, kind)[number] for s in revealed.values()])
        for number in self.vectors:
            total -= stream(together("seeds", number), size)
        for number in set(self.letters) - set(self.vectors):
            key = together("keys", number)
            for other in self.vectors:
                total -= sign(other, number) * pairwise(key, self.public[other][0], size)
        return modulo(total, self.modulus)


def enough(count: int, threshold: int, what: str) -> None:
    """Stops where too few members are left."""
    if count < threshold:
        raise Stopped(f"{count} members have {what}, and a secure sum needs {threshold}: the round is not opened")


def agreed(private: bytes, public: bytes) -> bytes:
    """The key that two members share."""
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

    return generate_shared_key(bytes_to_private_key(private), bytes_to_public_key(public))


def pairwise(private: bytes, public: bytes, size: int) -> np.ndarray:
    """The mask that two members have in common."""
    return stream(base64.urlsafe_b64decode(agreed(private, public)), size)


def stream(key: bytes, size: int) -> np.ndarray:
    """Random whole numbers of 64 bits from a key of 32 bytes that is used once."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * size)), "<u8")


def sign(own: int, other: int) -> np.uint64:
    """+1 or −1, modulo 2^64: a mask is added by one of two members and subtracted by the other."""
    return np.uint64(1) if own > other else np.uint64(2**64 - 1)


def modulo(total: np.ndarray, modulus: int) -> np.ndarray:
    """Whole numbers modulo 2^modulus."""
    return total & np.uint64(2**modulus - 1)


def packed(value: Any) -> Any:
    """A value of dictionaries, lists, bytes and numbers for JSON."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {"items": [[packed(k), packed(v)] for k, v in value.items()]}
    return [packed(v) for v in value] if isinstance(value, list | tuple) else value


def unpacked(value: Any) -> Any:
    """The inverse of `packed`, with lists for tuples."""
    if isinstance(value, list):
        return [unpacked(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    pair = lambda v: tuple(v) if isinstance(v, list) else v
    return {unpacked(k): pair(unpacked(v)) for k, v in value["items"]}
