"""The protocol behind a secure sum between real machines: masks that cancel, and drop-outs at every step.

Four steps, as in Flower's SecAgg+ with every client a neighbour of every other. A `Member` is a client in one sum, a
`Collector` the server; both are plain Python around arrays of residues (`SecureSum.encode`, or `exact_sums`), so that
any transport can carry their messages::

    keys       each member sends two public keys                                        and hears those of the others
    shares     each sends to each, encrypted, a share of its own seed and of its key     and hears those for itself
    masked     each sends residues + own mask ± a mask with every member that shared     to the server alone
    reveal     each gives, of members whose vector arrived, the share of their seed, and of members who were lost after
               they had shared, the share of their key; never both. Enough shares open seeds and keys, and these the sum

Who is lost before ``shares`` is out of the sum, and has no masks in it. Who is lost before ``masked`` is out of it,
and its masks with the others are taken off with its key. Who is lost before ``reveal`` is in the sum. With fewer than
``threshold`` members left at any step nobody can open anything. A member that is asked for a step twice answers the
same; asked for another vector under the same masks, or for other shares, it answers nothing.

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
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

PublicKeys = tuple[bytes, bytes]  # for masks, and for encryption
Modulus = Any  # the bits of all residues, or an array with those of each; more than 64 for Python's whole numbers


class Stopped(RuntimeError):
    """Too few members are left to open a sum, or a message is not what the protocol allows."""


class Shares(NamedTuple):
    """What a member gives at the end: shares of seeds, and of keys, by whose they are."""

    seeds: dict[int, bytes]
    keys: dict[int, bytes]


class Member:
    """A client in one sum; keys and seeds are drawn anew for every sum."""

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
        self.sent: dict[int, bytes] = {}  # the encrypted shares for the others
        self.sealed = b""  # a digest of the vector that was masked
        self.revealed: list[list[int]] = []  # who arrived and who was lost, when it was asked for shares

    def shares(self, public: Mapping[int, PublicKeys]) -> dict[int, bytes]:
        """For every other member an encrypted share of the seed and of the key."""
        from flwr.common.secure_aggregation.crypto.shamir import create_shares
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
        from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

        enough(len(public), self.threshold, "sent their keys")
        keys = [key for pair in public.values() for key in pair]
        if public.get(self.own) != self.public or len(set(keys)) != len(keys):
            raise Stopped("the public keys that came back are not those that were sent: somebody stands between")
        others = {number: pair for number, pair in public.items() if number != self.own}
        if self.sent:
            if others != self.others:
                raise Stopped(f"member {self.own} is asked to share its secrets with others than before")
            return self.sent
        self.others = others
        order = sorted(public)
        seeds = dict(zip(order, create_shares(self.seed, self.threshold, len(order)), strict=True))
        secrets = dict(zip(order, create_shares(self.private[0], self.threshold, len(order)), strict=True))
        self.held = Shares({self.own: seeds[self.own]}, {self.own: secrets[self.own]})
        plain = lambda to: share_keys_plaintext_concat(self.own, to, seeds[to], secrets[to])
        self.sent = {to: encrypt(agreed(self.private[1], pair[1]), plain(to)) for to, pair in self.others.items()}
        return self.sent

    def masked(self, residues: np.ndarray, modulus: Modulus, received: Mapping[int, bytes]) -> np.ndarray:
        """The residues modulo 2^modulus with the member's own mask and those that it has with all who shared."""
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt
        from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_separate

        enough(len(received) + 1, self.threshold, "shared their secrets")
        if not set(received) <= set(self.others):
            raise Stopped(f"member {self.own} was given shares of somebody whose keys it does not know")
        what = hashlib.sha256(repr([sorted(received), residues.tolist()]).encode()).digest()
        if self.sealed not in (b"", what):
            raise Stopped(f"member {self.own} is asked for a second vector under the same masks: it gives none")
        self.sealed = what
        for number, ciphertext in received.items():
            try:
                opened = decrypt(agreed(self.private[1], self.others[number][1]), ciphertext)
                source, target, seed, key = share_keys_plaintext_separate(opened)
            except Exception:  # of the packages that decrypt: each has errors of its own
                raise Stopped(f"member {self.own} cannot read the shares of {number}") from None
            if (source, target) != (number, self.own):
                raise Stopped(f"member {self.own} was given shares that are not from {number} to it")
            self.held.seeds[number], self.held.keys[number] = seed, key
        total = summable(residues, modulus) + stream(self.seed, residues.size, modulus)
        for number in received:
            mask = pairwise(self.private[0], self.others[number][0], residues.size, modulus)
            total = added(total, mask, self.own, number)
        return modulo(total, modulus)

    def reveal(self, arrived: set[int], lost: set[int]) -> Shares:
        """Shares of the seeds of those whose vectors arrived, and of the keys of those who were lost: once, and never
        both of one member's, which would open its vector."""
        enough(len(arrived), self.threshold, "sent their vectors")
        asked = [sorted(arrived), sorted(lost)]
        again = self.revealed and asked != self.revealed
        if again or arrived & lost or not (arrived | lost) <= set(self.held.seeds):
            raise Stopped(f"member {self.own} is asked for shares that would open a single vector: it gives none")
        self.revealed = asked
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
        found.revealed = [list(numbers) for numbers in found.revealed]
        return found


