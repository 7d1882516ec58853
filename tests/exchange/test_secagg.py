"""The protocol of a secure sum, in process: the sum with drop-outs at every step, and what nobody gives away."""

from fractions import Fraction

import numpy as np
import pytest

from majorant.exchange import exact_sums
from majorant.exchange.secagg import Collector, Member, Stopped, added, modulo, pairwise, secret_of

MODULUS, THRESHOLD, SIZE = 20, 3, 40
NUMBERS = (3, 11, 4, 70, 25)  # node ids in no order


def vector(number):
    return np.random.default_rng(number).integers(0, 2**MODULUS, SIZE).astype(np.uint32)


def play(lost_before: dict[int, str], passed_on=lambda member: member, modulus=MODULUS, vector=vector):
    """A round in which some members are lost before a step; the sum, and the masked vectors that the server saw."""
    order = ("keys", "shares", "masked", "reveal")
    there = lambda step: [n for n in NUMBERS if n not in lost_before or order.index(lost_before[n]) > order.index(step)]
    members = {n: Member(n, THRESHOLD) for n in NUMBERS}
    server = Collector(THRESHOLD, modulus)
    public = server.with_keys({n: members[n].public for n in there("keys")})
    letters = server.with_shares({n: members[n].shares(public) for n in there("shares")})
    members = {n: passed_on(member) for n, member in members.items()}
    vectors = {n: members[n].masked(vector(n), modulus, letters[n]) for n in there("masked")}
    arrived, lost = server.with_vectors(vectors)
    members = {n: passed_on(member) for n, member in members.items()}
    return server.opened({n: members[n].reveal(arrived, lost) for n in there("reveal")}), vectors, members


def expected(numbers):
    return sum(vector(n).astype(object) for n in numbers) % 2**MODULUS


@pytest.mark.parametrize("step", ["keys", "shares", "masked", "reveal"])
def test_drop_outs_at_a_step_are_survived(step):
    """Two of five are lost: before they send a vector they are out of the sum, after it they are in."""
    total, vectors, _ = play({11: step, 70: step})
    counted = NUMBERS if step == "reveal" else (3, 4, 25)
    assert set(vectors) == set(counted)
    np.testing.assert_array_equal(total, expected(counted))


@pytest.mark.parametrize(
    ("step", "what"),
    [("keys", "sent their keys"), ("shares", "shared"), ("masked", "sent their vectors"), ("reveal", "gave their")],
)
def test_with_too_few_left_nothing_is_opened(step, what):
    with pytest.raises(Stopped, match=f"2 members have {what}.*needs 3: the round is not opened"):
        play({11: step, 70: step, 4: step})


def test_members_go_on_from_what_they_saved():
    total, *_ = play({4: "masked"}, lambda member: Member.restored(member.saved()))
    np.testing.assert_array_equal(total, expected((3, 11, 70, 25)))


def test_residues_may_have_a_modulus_each():
    moduli = np.array([MODULUS] * (SIZE - 1) + [32])
    total, vectors, _ = play({4: "masked", 70: "keys"}, modulus=moduli)
    whole = sum(vector(n).astype(object) for n in (3, 11, 25))
    np.testing.assert_array_equal(total, [v % 2**m for v, m in zip(whole, moduli.tolist(), strict=True)])
    assert all((v < 2**moduli).all() for v in vectors.values())


def test_numbers_without_a_range_are_added_up_exactly():
    values = lambda n: [n / 7, -1e30 * n, 1e-30 / n, float(n), 0.0]
    own = lambda n: exact_sums.from_bytes(exact_sums.to_bytes(exact_sums.residues(values(n))))
    total, vectors, _ = play({4: "masked", 70: "reveal"}, modulus=exact_sums.BITS, vector=own)
    whole = [sum(map(Fraction, each)) for each in zip(*map(values, (3, 11, 25, 70)), strict=True)]
    assert [float(v) for v in exact_sums.numbers(total)] == [float(v) for v in whole]
    assert not any((vectors[n] == own(n)).any() for n in vectors)
    for wrong in (np.nan, np.inf, 2.0**200):
        with pytest.raises(exact_sums.TooLarge):
            exact_sums.residues([1.0, wrong])


