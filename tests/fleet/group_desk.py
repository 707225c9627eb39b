"""How tests have a scale group decide, and read what it said."""

from iriscw.fleet.groups import group as groups, rules as group_rules
from iriscw.runtime.vocabulary import Continue, Decision, Tell


def send(group, ctx, message):
    """Decide, apply the records, and follow with the looks that were asked for."""
    outcome = group_rules.RULES[type(message)](group, message, ctx)
    records = outcome.records if isinstance(outcome, Decision) else ()
    commands = list(outcome.commands if isinstance(outcome, Decision) else outcome or ())
    for each in records:
        groups.apply(group, each)
    facts = list(records)
    for command in list(commands):
        if isinstance(command, Continue):
            more, further = send(group, ctx, command.message)
            facts += more
            commands += further
    return facts, commands


def told(commands, kind):
    """Return the messages of a kind that are told to anybody."""
    return [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, kind)]
