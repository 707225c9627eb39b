"""A run as one HTML file: a picture that is understood at a glance, and the story beside it.

Theory of operation. The page is whole by itself: its style and its script stand in it, it asks no network for
anything (and forbids itself to), it works from a file, without the script too: then tips come from SVG titles and
nothing can be zoomed. Left are rows over time; over all of them lie bands where the controller was down or stood
still, a line for each planned fault, one where all was healed, and one where an invariant broke. Right is the same in
words, the latest :data:`MAX_STORY` events of those that matter most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from iriscw_sims.swarm import FAULTS
from iriscw_sims.timeline.model import CONTROLLER, FAULT, Event, Level, Timeline, Tone, kind_of, name_of
from iriscw_sims.timeline.picture.rows import MAX_MARKS, Row, fault_rows, lane_rows, left_out, section, task_counts
from iriscw_sims.timeline.picture.scale import Scale, at_zoom, length, short
from iriscw_sims.timeline.picture.shapes import FAMILIES, lines, words
from iriscw_sims.timeline.text import clock

MAX_STORY = 3_000
"""Events that are told in words: half a megabyte."""

MAX_STRIKES = 80
"""Faults of the plan up to which each has a line over all rows; more would hide what they are to explain."""

_HERE: Final = Path(__file__).parent
_PLANNED: Final = dict.fromkeys(FAULTS)

_FLEET: Final = "fleet: groups (slices ready, there, and wanted: dashed), slices, nodes as they are, workers"
_JOBS: Final = "jobs: tasks, one attempt after the other"

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@attrs.frozen
class Caption:
    """What stands above the picture."""

    title: str
    """Which run it is: ``seed 24``."""
    facts: tuple[str, ...] = ()
    """Short sentences."""


def page(timeline: Timeline, caption: Caption, *, since: int = 0) -> str:
    """Return the page. It is of bounded size, however long the run was."""
    scale = Scale.over(since, timeline.ended)
    state = "broken" if timeline.violations else "held"
    title = f"{caption.title}: {state}"
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{words(title)}</title>\n<style>\n{_text('style.css')}</style>\n</head>\n<body>\n",
            *_header(timeline, caption, state),
            "<main>\n",
            *_board(timeline, scale, title),
            *_story(timeline),
            f"</main>\n<div id=tip hidden></div>\n<script>\n{_text('script.js')}</script>\n</body>\n</html>\n",
        )
    )


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


# Above


def _header(timeline: Timeline, caption: Caption, state: str) -> Iterator[str]:
    yield f"<header>\n<h1>{words(caption.title)} <span class='pill {state}'>{state}</span></h1>\n"
    facts = [*caption.facts, *left_out(timeline)]
    yield "<p class=facts>" + "".join(f"<span>{words(fact)}</span>" for fact in facts) + "</p>\n"
    for text in timeline.violations:
        yield f"<p class=violation role=alert>{words(text)}</p>\n"
    yield "<div class=legend aria-label=legend>"
    for kind, meaning in FAMILIES.items():
        yield f"<span><svg width=26 height=12><rect class='b {kind}' width=26 height=12 rx=2 /></svg>{meaning}</span>"
    yield "<span><svg width=12 height=12><path class=fault d='M6 1L11 6L6 11L1 6Z'/></svg>a fault of the plan</span>"
    yield "<span><svg width=8 height=12><rect class=tick x=3 width=2.5 height=12 /></svg>a fault by chance</span>"
    yield "<span><svg width=14 height=12><path class=x d='M4 3L10 9M4 9L10 3'/></svg>did not end well</span>"
    if timeline.violations:
        yield "<span><svg width=8 height=12><rect class=broken x=2 width=3 height=12 /></svg>an invariant broke</span>"
    yield "</div>\n</header>\n"


# The picture


def _board(timeline: Timeline, scale: Scale, title: str) -> Iterator[str]:
    yield f"<section class=board tabindex=0 data-began={scale.began} data-ended={scale.ended} "
    yield "aria-label='what happened over time'>\n<div class=head><div class=label><span class=zoom>"
    yield "<button id=out title='wider view'>&minus;</button><button id=fit>fit</button>"
    yield "<button id=in title='closer view'>+</button></span></div><div class=track>"
    yield f"<svg height=24 role=img><title>time</title>{''.join(_ticks(scale))}</svg></div></div>\n"
    yield "<div class=body>\n"
    yield f"<svg class=over aria-hidden=true>{''.join(_bands(timeline, scale))}</svg>\n"
    controller, fleet, jobs = lane_rows(timeline, scale)
    yield from map(_row, (*fault_rows(timeline, _PLANNED, scale), *controller))
    if fleet:
        yield from map(_row, (section("fleet", _FLEET), *fleet))
    if jobs:
        counts = task_counts(timeline, scale)
        sums = (counts,) if counts is not None else ()
        yield from map(_row, (section("jobs", _JOBS), *sums, *jobs))
    yield f"</div>\n<p class=sr>{words(title)}; the same in words follows.</p></section>\n"


def _row(row: Row) -> str:
    name = words(row.subject)
    chosen = f' data-s="{name}"' if name else ""
    # A name for those who hear it; a title would show wherever nothing else is under the pointer.
    heard = f'role="img" aria-label="{name}"' if name else 'aria-hidden="true"'
    label = f'<div class=label title="{name}">{row.label}</div>'
    track = f"<div class=track><svg height={row.height} {heard}>{row.drawn}</svg></div>"
    return f'<div class="row {row.kind}"{chosen} style="height:{row.height}px">{label}{track}</div>\n'


def _ticks(scale: Scale) -> Iterator[str]:
    for at, coarse in scale.ticks():
        share, kind = scale.share(at), "" if coarse else at_zoom(8)
        anchor = "end" if share > 97 else "start" if share < 1 else "middle"
        yield f'<g class="{kind}"><line x1="{share:.3f}%" x2="{share:.3f}%" y1="18" y2="24"/>'
        yield f'<text x="{share:.3f}%" y="14" text-anchor="{anchor}">{short(at)}</text></g>'


def _bands(timeline: Timeline, scale: Scale) -> Iterator[str]:
    """Draw what lies over all rows."""
    if timeline.healed is not None and scale.began <= timeline.healed <= scale.ended:
        yield f'<rect class="healed" x="{scale.share(timeline.healed):.3f}%" width="100%" height="100%"/>'
        yield _line("heal", scale.share(timeline.healed))
    for span in timeline.spans[-MAX_MARKS:]:
        if span.lane == CONTROLLER and span.state != "up":
            left, right = scale.share(span.began), scale.share(span.ended)
            yield f'<rect class="blind" x="{left:.3f}%" width="{right - left:.3f}%" height="100%"/>'
    for at, coarse in scale.ticks():
        if coarse:
            yield _line("grid", scale.share(at))
    faults = [event for event in timeline.events if kind_of(event.subject) == FAULT]
    strikes = [event for event in faults if name_of(event.subject) in _PLANNED]
    for event in strikes if len(strikes) <= MAX_STRIKES else ():
        yield _line("strike", scale.share(event.at))
    if timeline.violations:
        yield _line("broken", scale.share(timeline.ended))


def _line(kind: str, share: float) -> str:
    return f'<line class="{kind}" x1="{share:.3f}%" x2="{share:.3f}%" y1="0" y2="100%"/>'


# The story


def _story(timeline: Timeline) -> Iterator[str]:
    told = _most_telling(timeline.events)
    yield "<section class=story aria-label='what happened, in words'>\n<div class=head><h2>What happened</h2>"
    yield "<span id=chosen></span><button id=all hidden>show all</button>"
    yield "<input id=find type=search placeholder=find aria-label='find in the story'></div>\n<ol>\n"
    if len(told) < len(timeline.events):
        yield f"<li class=note>{len(timeline.events) - len(told)} events of less weight are left out</li>\n"
    yield from map(_item, told)
    yield "</ol>\n</section>\n"


def _most_telling(events: Sequence[Event]) -> list[Event]:
    """Return the events to tell: without details, and where there are too many the latest, landmarks before others."""
    kept = [event for event in events if event.level > Level.DETAIL]
    if len(kept) <= MAX_STORY:
        return kept
    landmarks = [event for event in kept if event.level is Level.LANDMARK][-MAX_STORY // 2 :]
    others = [event for event in kept if event.level is not Level.LANDMARK][len(landmarks) - MAX_STORY :]
    return sorted([*landmarks, *others], key=lambda event: event.at)


def _item(event: Event) -> str:
    fault = kind_of(event.subject) == FAULT
    who = FAULT if fault else event.subject
    subjects = " ".join(_spaceless([event.subject, *event.about]))
    kind = event.tone.value if event.tone is not Tone.PLAIN else "mark" if event.level is Level.LANDMARK else ""
    why = f" <i>&middot; {words(event.why)}</i>" if event.why and not fault else ""
    return (
        f'<li class="{kind}" data-at="{event.at}" data-s="{words(subjects)}" title="{lines(event.why)}">'
        f"<time>{clock(event.at)}</time> <b>{words(_brief(who))}</b> {words(event.what)}{why}</li>\n"
    )


def _spaceless(subjects: Iterable[str]) -> Iterator[str]:
    return (subject.replace(" ", "_") for subject in subjects)


def _brief(who: str) -> str:
    kind, name = kind_of(who), name_of(who)
    return who if kind == name else f"{kind} {name}"


def facts_of(timeline: Timeline) -> tuple[str, ...]:
    """Sum a run up in a few words, for a caption."""
    lanes = [kind_of(lane.subject) for lane in timeline.lanes]
    down = sum(span.ended - span.began for span in timeline.spans if span.lane == CONTROLLER and span.state != "up")
    ends: dict[str, int] = {}
    for span in timeline.spans:
        if kind_of(span.lane) == "job" and span.outcome:
            ends[span.outcome] = ends.get(span.outcome, 0) + 1
    jobs = ", ".join(f"{count} {outcome}" for outcome, count in ends.items())
    planned = sum(count for name, count in timeline.fired if name in _PLANNED)
    chances = sum(count for name, count in timeline.fired if name not in _PLANNED)
    return (
        f"{length(timeline.ended)} of simulated time",
        f"{_count(lanes, 'job')}" + (f" ({jobs})" if jobs else "") + f", {_count(lanes, 'task')}",
        f"{_count(lanes, 'group')}, {_count(lanes, 'slice')} in all",
        f"{planned} {'fault' if planned == 1 else 'faults'} of the plan, {chances} by chance",
        *((f"the controller was away for {length(down)}",) if down else ()),
    )


def _count(lanes: Sequence[str], kind: str) -> str:
    number = lanes.count(kind)
    return f"{number} {kind}" if number == 1 else f"{number} {kind}s"
