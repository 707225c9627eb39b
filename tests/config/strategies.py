"""Random configurations that can work, as YAML would give them."""

from hypothesis import strategies as st

from iriscw.config.quantities import format_duration

durations = st.one_of(
    st.integers(1, 10**10).map(lambda milliseconds: {"milliseconds": milliseconds}),
    st.integers(1, 10**10).map(lambda milliseconds: format_duration(milliseconds * 10**6)),
)
sizes = st.integers(0, 2**40) | st.builds(
    lambda n, unit: f"{n}{unit}", st.integers(0, 999), st.sampled_from(["GB", "GiB", "KB", "B"])
)
lines = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]).filter(str.isprintable), max_size=20)
# Texts that YAML would take for something else, if they were written without care.
traps = st.sampled_from(
    [
        "no",
        "true",
        "1",
        "1e3",
        "0x10",
        "0o7",
        "null",
        "~",
        "12:30",
        "a: b",
        "- a",
        "# x",
        " a",
        "'",
        '"',
        "<<",
        "*a",
        "&a",
        "010",
    ]
)
words = lines | traps
names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
texts = st.dictionaries(
    st.from_regex(r"[A-HJ-Z_][A-Z0-9_]{0,8}", fullmatch=True), words | st.just("two\nlines\t\n"), max_size=3
)
timeouts = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            [
                "requesting_timeout",
                "boot_timeout",
                "init_timeout",
                "worker_health_timeout",
                "worker_timeout",
                "api_timeout",
            ],
            durations,
        ),
        "worker_lease": st.just("0s"),  # any other one is to be compared with the timeout of its layer
    },
)
autoscalers = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ["evaluation_interval", "scale_up_delay", "scale_down_delay", "startup_grace_period"], durations
    ),
)
layers = {"timeouts": timeouts, "autoscaler": autoscalers}


@st.composite
def groups(draw, platform):
    """Draw a group that contradicts neither itself nor the platform."""
    gpus = draw(st.integers(0, 8)) if platform == "coreweave" else 0
    most = draw(st.integers(0, 20))
    group = {
        "resources": {
            "cpu": draw(st.sampled_from([1, 0.5, "250m", 4])),
            "ram": draw(sizes) if platform == "coreweave" else "1GiB",
        },
        "max_slices": most,
        "min_slices": draw(st.integers(0, most)),
        **draw(
            st.fixed_dictionaries(
                {},
                optional={
                    **layers,
                    "priority": st.integers(0, 200),
                    "num_vms": st.just(18),
                    "quota_pool": st.sampled_from(["", "shared"]),
                },
            )
        ),
    }
    if gpus:
        group |= {
            "accelerator_type": "gpu",
            "accelerator_variant": draw(st.sampled_from(["H100", "GB200", "1", "true"])),
        }
        group["resources"]["gpu_count"] = gpus
    template = {}
    if platform == "coreweave":
        template["coreweave"] = {"region": draw(words.filter(bool)), "instance_type": draw(words.filter(bool))}
        if draw(st.booleans()):
            template["coreweave"] |= {"gpus_per_node": gpus, "infiniband": draw(st.booleans())}
    if draw(st.booleans()):
        template["preemptible"] = draw(st.booleans())
    return group | ({"slice_template": template} if template else {})


@st.composite
def configurations(draw):
    """Draw a configuration that can work."""
    platform = draw(st.sampled_from(["local", "coreweave"]))
    part = {"region": words} if platform == "coreweave" else {"workdir": words.filter(bool), "boot_delay": durations}
    drawn = st.fixed_dictionaries({}, optional=part)
    return {
        "platform": {platform: draw(drawn), **draw(st.fixed_dictionaries({}, optional=layers))},
        **draw(st.fixed_dictionaries({}, optional={"name": names})),
        "defaults": draw(
            st.fixed_dictionaries(
                {},
                optional={
                    **layers,
                    "task_env": texts,
                    "bootstrap": st.fixed_dictionaries({}, optional={"env_vars": texts}),
                },
            )
        ),
        "scale_groups": draw(st.dictionaries(names, groups(platform), max_size=3)),
    }
