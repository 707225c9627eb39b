"""What a test may ask of an error beside its class: where it was raised, which values it names, what it holds.

Never its prose: ``texts.txt`` has that, and a person reviews it there. Read it as a sentence::

    with pytest.raises(NoSuchNode, check=that(names="n9")): ...
    with pytest.raises(InvalidTokenFile, check=that(comes_from="tokens.read_token")): ...
    with pytest.raises(OSError, check=that(errno=errno.ENOSPC)): ...
"""

import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

Check = Callable[[BaseException], bool]

OURS = ("iriscw", "iriscw_sims")
UNNAMED = re.compile(r"\.?<\w+>")


def place_of(error: BaseException) -> str:
    """Return which function raised an error, as ``module.Class.function``.

    It is the innermost function of iriscw on the way of the error, or the innermost one of all if that way has none.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not codes:  # it was never raised, but is what another error names as its cause
        return ""
    ours = [each for each in codes if {*OURS} & {*Path(each.co_filename).parts}]
    code = (ours or codes)[-1]
    path = Path(code.co_filename)
    module = path.parent.name if path.stem == "__init__" else path.stem
    return f"{module}.{UNNAMED.sub('', code.co_qualname)}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and not any(error is each for each in seen):  # a context may lead back to where it began
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__


def that(*, comes_from: str = "", names: object = (), cause: type | None = None, **has: object) -> Check:
    """Return a check for ``pytest.raises``, which says what differs if one does.

    Args:
        comes_from: The function that raised it, or what it was raised from, with its module: ``"tokens.read_token"``.
        names: A value, or several in a tuple, that its text has to have: a name, a number, an option, a path.
        cause: The class of what it was raised from.
        has: Its attributes.
    """

    def check(error: BaseException) -> bool:
        if comes_from:
            places = [place_of(each) for each in _chain(error)]
            assert comes_from in places, f"it comes from {' from '.join(places)}: {error}"
        for name in names if isinstance(names, tuple) else (names,):
            assert str(name), "an empty name is in every text"
            whole = rf"(?<!\w){re.escape(str(name))}(?!\w)" if str(name).isalnum() else re.escape(str(name))
            assert re.search(whole, str(error)), f"it does not name {name}: {error}"
        assert cause is None or isinstance(error.__cause__, cause), f"it has the cause {error.__cause__!r}"
        held = {name: getattr(error, name) for name in has}
        assert held == has, str(error)
        return True

    return check
