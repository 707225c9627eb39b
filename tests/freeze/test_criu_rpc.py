"""What is asked of CRIU and what it answers, as bytes."""

import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.criu_protobuf import NotProtobuf, decode, encode, message, replaced, signed, text, unsigned
from iriscw.freeze.criu_rpc import (
    CriuAnswer,
    CriuMessageKind,
    NetworkLock,
    NotUnderstood,
    ask_dump,
    ask_restore,
    kind_of,
    read_answer,
    read_dump_statistics,
    read_restore_statistics,
    reply,
    taken_over,
)
from iriscw.freeze.model import CriuOptions, DumpReport, RestoreReport
from profiles import examples

NUMBERS = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)

# As CRIU 4.2.1 wrote it: 35 bytes of an entry after two magic numbers and a length.
DUMPED = bytes.fromhex(
    "4059105506330957250000000a23088b01108ced0118f26320cc1228a00e300038bd0d40004800500858086000680070000a"
)[:49]


@examples(30)
@given(st.dictionaries(st.integers(min_value=1, max_value=1 << 20), NUMBERS | st.binary(max_size=300)))
def test_what_was_encoded_is_decoded(fields) -> None:
    """Numbers, negative ones too, and strings, whatever their fields are."""
    decoded = decode(encode(fields.items()))
    assert decoded.keys() == fields.keys()
    for number, value in fields.items():
        assert (signed(decoded[number]) if isinstance(value, int) else decoded[number]) == value


@given(st.binary(max_size=60))
def test_whatever_comes_is_decoded_or_refused(data) -> None:
    """Nothing else is raised."""
    try:
        decode(data)
    except NotProtobuf:
        pass
    try:
        read_answer(data)
    except NotUnderstood:
        pass


@examples(30)
@given(st.lists(st.tuples(st.integers(1, 99), st.binary(max_size=20)), min_size=1), st.data())
def test_a_message_that_is_cut_off_is_none(fields, data) -> None:
    """Unless it is cut between two fields: then it is a shorter one."""
    whole = encode(fields)
    cut = data.draw(st.integers(0, len(whole) - 1))
    between = {len(encode(fields[:count])) for count in range(len(fields))}
    if cut in between:
        decode(whole[:cut])
    else:
        with pytest.raises(NotProtobuf):
            decode(whole[:cut])


def test_missing_fields_are_nothing() -> None:
    """Zero, empty, no fields; a field of another kind counts as missing."""
    assert (signed(None), unsigned(b""), text(3), message(None)) == (0, 0, "", {})


def test_a_dump_is_asked_for() -> None:
    """The number of each option is CRIU's; the network is locked where connections are to be kept, and only there."""
    options = CriuOptions(tcp_established=True, file_locks=False, ghost_limit_bytes=7)
    request = decode(ask_dump(12, options, images="/i", timeout_s=3))
    fields = message(request[2])
    assert request[1] == CriuMessageKind.DUMP
    assert fields == {
        1: (1 << 64) - 1,
        2: 12,
        4: 0,
        5: 1,
        7: 0,
        8: 0,
        9: 4,
        10: b"dump.log",
        12: 1,
        18: 0,
        35: 7,
        45: 3,
        52: 0,
        64: NetworkLock.NFTABLES,
        68: b"/i",
    }
    assert message(decode(ask_dump(12, CriuOptions(), images="/i", timeout_s=3))[2])[64] == NetworkLock.SKIP


def test_a_restore_is_asked_for_and_stays_stopped() -> None:
    """No number is named: the images say which. All of it is left stopped."""
    request = decode(ask_restore(CriuOptions(), images="/i"))
    fields = message(request[2])
    assert (request[1], fields[69], fields[12], 2 in fields) == (CriuMessageKind.RESTORE, 1, 1, False)


def test_who_asks_for_a_tree_with_a_terminal_becomes_its_parent() -> None:
    """A stopped process group whose parent is of another session, or ends, is told to hang up."""
    for shell_job in (False, True):
        fields = message(decode(ask_restore(CriuOptions(shell_job=shell_job), images="/i"))[2])
        assert (fields.get(26, 0), fields[7]) == (shell_job, shell_job)


def test_a_notification_is_answered() -> None:
    """Yes or no."""
    assert [decode(reply(success=each)) for each in (True, False)] == [
        {1: CriuMessageKind.NOTIFY, 3: 1},
        {1: CriuMessageKind.NOTIFY, 3: 0},
    ]


def test_answers_are_read() -> None:
    """A notification, a failure with its text, a restore with its process, a version."""
    notification = encode([(1, CriuMessageKind.NOTIFY), (2, True), (5, [(1, "post-dump")])])
    assert read_answer(notification) == CriuAnswer(CriuMessageKind.NOTIFY, True, script="post-dump")
    failure = encode([(1, CriuMessageKind.DUMP), (2, False), (7, -3), (9, "no")])
    assert read_answer(failure) == CriuAnswer(CriuMessageKind.DUMP, False, number=3, text="no")
    assert read_answer(encode([(1, CriuMessageKind.RESTORE), (2, True), (4, [(1, 77)])])).pid == 77
    version = read_answer(
        encode([(1, CriuMessageKind.VERSION), (2, True), (10, [(1, 4), (2, 2), (3, "v4.2"), (4, 1)])])
    )
    assert (version.version, version.git_id) == ("4.2.1", "v4.2")


