"""``docs/internals/messages.md`` says what the rules say; ``python tests/test_message_map.py`` writes it anew."""

import ast
import collections
import re
from pathlib import Path

import pytest

from iriscw.agent import operations as agent_operations
from iriscw.agent.uplink import ledger as uplink_ledger, session as uplink_session
from iriscw.fleet import pods, root
from iriscw.fleet.groups import rules as group_rules
from iriscw.fleet.slices import rules as slice_rules
from iriscw.freeze import freezing, thawing
from iriscw.jobs import registry
from iriscw.jobs.job import decisions as job
from iriscw.jobs.job.decisions import DEFAULT_SETTINGS
from iriscw.jobs.links import link, links
from iriscw.jobs.scheduling import scheduler
from iriscw.nodes import agents, mirror, orders
from iriscw.runtime import vocabulary
from iriscw.worker import lifecycle, registry as attempts, session as worker_session
from parsed import nodes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "internals" / "messages.md"

HEAD = """\
# The message map

<!-- Made by `python tests/test_message_map.py`; a test compares. -->

Which actor takes which messages, and which modules make them. Answers of the runtime (what became of an effect, the end
of an actor that is watched) stand below each table. Messages of the wire are not here: `protos/` has them.
"""


def unmade(decisions):
    """Return the rules of decisions that need arguments which only their children would need."""
    return decisions.rules(object.__new__(decisions))


ACTORS = {
    "Controller": {
        "/fleet": root.RULES,
        "/fleet/<group>": group_rules.RULES,
        "/fleet/<group>/<slice>": slice_rules.RULES,
        "/fleet/<group>/<slice>/<worker>": pods.RULES,
        "/jobs": unmade(registry.JobRegistryDecisions),
        "/jobs/scheduler": unmade(scheduler.SchedulerDecisions),
        "/jobs/links": unmade(links.LinksDecisions),
        "/jobs/links/<worker>": unmade(link.LinkDecisions),
        "/jobs/<job>": job.JobDecisions(DEFAULT_SETTINGS).rules(),
        "/nodes/orders": orders.rules(),
        "/nodes/agent": unmade(agents.AgentsDecisions),
        "/nodes/agent/<node>": mirror.rules(),
    },
    "Worker": {
        "/attempts": unmade(attempts.AttemptRegistryDecisions),
        "/attempts/<attempt>": lifecycle.rules(),
        "/session": worker_session.rules(),
    },
    "Node agent": {
        "/operations": unmade(agent_operations.OperationsDecisions),
        "/operations/<operation>, a freeze": freezing.rules(),
        "/operations/<operation>, a thaw": thawing.rules(),
        "/controller/orders": uplink_ledger.rules(),
        "/controller/session": uplink_session.rules(),
    },
}
"""Every actor that has decisions, by the process that it lives in."""

PACKAGES = {
    "Controller": ("iriscw.cloud", "iriscw.fleet", "iriscw.jobs", "iriscw.nodes", "iriscw.controller"),
    "Worker": ("iriscw.worker",),
    "Node agent": ("iriscw.agent", "iriscw.freeze"),
}
"""Where messages to actors of a process are made."""


def makers(sources):
    """Return the modules that make values of a class, by the class's name."""
    found = collections.defaultdict(dict)
    for source in sources:
        for node in nodes(source.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found[node.func.id][source.module] = None
    return found


def page(sources):
    """Return the page."""
    made_by = makers(sources)
    parts = [HEAD]
    for process, actors in ACTORS.items():
        parts.append(f"\n## {process}\n")
        for path, rules in actors.items():
            ours = [kind for kind in rules if kind.__module__ != vocabulary.__name__]
            answers = sorted(kind.__name__ for kind in rules if kind not in ours)
            parts.append(f"\n### `{path}`\n\n| message | what it says | made in |\n| --- | --- | --- |\n")
            for kind in sorted(ours, key=lambda each: each.__name__):
                modules = [name for name in made_by[kind.__name__] if name.startswith(PACKAGES[process])]
                where = ", ".join(f"`{name.removeprefix('iriscw.')}`" for name in sorted(modules)) or "-"
                parts.append(f"| `{kind.__name__}` | {summary(kind)} | {where} |\n")
            if answers:
                parts.append(f"\nAnswers: {', '.join(f'`{name}`' for name in answers)}.\n")
    return "".join(parts)


def summary(kind):
    """Return the first paragraph of a message's docstring, in one line of a table."""
    text = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", "\\|")


def test_the_page_is_todays(sources):
    """A message that comes, goes or moves changes the page."""
    assert PAGE.read_text(encoding="utf-8") == page(sources)


def test_every_actor_is_on_it(sources):
    """Each behavior of a process of ours that has rules."""
    with_rules = [
        node
        for source in sources
        if source.module.startswith(tuple(name for names in PACKAGES.values() for name in names))
        for node in nodes(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Behavior"
        and any(each.arg == "on" for each in node.keywords)
    ]
    assert len(with_rules) == sum(map(len, ACTORS.values()))


@pytest.mark.parametrize("process", ACTORS)
def test_messages_say_what_they_are(process):
    """A reader of the page knows from one sentence."""
    silent = [
        kind.__name__
        for rules in ACTORS[process].values()
        for kind in rules
        if kind.__module__ != vocabulary.__name__ and not summary(kind).endswith((".", ":"))
    ]
    assert silent == []


if __name__ == "__main__":
    from parsed import sources

    PAGE.write_text(page(sources()), encoding="utf-8")
