"""What is missing of an address space, against the plainest thing that could be: a mapping from pages to offsets."""

from hypothesis import given, strategies as st

from iriscw.freeze.missing import Missing

PAGE = 4096
PAGES = 40
"""Of the address space that is drawn."""

ADDRESSES = st.integers(0, PAGES - 1)


def as_pages(missing: Missing) -> dict[int, int]:
    """Return the offset of each missing page, and check that the ranges are in order and add up."""
    found = {}
    last = -1
    for start, end, offset in missing.ranges():
        assert start < end
        assert start >= last
        last = end
        found.update({at: offset + at - start for at in range(start, end, PAGE)})
    assert missing.size_bytes == len(found) * PAGE
    return found


@st.composite
def spaces(draw):
    """Draw an address space: some pages are missing, and lie in the file in the order of their addresses."""
    present = draw(st.lists(st.booleans(), min_size=PAGES, max_size=PAGES))
    numbers = [number for number, is_there in enumerate(present) if is_there]
    return {number * PAGE: index * PAGE for index, number in enumerate(numbers)}


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("drop"), ADDRESSES, st.integers(0, 12)),
        st.tuples(st.just("move"), ADDRESSES, st.integers(1, 8), ADDRESSES),
    ),
    max_size=8,
)


def changed(model: dict[int, int], change) -> dict[int, int]:
    """Make a change to the model."""
    match change:
        case ("drop", at, count):
            gone = range(at * PAGE, (at + count) * PAGE, PAGE)
            return {address: offset for address, offset in model.items() if address not in gone}
        case ("move", at, count, to):
            taken = {
                address: model[address] for address in range(at * PAGE, (at + count) * PAGE, PAGE) if address in model
            }
            gone = {*range(at * PAGE, (at + count) * PAGE, PAGE), *range(to * PAGE, (to + count) * PAGE, PAGE)}
            rest = {address: offset for address, offset in model.items() if address not in gone}
            return rest | {address + (to - at) * PAGE: offset for address, offset in taken.items()}
    raise AssertionError(change)


@given(model=spaces(), changes=CHANGES)
def test_it_is_what_a_mapping_of_pages_would_be(model, changes):
    """Dropped, moved and forked in any order; the fork goes its own way."""
    missing = Missing((address, address + PAGE, offset) for address, offset in model.items())
    for change in changes:
        match change:
            case ("drop", at, count):
                fork = missing.copied()
                missing.drop(at * PAGE, (at + count) * PAGE)
            case ("move", at, count, to):
                fork = missing.copied()
                missing.move(at * PAGE, to * PAGE, count * PAGE)
        assert as_pages(fork) == model
        model = changed(model, change)
        assert as_pages(missing) == model
        assert bool(missing) == bool(model)
        assert not model or missing.last() == max(model) + PAGE - 1
        for address in range(0, PAGES * PAGE, PAGE):
            assert missing.offset_of(address + 7) == (model[address] + 7 if address in model else None)


@given(model=spaces(), changes=CHANGES, address=ADDRESSES, piece=st.sampled_from([2, 5, 64]))
def test_what_is_around_an_address_is_of_its_piece_and_has_the_address(model, changes, address, piece):
    """Of an untouched space it is all that is missing of the piece; of one that was changed, some of it."""
    missing = Missing((at, at + PAGE, offset) for at, offset in model.items())
    untouched = True
    for change in changes:
        untouched = untouched and change[0] == "drop"
        match change:
            case ("drop", at, count):
                missing.drop(at * PAGE, (at + count) * PAGE)
            case ("move", at, count, to):
                missing.move(at * PAGE, to * PAGE, count * PAGE)
        model = changed(model, change)
    at = address * PAGE
    if at not in model:
        return
    low = model[at] // (piece * PAGE) * piece * PAGE
    found = {}
    for start, end, offset in missing.around(at, low, low + piece * PAGE):
        found.update({each: offset + each - start for each in range(start, end, PAGE)})
    assert found.items() <= model.items()
    assert at in found
    assert all(low <= offset < low + piece * PAGE for offset in found.values())
    if untouched:
        assert found == {each: offset for each, offset in model.items() if low <= offset < low + piece * PAGE}
