"""What a task asks for."""

import copy
import pickle

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import UsageError
from iriscw.resources import GPU_LIMIT, InvalidResources, Resources
from raised import that


def test_defaults():
    """A task gets one core and one GiB."""
    resources = Resources()
    assert (resources.cpu_milli, resources.memory_bytes, resources.disk_bytes) == (1000, 2**30, 0)
    assert (resources.gpu_count, resources.gpu_class) == (0, None)


def test_spelling_does_not_matter():
    """Equal amounts are equal, and hash equally, however they were written."""
    assert Resources(cpu="500m", memory="1GiB") == Resources(cpu=0.5, memory=2**30)
    assert hash(Resources(cpu=2.0)) == hash(Resources(cpu="2"))


def test_repr_is_readable():
    """The text shows amounts as people write them."""
    assert repr(Resources(cpu=0.5, memory="2048GB", gpu=8, gpu_class="H100")) == (
        "Resources(cpu=0.5, memory='2048GB', gpu=8, gpu_class='H100')"
    )
    assert repr(Resources(cpu=4, disk="1TB")) == "Resources(cpu=4, memory='1GiB', disk='1TB')"


amounts = st.builds(
    Resources,
    cpu=st.integers(1, 10**6).map(lambda milli: f"{milli}m"),
    memory=st.integers(1, 2**50),
    disk=st.integers(0, 2**50),
    gpu=st.integers(1, GPU_LIMIT),
    gpu_class=st.none() | st.sampled_from(["H100", "GH200_480GB"]),
)


@given(amounts)
def test_normal_form_is_stable(resources):
    """Evolving, pickling, copying and reading the repr give an equal value."""
    assert attrs.evolve(resources) == resources
    assert pickle.loads(pickle.dumps(resources)) == resources
    assert copy.deepcopy(resources) == resources
    assert eval(repr(resources), {"Resources": Resources}) == resources
    assert isinstance(resources.cpu_milli, int)


@pytest.mark.parametrize(
    ("amount", "says"),
    [
        ({"cpu": -1}, that(comes_from="resources._cores")),
        ({"cpu": 0}, that(comes_from="resources.Resources.__attrs_post_init__")),
        ({"cpu": "many"}, that(comes_from="resources._cores", names="many")),
        ({"memory": 0}, that(comes_from="resources.Resources.__attrs_post_init__")),
        ({"memory": "1gb"}, that(names=("memory", "1gb", "gb"))),
        ({"disk": "x"}, that(names=("disk", "x"))),
        ({"gpu": -1}, that(comes_from="resources._gpus")),
        ({"gpu": GPU_LIMIT + 1}, that(comes_from="resources._gpus")),
        ({"gpu": 0.5}, that(comes_from="resources._gpus")),
        ({"gpu": True}, that(comes_from="resources._gpus")),
        ({"gpu_class": "H100"}, that(comes_from="resources.Resources.__attrs_post_init__", names="H100")),
        ({"gpu": 1, "gpu_class": "H 100"}, that(comes_from="resources._gpu_class", names=("H", "100"))),
        ({"gpu": 1, "gpu_class": 100}, that(comes_from="resources._gpu_class", names="100")),
    ],
)
def test_impossible_amounts(amount, says):
    """An error names the field, says what is wrong, and is the caller's."""
    with pytest.raises(InvalidResources, check=says) as caught:
        Resources(**amount)
    assert isinstance(caught.value, UsageError)


def test_a_gpu_task_may_ask_for_no_cpu():
    """CPU may be 0 only beside a GPU."""
    assert Resources(cpu=0, gpu=1).cpu_milli == 0


def test_frozen():
    """An amount cannot be changed."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Resources().gpu = 1
