"""Claimed shares in, bounds on a log scale out: there every claim is `more is better`, and back again.

A gain is the log ratio with its sign turned so that the claimed direction is up. Of a cost, more than
claimed is worse, so the scale is turned round: below the claimed number is then the better side.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bench_lib.claims.words import AT_MOST, Claim, Effect, Kind, is_time
from bench_lib.comparing.replicates import SECONDS
from bench_lib.units import quantity_text, seconds_text

_OPPOSITE = {Effect.LESS: "more", Effect.MORE: "less"}
_FALLING = (Effect.LESS, Effect.SPEED)  # a lower ratio is more of these


@dataclass(frozen=True)
class Scale:
    """The scale of one claim: effects as shares to gains on the log scale, and back."""

    effect: Effect
    unit: str = SECONDS
    cost: bool = False

    @property
    def sign(self) -> int:
        """What a log ratio (or log value) is multiplied with to be a gain."""
        return -1 if (self.effect in _FALLING) is not self.cost else 1

    def gain(self, share: float) -> float:
        """The gain that an effect of this share is; infinite where no effect can be so large."""
        inner = {Effect.LESS: 1 - share, Effect.VALUE: share}.get(self.effect, 1 + share)
        raw = math.log(inner) if inner > 0 else -math.inf
        raw = -raw if self.effect is Effect.LESS else raw
        return -raw if self.cost else raw

    def share(self, gain: float) -> float:
        """The effect that a gain is."""
        raw = -gain if self.cost else gain
        if self.effect is Effect.LESS:
            return 1 - math.exp(-raw)
        return math.exp(raw) - (self.effect is not Effect.VALUE)

    def between(self, low: float, high: float) -> tuple[float, float]:
        """The gains of two shares, the lower one first."""
        a, b = sorted((self.gain(low), self.gain(high)))
        return a, b

    def text(self, value: float, low: float | None = None, high: float | None = None) -> str:
        """An effect (shares) with its interval: `time -3.1 % [-3.4, -2.8]`, `1.44x [1.41, 1.47]`."""
        ends = () if low is None or high is None else (low, high)
        if self.effect is Effect.VALUE:
            shown = seconds_text if is_time(self.unit) else quantity_text
            name = "" if shown is seconds_text else f" {self.unit}"
            return f"{shown(value)}{_bracket(map(shown, sorted(ends)))}{name}"
        if self.effect is Effect.SPEED:
            return f"{_times(1 + value)}x{_bracket(_times(1 + end) for end in sorted(ends))} as fast"
        sign = -1 if self.effect is Effect.LESS else 1
        what = "time" if self.unit == SECONDS else self.unit
        shown_ends = _bracket(_percent(end) for end in sorted(sign * end for end in ends))
        return f"{what} {_percent(sign * value)} %{shown_ends}"


def scale_of(claim: Claim) -> Scale:
    """The scale on which a claim is judged."""
    return Scale(claim.effect, claim.unit, claim.cost)


def bound_text(claim: Claim) -> str:
    """What is claimed in words: `up to 30 % less time`, `1.35x to 1.5x as fast`; "" for a fact."""
    what = "time" if claim.unit == SECONDS else claim.unit
    if claim.kind is Kind.EXISTS:
        return {Effect.LESS: f"less {what}", Effect.MORE: f"more {what}"}.get(claim.effect, "faster")
    numbers = [number for number in (claim.low, claim.high) if number is not None]
    shown = " to ".join(dict.fromkeys(_bound(claim, number) for number in numbers))
    tail = {Effect.LESS: f" less {what}", Effect.MORE: f" more {what}", Effect.SPEED: " as fast"}
    if claim.kind is Kind.AT_LEAST and claim.effect in _OPPOSITE and (claim.low or 0.0) <= 0:
        return _no_worse(claim, what)
    word = "" if claim.kind is Kind.RANGE else f"{claim.kind} "
    if claim.kind is Kind.UP_TO and claim.cost:
        word = f"{AT_MOST} "
    return f"{word}{shown}{tail.get(claim.effect, '')}" if numbers else ""


def tolerance_text(claim: Claim) -> str:
    """How far off still counts: ` (± 2 %)`; "" where nothing is, or where the bound says it already."""
    if claim.kind is Kind.EXISTS or not claim.tolerance or (claim.effect in _OPPOSITE and _is_zero(claim)):
        return ""
    return f" (± {100 * claim.tolerance:.3g} %)"


def _is_zero(claim: Claim) -> bool:
    return claim.kind is Kind.AT_LEAST and claim.low == 0


def _no_worse(claim: Claim, what: str) -> str:
    """`at least 0 % more`, give or take 1 %, is `at most 1 % less`."""
    worst = (claim.tolerance if _is_zero(claim) else 0.0) - (claim.low or 0.0)
    word = f"{AT_MOST} {100 * worst:.3g} %" if worst else "no"
    return f"{word} {_OPPOSITE[claim.effect]} {what}"


def _bound(claim: Claim, number: float) -> str:
    if claim.effect is Effect.SPEED:
        return f"{1 + number:.3g}x"
    if claim.effect is Effect.VALUE:
        return Scale(claim.effect, claim.unit).text(number)
    return f"{100 * number:.3g} %"


def _times(factor: float) -> str:
    return f"{factor:.3f}" if factor < 10 else f"{factor:.4g}"


def _percent(share: float) -> str:
    text = f"{100 * share:+.1f}" if abs(share) < 1 else f"{100 * share:+.3g}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def _bracket(ends: Iterable[str]) -> str:
    shown = ", ".join(ends)
    return f" [{shown}]" if shown else ""
