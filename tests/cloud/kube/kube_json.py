"""Strategies: any JSON, and JSON that is nearly an object of Kubernetes."""

from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
"""Any JSON."""

CONDITION = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["Ready", "Quota", "Validated", "PhaseState", "PodScheduled", "DisruptionTarget", "X"])
        | ANY,
        "status": st.sampled_from(["True", "False", "Unknown"]) | ANY,
        "reason": st.sampled_from(["Over", "Under", "triage-x", "New"]) | ANY,
        "message": ANY,
    },
)
STATE = st.fixed_dictionaries(
    {},
    optional={
        "terminated": st.fixed_dictionaries(
            {}, optional={"reason": st.sampled_from(["OOMKilled", "Error"]) | ANY, "exitCode": st.integers() | ANY}
        )
        | ANY,
        "waiting": st.fixed_dictionaries({}, optional={"reason": st.sampled_from(["ErrImagePull"]) | ANY}) | ANY,
    },
)
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.lists(CONDITION | ANY, max_size=4) | ANY,
        "containerStatuses": st.lists(st.fixed_dictionaries({"state": STATE | ANY}) | ANY, max_size=3) | ANY,
        "phase": st.sampled_from(["Pending", "Running", "Zombie"]) | ANY,
        "addresses": st.lists(st.dictionaries(st.sampled_from(["type", "address"]), ANY) | ANY, max_size=3) | ANY,
        "currentNodes": ANY,
        "inProgress": ANY,
        "inProgressNodes": ANY,
        "podIP": ANY,
    },
)
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "unschedulable": ANY,
        "taints": st.lists(st.dictionaries(st.sampled_from(["key", "effect"]), ANY) | ANY, max_size=3) | ANY,
        "targetNodes": ANY,
        "nodeName": ANY,
    },
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=5) | ANY,
        "uid": st.text(max_size=5) | ANY,
        "resourceVersion": st.text(max_size=5) | ANY,
        "labels": st.dictionaries(st.text(max_size=5), ANY, max_size=3) | ANY,
        "deletionTimestamp": ANY,
    },
)
NEARLY = st.fixed_dictionaries(
    {}, optional={"metadata": METADATA | ANY, "spec": SPEC | ANY, "status": STATUS | ANY, "kind": ANY}
)
"""What is nearly a node pool, a node or a pod."""

OBJECTS = ANY | NEARLY