def test_masks_are_used_once():
    """Asked again, a member answers the same; two vectors under the same masks would tell their difference."""
    members = {n: Member(n, 2) for n in (1, 2, 3)}
    public = {n: member.public for n, member in members.items()}
    sent = {n: member.shares(public) for n, member in members.items()}
    received = {n: sent[n][1] for n in (2, 3)}
    once = members[1].masked(vector(0), MODULUS, received)
    again = Member.restored(members[1].saved())
    assert again.shares(public) == sent[1]
    np.testing.assert_array_equal(again.masked(vector(0), MODULUS, received), once)
    for other in ((vector(9), received), (vector(0), {2: received[2]})):
        with pytest.raises(Stopped, match="a second vector under the same masks"):
            again.masked(other[0], MODULUS, other[1])
    with pytest.raises(Stopped, match="with others than before"):
        again.shares({n: public[n] for n in (1, 2)})
    with pytest.raises(Stopped, match="cannot read the shares"):
        members[2].masked(vector(0), MODULUS, {1: sent[1][3], 3: sent[3][2]})


def test_a_vector_that_comes_after_its_key_was_opened_is_hidden_by_a_mask_of_its_own():
    """Who is slow is taken for lost, and the masks that it shares with others are known then."""
    left = []
    for _ in range(2):
        members = {n: Member(n, 2) for n in (1, 2, 3)}
        public = {n: member.public for n, member in members.items()}
        sent = {n: member.shares(public) for n, member in members.items()}
        total = members[1].masked(vector(0), MODULUS, {n: sent[n][1] for n in (2, 3)})
        for other in (2, 3):
            mask = pairwise(members[1].private[0], public[other][0], SIZE, MODULUS)
            total = added(total.astype(np.uint64), mask, other, 1)
        left.append(modulo(total, MODULUS))
    for found in left:
        assert (found == vector(0)).mean() < 0.1
    assert (left[0] == left[1]).mean() < 0.1  # and another one in another sum


def test_what_the_server_sees_is_not_what_was_sent():
    """Masked vectors are uniform residues, other ones in another round."""
    _, one, _ = play({})
    _, two, _ = play({})
    for number in NUMBERS:
        assert (one[number] == vector(number)).mean() < 0.1
        assert (one[number] == two[number]).mean() < 0.1
    every = np.concatenate(list(one.values())) / 2**MODULUS
    assert abs(every.mean() - 0.5) < 4 / np.sqrt(12 * every.size)


def test_nobody_gives_shares_that_would_open_a_single_vector():
    member = play({3: "reveal"})[2][3]
    everyone = set(NUMBERS)
    for arrived, lost in (
        (everyone, {11}),  # seed and key of one
        ({3, 4, 99}, set()),  # somebody unknown
    ):
        with pytest.raises(Stopped, match="would open a single vector"):
            member.reveal(arrived, lost)
    with pytest.raises(Stopped, match="sent their vectors"):
        member.reveal({3, 4}, {11})
    member.reveal(everyone, set())
    with pytest.raises(Stopped, match="would open a single vector"):  # a second time, with other members lost
        member.reveal({3, 4, 25}, {11, 70})


def test_keys_that_were_exchanged_on_the_way_are_noticed():
    members = [Member(n, 2) for n in (1, 2)]
    with pytest.raises(Stopped, match="somebody stands between"):
        members[0].shares({1: Member(1, 2).public, 2: members[1].public})
    with pytest.raises(Stopped, match="somebody stands between"):
        members[0].shares({1: members[0].public, 2: members[0].public})
    with pytest.raises(ValueError, match="at least 2"):
        Member(1, 1)
    with pytest.raises(Stopped, match="a share of member 3's secrets is missing"):
        secret_of([b"one", None], 3)
