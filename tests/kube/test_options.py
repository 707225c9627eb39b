"""Options of writes."""

import pytest
from kube_caller import APPLY, JSON_PATCH, MAPS, MERGE, config_map

A = f"{MAPS}/a"


def test_all_that_is_wrong_is_told_at_once(caller):
    """One refusal, one cause for each option, before the object is looked for."""
    wrong = {"dryRun": "Some", "fieldValidation": "Maybe", "fieldManager": "m" * 129}
    kinds = {"dryRun": "FieldValueNotSupported", "fieldValidation": "FieldValueNotSupported"}
    expected = sorted([*((kind, field) for field, kind in kinds.items()), ("FieldValueTooLong", "fieldManager")])
    assert sorted(caller.causes("POST", MAPS, config_map("a"), **wrong)) == expected
    assert sorted(caller.causes("PUT", A, config_map("a"), **wrong)) == expected
    forced = caller.causes("PATCH", A, {}, content_type=MERGE, force="true", **wrong)
    assert sorted(forced) == sorted([*expected, ("FieldValueForbidden", "force")])


def test_who_applies_says_who(caller):
    """With other options and without."""
    missing = [("FieldValueRequired", "fieldManager")]
    assert caller.causes("PATCH", A, config_map("a"), content_type=APPLY) == missing
    assert caller.causes("PATCH", A, config_map("a"), content_type=APPLY, force="true") == missing


def test_a_manager_can_be_printed(caller):
    """Nothing else is a name."""
    assert caller.causes("POST", MAPS, config_map("a"), fieldManager="a\nb") == [("FieldValueInvalid", "fieldManager")]


@pytest.mark.parametrize("value", ["Ignore", "Warn", "Strict"])
def test_unknown_fields_are_ignored_told_or_refused(caller, value):
    """As the caller wants it."""
    body = {**config_map("a"), "unknown": 1}
    response = caller.ask("POST", MAPS, body, fieldValidation=value)
    assert (response.code, bool(response.headers)) == {
        "Ignore": (201, False),
        "Warn": (201, True),
        "Strict": (400, False),
    }[value]


def test_options_are_read_before_patches(caller):
    """Even those of a patch that is none."""
    assert caller.ask("PATCH", A, 5, content_type=JSON_PATCH, dryRun="Some").code == 422
