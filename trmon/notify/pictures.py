"""Pictures of an illness, for mail and, behind a signed link that expires, for services that fetch what they show."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.notification import Notification, Picture
from trmon.domain.errors import NotFound
from trmon.domain.findings.sentences import words_of_signal
from trmon.domain.findings.story import Story, Strip, spans_decades, story_of
from trmon.domain.severity import Severity
from trmon.store import Store
from trmon_client.api.signals import SignalSeries
from trmon_client.core.wire.messages import decodable

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

VALID_SECONDS = 7 * 86_400.0
PURPOSE = b"trmon pictures"
"""The key of links is derived for this purpose only."""
CACHED = 32
POINTS = 240


@decodable
class Signed(msgspec.Struct, frozen=True, array_like=True):
    """A story behind a link, and when the link expires."""

    story: Story
    expires_at: float


class Pictures:
    """Draws the stories of runs, and signs the links to them with a key that is derived from a secret."""

    def __init__(self, store: Store, *, public_url: str | None, secret: str | None) -> None:
        """Args: secret: None: pictures have no links."""
        self._store = store
        self._base = None if public_url is None else public_url.rstrip("/")
        self._key = None if secret is None else hmac.digest(secret.encode(), PURPOSE, hashlib.sha256)
        self._drawn = lru_cache(CACHED)(self._draw)

    @property
    def are_drawn(self) -> bool:
        """Whether the library that draws is installed."""
        return find_spec("PIL") is not None

    def began_at(self, run_id: int, step: int) -> float | None:
        """Return when a step of a run closed; None where it is not stored."""
        series = self._store.signals.series(run_id, names=(), access=EVERYTHING, from_step=step, to_step=step)
        return float(series.closed_at[0]) if len(series.closed_at) else None

    def picture_of(self, run_id: int, notification: Notification, *, now: float) -> Picture | None:
        """Return the picture of the illness that a notification reports; None if there is none to show."""
        cause, judgement = notification.cause, self._store.run_snapshots.outlooks([run_id])[run_id].judgement
        is_ill = notification.is_firing or bool(notification.ended)
        if not self.are_drawn or not is_ill or cause is None or judgement is None or notification.is_acknowledgement:
            return None
        if judgement.lead is None or judgement.lead.finding != cause.rule:
            return None
        title = f"{notification.run.project}/{notification.run.run}: {cause.title}"
        signals = self._store.signals.names(run_id, access=EVERYTHING)
        story = story_of(judgement, run_id=run_id, title=title, signals=signals)
        if story is None:
            return None
        names = " and ".join(words_of_signal(strip.signal) for strip in story.strips)
        words = f"{names}, steps {story.interval[0]} to {story.interval[1]} shaded: where it began"
        return Picture(png=self._drawn(story), url=self._url(story, now=now), words=words)

    def opened(self, name: str, *, now: float) -> bytes:
        """Return the picture behind a link. Errors: NotFound for a forged or expired one, alike."""
        head, _, signature = name.partition(".")
        if self._key is None or not self.are_drawn or not self._is_signed(head, signature):
            raise NotFound("picture", "of this link")
        signed = msgspec.msgpack.decode(_bytes_of(head), type=Signed)
        if now >= signed.expires_at:
            raise NotFound("picture", "of this link")
        return self._drawn(signed.story)

    def _url(self, story: Story, *, now: float) -> str | None:
        if self._base is None or self._key is None:
            return None
        head = _text_of(msgspec.msgpack.encode(Signed(story, now + VALID_SECONDS)))
        return f"{self._base}/pictures/{head}.{self._signature(head)}.png"

    def _is_signed(self, head: str, signature: str) -> bool:
        return hmac.compare_digest(self._signature(head).encode(), signature.encode())

    def _signature(self, head: str) -> str:
        return _text_of(hmac.digest(self._key or b"", head.encode(), hashlib.sha256))

    def _draw(self, story: Story) -> bytes:
        names = [strip.signal for strip in story.strips]
        series = self._store.signals.series(
            story.run_id,
            names=names,
            access=EVERYTHING,
            attempt_id=story.attempt_id,
            to_step=story.step,
            points=POINTS,
        )
        return drawn(story, series)


def _text_of(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


SCALE = 4
"""Drawn so much larger than shown, and reduced by half: lines have smooth edges, also on dense screens."""
WIDTH, TOP, STRIP, GAP, FOOT, MARGIN = 480, 44, 92, 34, 26, 16
INK, QUIET, COURSE, BASE = "#1c2024", "#5f6670", "#2f5fb3", "#c9ced6"
ACT, WATCH = ("#b3261e", "#fbe3e0"), ("#8f5a00", "#fdefd8")
"""Of an illness that pages and of one that warns: marks and limits, and the steps in which it began."""
COLOURS = 64
LETTERS = 13


def drawn(story: Story, series: SignalSeries) -> bytes:
    """Return a story as a PNG of 960 pixels width."""
    from PIL import Image, ImageDraw, ImageFont

    height = TOP + len(story.strips) * (GAP + STRIP) + FOOT
    image = Image.new("RGB", (WIDTH * SCALE, height * SCALE), "white")
    canvas = Canvas(ImageDraw.Draw(image), ImageFont)
    steps = series.step.tolist()
    first, last = (steps[0], max(steps[-1], steps[0] + 1)) if steps else (0, 1)

    def x(step: float) -> float:
        within = (min(max(step, first), last) - first) / (last - first)
        return MARGIN + within * (WIDTH - 2 * MARGIN)

    bottom = height - FOOT
    mark, shade = ACT if story.severity is Severity.PAGE else WATCH
    begin, end = (x(at) for at in story.interval)
    canvas.box((begin, TOP, max(end, begin + 2), bottom), shade)
    canvas.text((MARGIN, 10), story.title, INK, size=16, width=WIDTH - 2 * MARGIN)
    for i, strip in enumerate(story.strips):
        values = series.bands[strip.signal].mean.tolist()
        points = [(x(step), value) for step, value in zip(steps, values, strict=True)]
        _draw_strip(canvas, strip, points, top=TOP + i * (GAP + STRIP) + GAP, mark=mark)
    at = x(story.began)
    canvas.line([(at, TOP), (at, bottom)], mark, width=1.5)
    is_left = at > WIDTH * 0.7
    canvas.text((at - 5 if is_left else at + 5, TOP + 1), f"began {story.began:,}", mark, is_right=is_left)
    canvas.text((MARGIN, bottom + 6), f"step {first:,}", QUIET)
    canvas.text((WIDTH - MARGIN, bottom + 6), f"{last:,}", QUIET, is_right=True)
    reduced = image.reduce(2).quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    content = io.BytesIO()
    reduced.save(content, "PNG")
    return content.getvalue()


def _draw_strip(canvas: Canvas, strip: Strip, points: Sequence[tuple[float, float]], *, top: float, mark: str) -> None:
    values = [value for _, value in points if math.isfinite(value)]
    shown = [*values, *strip.limits]
    least, most = (min(shown), max(shown)) if shown else (0.0, 1.0)
    is_log = spans_decades(least, most)

    def y(value: float) -> float:
        low, high, at = (math.log10(one) if is_log else one for one in (least, most, value))
        return top + STRIP - 3 - (0.5 if high == low else (at - low) / (high - low)) * (STRIP - 6)

    words = words_of_signal(strip.signal)
    newest = f" {values[-1]:.3g}" if values else ""
    canvas.text((MARGIN, top - 18), f"{words[:1].upper()}{words[1:]}{newest}", INK)
    scale = "" if least == most else f"{least:.3g} to {most:.3g}{', logarithmic' if is_log else ''}"
    canvas.text((WIDTH - MARGIN, top - 18), scale, QUIET, is_right=True)
    canvas.line([(MARGIN, top + STRIP), (WIDTH - MARGIN, top + STRIP)], BASE, width=1)
    for limit in strip.limits:
        canvas.dashes(MARGIN, WIDTH - MARGIN, y(limit), mark)
    piece: list[tuple[float, float]] = []
    for at, value in (*points, (0.0, math.nan)):
        if math.isfinite(value):
            piece.append((at, y(value)))
        elif piece:
            canvas.line(piece, COURSE, width=1.8)
            piece = []


class Canvas:
    """Draws in pixels of the page on an image that is `SCALE` times larger."""

    def __init__(self, draw: ImageDraw, fonts: Any) -> None:
        self._draw = draw
        self._fonts = fonts

    def box(self, corners: Sequence[float], fill: str) -> None:
        """Fill a rectangle."""
        self._draw.rectangle([one * SCALE for one in corners], fill=fill)

    def line(self, points: Sequence[tuple[float, float]], fill: str, *, width: float) -> None:
        """Draw a line; a single point is a dot."""
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        if len(scaled) == 1:
            scaled.append((scaled[0][0] + SCALE, scaled[0][1]))
        self._draw.line(scaled, fill=fill, width=round(width * SCALE), joint="curve")

    def dashes(self, start: float, end: float, y: float, fill: str) -> None:
        """Draw a level dashed line."""
        for i in range(int((end - start) // 10)):
            self.line([(start + 10 * i, y), (start + 10 * i + 5, y)], fill, width=1.2)

    def text(
        self,
        place: tuple[float, float],
        words: str,
        fill: str,
        *,
        size: int = LETTERS,
        width: float = math.inf,
        is_right: bool = False,
    ) -> None:
        """Write a line of text, cut in its middle at a width."""
        font = self._fonts.load_default(size * SCALE)
        kept = words
        while font.getlength(kept) > width * SCALE and len(words) > 8:
            words = words[: len(words) // 2 - 1] + words[len(words) // 2 + 1 :]
            kept = f"{words[: len(words) // 2]}…{words[len(words) // 2 :]}"
        at = place[0] * SCALE - (font.getlength(kept) if is_right else 0)
        self._draw.text((at, place[1] * SCALE), kept, font=font, fill=fill)
