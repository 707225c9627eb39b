"""A bug is planted where the syntax tree has its place, and nowhere else."""

import pytest

from anchors import Edit, NotFoundOnce, changed

SOURCE = '''
def f(a):
    """é"""
    if (a >
            1):  # a comment
        return a + 1
    return "é", a + 2


class C:
    table = {"x": f(1), "y": f(1)}

    def f(self, b):
        b.x = 1
        b.y = 2
        match b:
            case 1:
                return None
            case 2:
                return None
'''


@pytest.mark.parametrize(
    ("where", "old", "new", "stands"),
    [
        ("f", "a>1", "a >= 1", "if (a >= 1):  # a comment"),
        ("f", "a + 2", "a", '    return "é", a\n'),
        ("f", "return a + 1", "", "        pass\n    return"),
        ("C.f", "b.x = 1\nb.y = 2", "if b:\n    b.x = 2", "        if b:\n            b.x = 2\n        match b"),
        ("C.f", "case 2:\n    return None", "case 3:\n    pass", "            case 3:\n                pass\n"),
        ("C", "{'y': f(1)}", "{'y': f(2)}", "f(1), 'y': f(2)}"),
        ("C.f", "b.x", "b.z", "        b.z = 1\n"),
    ],
)
def test_it_stands_there_instead(where, old, new, stands):
    """In whatever way that is written; what is around it stays as it was."""
    assert stands in changed(SOURCE, Edit("m.py", where, old, new))


@pytest.mark.parametrize(
    ("where", "old"),
    [("f", "a > 2"), ("C.f", "return None"), ("g", "a > 1"), ("", "a + 3"), ("C", "{'z': f(1)}"), ("C", "f(1)")],
)
def test_what_is_not_there_once_is_an_error(where, old):
    """A bug that fits nowhere, or in two places, is not planted."""
    with pytest.raises(NotFoundOnce):
        changed(SOURCE, Edit("m.py", where, old, "0"))
