"""Our own dropout and attention on a CPU against their definitions."""

import pytest
import torch
from torch.autograd import gradcheck

from model.nets import attention
from model.nets.attention import attend
from model.nets.dropout import draw_kept, drop, scale_kept

B, H, T, SIZE = 5, 2, 9, 4


@pytest.fixture
def parts():
    """q, k, v in float64, some keys forbidden."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(B, H, T, SIZE, dtype=torch.float64, requires_grad=True) for _ in range(3))
    allowed = torch.rand(B, 1, T, T) < 0.7
    allowed |= torch.eye(T, dtype=torch.bool)
    return q, k, v, allowed


def naive(q, k, v, allowed, factors, *, bias=0.0):
    """The definition, the weights multiplied by given factors."""
    weights = torch.softmax((q @ k.transpose(-2, -1) / SIZE**0.5 + bias).masked_fill(~allowed, -torch.inf), dim=-1)
    return (weights * factors) @ v


@pytest.mark.parametrize("at_once", [1, 2 * H * T * T, 2**20])
@pytest.mark.parametrize("queries", [1, T])
def test_dropping_attention_is_its_definition(parts, monkeypatch, at_once, queries):
    """Values and gradients equal the plain formula with the same draws, however many rows go at once."""
    monkeypatch.setattr(attention, "_WEIGHTS_AT_ONCE", at_once)
    q, k, v, allowed = parts
    allowed = allowed[:, :, :queries].clone()
    allowed[..., 0] = True
    torch.manual_seed(3)
    out = attend(q, k, v, allowed, dropout=0.3)
    upper = torch.randn_like(out)
    ours = torch.autograd.grad(out, (q, k, v), upper)
    torch.manual_seed(3)
    expected = naive(q, k, v, allowed, draw_kept(torch.Size((B, H, T, T)), 0.3) * scale_kept(0.3))
    torch.testing.assert_close(out, expected)
    for mine, theirs in zip(ours, torch.autograd.grad(expected, (q, k, v), upper), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("rows", [1, B])
def test_bias_is_added_and_learns(parts, monkeypatch, rows):
    """A bias, shared by all rows or each row's own, counts in values and gradients with and without dropout."""
    monkeypatch.setattr(attention, "_WEIGHTS_AT_ONCE", 2 * H * T * T)
    q, k, v, allowed = parts
    bias = torch.randn(rows, H, T, T, dtype=torch.float64, requires_grad=True)
    for share in (0.3, 0.0):
        torch.manual_seed(3)
        out = attend(q, k, v, allowed, dropout=share, bias=bias)
        upper = torch.randn_like(out)
        torch.manual_seed(3)
        factors = draw_kept(torch.Size((B, H, T, T)), share) * scale_kept(share) if share else 1.0
        expected = naive(q, k, v, allowed, factors, bias=bias)
        torch.testing.assert_close(out, expected)
        ours = torch.autograd.grad(out, (q, k, v, bias), upper)
        for mine, theirs in zip(ours, torch.autograd.grad(expected, (q, k, v, bias), upper), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_fewer_queries_than_keys(parts):
    """Some of the queries get what they get among all of them, with the same draws; torch's kernel agrees."""
    q, k, v, allowed = parts
    few, seen = q[:, :, 3:5], allowed[:, :, 3:5]
    torch.manual_seed(3)
    out = attend(few, k, v, seen, dropout=0.3)
    torch.manual_seed(3)
    factors = draw_kept(torch.Size((B, H, 2, T)), 0.3) * scale_kept(0.3)
    torch.testing.assert_close(out, naive(few, k, v, seen, factors))
    torch.testing.assert_close(attend(few, k, v, seen, dropout=0.0), attend(q, k, v, allowed, dropout=0.0)[:, :, 3:5])


def test_without_dropout_torch_does_it(parts):
    """Nothing dropped: the same formula, by torch's own kernel."""
    q, k, v, allowed = parts
    torch.testing.assert_close(attend(q, k, v, allowed, dropout=0.0), naive(q, k, v, allowed, 1.0))


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.999])
def test_dropout_keeps_its_share_and_the_expectation(share):
    """About the share becomes 0, the rest is scaled so that the mean stays, and the draws are torch's generator's."""
    torch.manual_seed(2)
    x = torch.ones(100_003)
    dropped = drop(x, share, training=True)
    assert (dropped == 0).float().mean().item() == pytest.approx(share, abs=1 / 256)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.15 if share == 0.999 else 0.02)
    torch.manual_seed(2)
    assert torch.equal(drop(x, share, training=True), dropped)
    assert not torch.equal(drop(x, share, training=True), dropped)


def test_dropout_draws_are_independent():
    """Neighbouring bytes of one draw are not alike: pairs are dropped together as often as chance has it."""
    torch.manual_seed(4)
    kept = draw_kept(torch.Size((400_000,)), 0.5).bool()
    for lag in (1, 2, 7, 8):
        assert (kept[lag:] & kept[:-lag]).float().mean().item() == pytest.approx(0.25, abs=0.005)


def test_dropout_has_its_gradient():
    """What was dropped gets no gradient, the rest the scale: checked by finite differences."""

    def same_draw(x):
        torch.manual_seed(5)
        return drop(x, 0.4, training=True)

    assert gradcheck(same_draw, torch.randn(7, 3, dtype=torch.float64, requires_grad=True))


def test_nothing_is_dropped_but_in_training():
    """In evaluation, or with share 0, a tensor passes as it is."""
    x = torch.randn(10)
    assert torch.equal(drop(x, 0.5, training=False), x)
    assert torch.equal(drop(x, 0.0, training=True), x)
