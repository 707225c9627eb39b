"""What a decision is told: clocks, chance, identity, and where the answer goes."""

from puppet import Do, puppet

from iriscw.runtime import MILLISECOND, SECOND, ActorSystem, Behavior, ChildSpec, Context, Reply, SetTimer, seconds
from iriscw.runtime.context import ID_ALPHABET, ID_LENGTH
from iriscw.testing import SimSystem
from iriscw.testing.simulation import EPOCH, Simulation


def ask(made, path, look):
    """Return what ``look(ctx)`` is in a decision of the actor at ``path``, which is made if need be."""
    if path not in made.tree.cells:
        made.spawn(path[1:], Behavior(decide=lambda state, told, ctx: (Reply(told(ctx)),)))
    return made.ask(path, look)


def test_where_and_who():
    """A decision knows its path and its incarnation."""
    made = SimSystem()
    assert ask(made, "/a", lambda ctx: (ctx.path, ctx.incarnation)) == ("/a", 0)
    made.tell("/a", lambda ctx: 1 / 0)
    made.run_until_idle()
    assert ask(made, "/a", lambda ctx: ctx.incarnation) == 1


def test_clocks():
    """``now`` and ``attentive`` pass with time; ``wall`` counts from 1970 and has the process's own offset."""
    made = SimSystem(wall_offset_s=7)
    now, attentive, wall = ask(made, "/a", lambda ctx: (ctx.now, ctx.attentive, ctx.wall))
    assert wall == EPOCH + now + 7 * SECOND
    made.advance(90)
    later, later_attentive, later_wall = ask(made, "/a", lambda ctx: (ctx.now, ctx.attentive, ctx.wall))
    assert later - now == later_attentive - attentive == later_wall - wall == 90 * SECOND
    assert all(type(time) is int for time in (later, later_attentive, later_wall))


def test_a_stall_on_the_attentive_clock():
    """A stall counts as one second there, whatever it was."""
    made = SimSystem()
    now, attentive = ask(made, "/a", lambda ctx: (ctx.now, ctx.attentive))
    made.simulation.stall(600)
    later, later_attentive = ask(made, "/a", lambda ctx: (ctx.now, ctx.attentive))
    assert later - now == 600 * SECOND
    assert later_attentive - attentive == SECOND


def test_time_stands_still_in_a_turn():
    """The clock is read once per turn: a decision sees one time."""
    made = SimSystem()
    first, second = ask(made, "/a", lambda ctx: (ctx.now, ctx.now))
    assert first == second


def test_chance_is_repeatable():
    """The same seed and actor draw the same; another seed, actor, incarnation or boot draws otherwise."""

    def draw(ctx):
        return ctx.rng.random()

    made = SimSystem(seed=1)
    first = ask(made, "/a", draw)
    assert ask(SimSystem(seed=1), "/a", draw) == first
    others = [ask(SimSystem(seed=2), "/a", draw), ask(made, "/b", draw)]
    made.tell("/a", lambda ctx: 1 / 0)
    made.run_until_idle()
    others.append(ask(made, "/a", draw))
    made.restart()
    others.append(ask(made, "/a", draw))
    assert len({first, *others}) == 5


def test_chance_is_each_actors_own():
    """What one actor draws does not depend on what others draw."""
    made = SimSystem(seed=1)
    ask(made, "/b", lambda ctx: [ctx.rng.random() for _ in range(10)])
    made.spawn("c", Behavior(decide=lambda state, told, ctx: (Reply(ctx.rng.random()),)))
    alone = SimSystem(seed=1)
    alone.spawn("b", Behavior())
    alone.spawn("c", Behavior(decide=lambda state, told, ctx: (Reply(ctx.rng.random()),)))
    assert made.ask("/c", "draw") == alone.ask("/c", "draw")


def test_ids():
    """Ids have their prefix, fit a DNS label, and do not repeat: within an actor, across actors, across restarts."""
    made = SimSystem()
    ids = []
    for path in ("/a", "/b"):
        ids += ask(made, path, lambda ctx: [ctx.new_id("job-") for _ in range(1_000)])
        made.tell(path, lambda ctx: 1 / 0)
        made.run_until_idle()
        ids += ask(made, path, lambda ctx: [ctx.new_id("job-") for _ in range(1_000)])
    assert len(set(ids)) == 4_000
    for made_id in ids:
        body = made_id.removeprefix("job-")
        assert len(body) == ID_LENGTH
        assert set(body) <= set(ID_ALPHABET)
    assert ask(made, "/a", lambda ctx: len(ctx.new_id())) == ID_LENGTH


async def test_ids_differ_between_processes():
    """A real system draws its seed from the operating system; a given seed repeats."""
    ids = []
    for seed in (None, None, "fixed", "fixed"):
        async with ActorSystem(seed=seed) as system:
            namer = Behavior(decide=lambda state, told, ctx: (Reply(ctx.new_id()),))
            ids.append(await system.spawn("a", namer).ask("id"))
    assert len(set(ids)) == 3
    assert ids[2] == ids[3]


def test_reply_to():
    """Only a question has somewhere to answer to; each has its own."""
    seen = []
    made = SimSystem()
    made.spawn("a", Behavior(decide=lambda state, told, ctx: seen.append(ctx.reply_to)))
    made.tell("/a", "told")
    made.question("/a", "asked")
    made.question("/a", "asked")
    made.run_until_idle()
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[1] != seen[2]


def test_sim_is_told():
    """Fault points may know that time is virtual."""
    assert ask(SimSystem(), "/a", lambda ctx: ctx.sim) is True


async def test_real_time():
    """In a real system time is the machine's, and not virtual."""
    async with ActorSystem() as system:
        ref = system.spawn("a", Behavior(decide=lambda state, told, ctx: (Reply((ctx.sim, ctx.now, ctx.wall)),)))
        sim, now, wall = await ref.ask("look")
        _, later, later_wall = await ref.ask("look")
    assert sim is False
    assert later >= now
    assert later_wall - wall < 60 * SECOND


def test_resume_has_a_context():
    """``resume`` is told the same: its timers count from the start of the incarnation."""
    seen = []

    def resume(state, ctx):
        seen.append((ctx.path, ctx.now))
        return (SetTimer("t", 5 * MILLISECOND, "due"),)

    simulation = Simulation()
    simulation.clock.ns = seconds(3)
    simulation.dispatcher.look_at_clock()
    made = SimSystem(puppet(children=(ChildSpec("a", puppet(seen, resume=resume)),)), simulation=simulation)
    made.run_until_idle()
    assert seen == [("/a", seconds(3))]
    made.advance(0.005)
    assert seen[-1] == "due"
    made.tell("/a", Do())


def test_the_protocol_is_complete():
    """The object that decisions get has all that the protocol promises."""
    promised = [name for name in vars(Context) if not name.startswith("_")]
    assert len(promised) >= 8
    looks = SimSystem()
    for name in promised:
        assert ask(looks, "/a", lambda ctx, name=name: hasattr(ctx, name)), name