@pytest.mark.parametrize("data", [encode([(1, 99)]), encode([(1, CriuMessageKind.NOTIFY), (5, b"\x08")]), b"\xff"])
def test_what_criu_never_says_is_not_understood(data) -> None:
    """A kind that nobody asked for, and what is not a message."""
    with pytest.raises(NotUnderstood):
        read_answer(data)


def test_statistics_are_read() -> None:
    """Those that a CRIU 4.2.1 wrote; a file that is none, or is of something else, says nothing."""
    assert read_dump_statistics(DUMPED) == DumpReport(139, 30348, 12786, 2380, 1824, 1725)
    assert read_restore_statistics(DUMPED) == RestoreReport(())
    for data in (b"", DUMPED[:20], b"x" * 50):
        assert read_dump_statistics(data) == DumpReport()
    restored = encode([(2, [(3, 5), (4, 6), (5, 7)])])
    image = DUMPED[:8] + len(restored).to_bytes(4, "little") + restored
    assert read_restore_statistics(image) == RestoreReport((), 5, 6, 7)


@given(
    st.dictionaries(st.integers(min_value=1, max_value=40), NUMBERS | st.binary(max_size=20)),
    st.dictionaries(st.integers(min_value=1, max_value=40), NUMBERS | st.binary(max_size=20) | st.none()),
)
def test_fields_are_replaced(fields, others) -> None:
    """What is given stands in place of what was there, however often; all else is as it was."""
    twice = encode([*fields.items(), *fields.items()])
    wanted = {**fields, **others}
    found = decode(replaced(twice, [*others.items()]))
    assert found.keys() == {number for number, value in wanted.items() if value is not None}
    for number, value in found.items():
        assert (signed(value) if isinstance(value, int) else value) == wanted[number]


RUNTIMES = [
    *((1, 7), (2, 4711), (3, True), (5, False), (9, 1), (10, "else.log"), (11, b""), (14, "../parent")),
    *((17, 8), (23, encode([(1, "/proc/kcore"), (2, "/proc/kcore")])), (23, encode([(1, "/more"), (2, "/more")]))),
    *((37, "net[1]:extRootNetNS"), (44, "/sys/fs/cgroup/freezer/box"), (48, True), (51, "/etc/criu/runc.conf")),
]
"""Options as a runtime gives them: descriptors of its own, mounts, namespaces, a file with options."""


@pytest.mark.parametrize("kind", [CriuMessageKind.DUMP, CriuMessageKind.RESTORE])
def test_a_request_of_a_runtime_is_taken_over(kind) -> None:
    """Folders and options are ours, no other file is read and nothing runs on; what only the runtime knows stays."""
    theirs = encode([(1, kind), (2, encode(RUNTIMES))])
    assert kind_of(theirs) is kind
    ours = decode(taken_over(theirs, CriuOptions(tcp_established=True), images="/images", timeout_s=9))
    assert ours[1] == kind
    options = message(ours[2])
    assert (signed(options[1]), text(options[68])) == (-1, "/images")
    assert unsigned(options[5]) == 1
    assert text(options[10]) == ("restore.log" if kind is CriuMessageKind.RESTORE else "dump.log")
    assert not {3, 11, 14, 17, 48, 51} & options.keys()
    assert options.get(69, 0) == (1 if kind is CriuMessageKind.RESTORE else 0)
    assert options.get(45, 0) == (9 if kind is CriuMessageKind.DUMP else 0)
    assert (unsigned(options[2]), text(options[37])) == (4711, "net[1]:extRootNetNS")
    assert ours[2].count(b"/proc/kcore") == 2  # both mounts, as they were
    assert ours[2].count(b"/more") == 2


@pytest.mark.parametrize("request_", [b"", b"\xff", encode([(1, CriuMessageKind.DUMP)]), encode([(1, 99), (2, b"")])])
def test_a_request_that_is_none(request_) -> None:
    """It is refused by name."""
    with pytest.raises(NotUnderstood):
        taken_over(request_, CriuOptions(), images="/images")


def test_a_question_that_is_not_ours() -> None:
    """A runtime may ask for what iriscw never does: that is no error by itself."""
    assert kind_of(encode([(1, 9)])) is None
    assert kind_of(encode([(1, CriuMessageKind.VERSION)])) is CriuMessageKind.VERSION
    with pytest.raises(NotUnderstood):
        kind_of(b"\xff")


def test_who_a_notification_is_about() -> None:
    """Its process has a number, as that of an answer has."""
    notification = encode([(1, CriuMessageKind.NOTIFY), (2, True), (5, [(1, "post-restore"), (2, 77)])])
    assert read_answer(notification).pid == 77