class Collector:
    """The server in one round: it hands messages on, and opens the sum."""

    def __init__(self, threshold: int, modulus: Modulus) -> None:
        self.threshold, self.modulus = threshold, modulus
        self.public: dict[int, PublicKeys] = {}
        self.letters: dict[int, dict[int, bytes]] = {}  # from, to
        self.vectors: dict[int, np.ndarray] = {}

    def with_keys(self, public: Mapping[int, PublicKeys]) -> dict[int, PublicKeys]:
        """The keys that all members are sent; a member whose keys are none is out of the sum."""
        self.public = {number: pair for number, pair in public.items() if all(map(is_key, pair))}
        enough(len(self.public), self.threshold, "sent their keys")
        return self.public

    def with_shares(self, letters: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
        """What each member that has shared is sent: the shares for it, by whose they are.

        A member that has not a share for every other one is out of the sum.
        """
        whole = lambda number, sent: set(sent) == set(self.public) - {number}
        self.letters = {number: dict(sent) for number, sent in letters.items() if whole(number, sent)}
        enough(len(self.letters), self.threshold, "shared their secrets")
        return {to: {n: sent[to] for n, sent in self.letters.items() if n != to} for to in self.letters}

    def with_vectors(self, vectors: Mapping[int, np.ndarray]) -> tuple[set[int], set[int]]:
        """Whose vectors have arrived, and who was lost after it had shared."""
        enough(len(vectors), self.threshold, "sent their vectors")
        self.vectors = dict(vectors)
        return set(vectors), set(self.letters) - set(vectors)

    def opened(self, revealed: Mapping[int, Shares]) -> np.ndarray:
        """The sum of the residues of all whose vectors arrived, modulo 2^modulus."""
        enough(len(revealed), self.threshold, "gave their shares")
        size = next(iter(self.vectors.values())).size
        total = sum((summable(v, self.modulus) for v in self.vectors.values()), summable(np.zeros(size), self.modulus))
        for number in self.vectors:
            seed = secret_of([given.seeds.get(number) for given in revealed.values()], number)
            total = total - stream(seed, size, self.modulus)
        for number in set(self.letters) - set(self.vectors):
            key = secret_of([given.keys.get(number) for given in revealed.values()], number)
            if public_of(key) != self.public[number][0]:
                raise Stopped(f"the shares of member {number}'s key do not go together: the round is not opened")
            for other in self.vectors:
                mask = pairwise(key, self.public[other][0], size, self.modulus)
                total = added(total, mask, number, other)  # the opposite of what the other did
        return modulo(total, self.modulus)


def secret_of(shares: list[bytes | None], number: int) -> bytes:
    """A seed or a key from its shares."""
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares

    given = [share for share in shares if share is not None]
    if len(given) < len(shares):
        raise Stopped(f"a share of member {number}'s secrets is missing: the round is not opened")
    try:
        return combine_shares(given)
    except Exception:  # Flower's: shares that do not go together
        raise Stopped(f"the shares of member {number}'s secrets do not go together: the round is not opened") from None


def public_of(private: bytes) -> bytes:
    """The public key of a private one; nothing where it is none."""
    from flwr.supercore.primitives.asymmetric import bytes_to_private_key, public_key_to_bytes

    try:
        return public_key_to_bytes(bytes_to_private_key(private).public_key())
    except (ValueError, TypeError):
        return b""


def enough(count: int, threshold: int, what: str) -> None:
    """Stops where too few members are left."""
    if count < threshold:
        raise Stopped(f"{count} members have {what}, and a secure sum needs {threshold}: the round is not opened")


def agreed(private: bytes, public: bytes) -> bytes:
    """The key that two members share."""
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

    return generate_shared_key(bytes_to_private_key(private), bytes_to_public_key(public))


def is_key(public: bytes) -> bool:
    """Whether bytes are a public key that members can agree on a secret with."""
    from flwr.supercore.primitives.asymmetric import generate_key_pairs, private_key_to_bytes

    try:
        return bool(agreed(private_key_to_bytes(generate_key_pairs()[0]), public))
    except Exception:  # of the package that reads them, and of other curves
        return False


def pairwise(private: bytes, public: bytes, size: int, modulus: Modulus) -> np.ndarray:
    """The mask that two members have in common."""
    return stream(base64.urlsafe_b64decode(agreed(private, public)), size, modulus)


def wide(modulus: Modulus) -> bool:
    """Whether residues have more bits than the machine's whole numbers."""
    return isinstance(modulus, int) and modulus > 64


def summable(residues: np.ndarray, modulus: Modulus) -> np.ndarray:
    """Residues as numbers whose sums are right modulo 2^modulus."""
    return np.array([int(v) for v in residues], object) if wide(modulus) else residues.astype(np.uint64)


def stream(key: bytes, size: int, modulus: Modulus) -> np.ndarray:
    """Random residues, uniform modulo 2^64 or, where they are wider, 2^modulus, from a key that is used once."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    each = -(-modulus // 8) if wide(modulus) else 8
    drawn = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(each * size))
    if not wide(modulus):
        return np.frombuffer(drawn, "<u8")
    return np.array([int.from_bytes(drawn[i : i + each], "little") for i in range(0, each * size, each)], object)


def added(total: np.ndarray, mask: np.ndarray, own: int, other: int) -> np.ndarray:
    """A mask is added by one of two members, and subtracted by the other."""
    return total + mask if own > other else total - mask


def modulo(total: np.ndarray, modulus: Modulus) -> np.ndarray:
    """Whole numbers modulo 2^modulus."""
    if wide(modulus):
        return total & (2**modulus - 1)
    return total & (np.uint64(2**64 - 1) >> (64 - np.asarray(modulus)).astype(np.uint64))


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
