"""The normal form keeps what two worlds must agree on, and nothing else."""

from kube_normal import normal_form
from kube_program import Answer, Ask, Drain, Events
from kube_worlds import Exchange


def _thing(name, revision, uid="0" * 8 + "-0000-4000-8000-" + "0" * 12, **metadata):
    return {"kind": "Thing", "metadata": {"name": name, "uid": uid, "resourceVersion": str(revision), **metadata}}


def _normal(*bodies, code=200):
    return [each["body"] for each in normal_form([Exchange(Ask("GET", "/"), Answer(code, body)) for body in bodies])]


def _listed(revision, *items):
    return {"kind": "ThingList", "metadata": {"resourceVersion": str(revision)}, "items": list(items)}


def test_versions_become_ranks():
    """Whatever their values: only order and equality are left, and a list lies between two writes."""
    one = _normal(_thing("a", 5), _thing("b", 9), _thing("a", 7), _listed(7, _thing("a", 7)), _listed(8))
    other = _normal(_thing("a", 50), _thing("b", 90), _thing("a", 51), _listed(51, _thing("a", 51)), _listed(89))
    assert one == other
    assert [body["metadata"]["resourceVersion"] for body in one] == [
        "revision#1",
        "revision#3",
        "revision#2",
        "after#2",
        "after#2",
    ]
    assert one != _normal(_thing("a", 5), _thing("b", 9), _thing("a", 9), _listed(7, _thing("a", 9)), _listed(8))


def test_uids_are_numbered_as_objects_appear():
    """In whatever order an answer's fields come; one that no object has stays."""
    first, second = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
    status = {"kind": "Status", "status": "Success", "details": {"uid": second, "name": first}}
    for uids in ((first, second), (second, first)):
        bodies = _normal(_thing("a", 1, uids[0]), _thing("b", 2, uids[1]), status)
        assert [body["metadata"]["uid"] for body in bodies[:2]] == ["uid#0", "uid#1"]
        assert bodies[2]["details"]["uid"] == f"uid#{uids.index(second)}"
    assert _normal(status)[0]["details"]["uid"] == second


def test_generated_names_are_numbered_and_given_ones_stay():
    """In texts too."""
    bodies = _normal(
        _thing("gen-x7k2p", 1, generateName="gen-"),
        _thing("gen-fixed-name", 2, generateName="gen-"),
        {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": 'things "gen-x7k2p" not found'},
    )
    assert [body["metadata"]["name"] for body in bodies[:2]] == ["gen-#0", "gen-fixed-name"]
    assert bodies[2]["message"] == 'things "gen-#0" not found'


def test_a_generated_name_that_was_refused_is_one_too():
    """It stands in the refusal only."""
    step = Ask("POST", "/things", body={"metadata": {"generateName": "gen-"}, "spec": {}})
    body = {"kind": "Status", "status": "Failure", "reason": "Invalid", "details": {"name": "gen-x7k2p"}}
    [normal] = normal_form([Exchange(step, Answer(422, body))])
    assert normal["body"]["details"]["name"] == "gen-#0"


def test_times_of_the_server_go_and_times_of_a_client_stay():
    """Also those of managed fields, whose order goes with them."""
    entries = [
        {"manager": manager, "operation": "Update", "time": time, "fieldsV1": {"f:data": {}}}
        for manager, time in (("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:01Z"))
    ]
    thing = _thing("a", 1, creationTimestamp="2026-01-01T00:00:00Z", managedFields=entries)
    thing |= {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    [body] = _normal(thing)
    assert body["metadata"]["creationTimestamp"] == "<creationTimestamp>"
    assert body["spec"] == thing["spec"]
    assert [entry["manager"] for entry in body["metadata"]["managedFields"]] == ["a", "b"]
    assert all("time" not in entry for entry in body["metadata"]["managedFields"])
    assert "time" in entries[0], "what was given is not changed"


def test_of_a_status_reason_code_and_causes_are_kept():
    """Texts are kept of few reasons; causes come in order of field."""
    causes = [
        {"reason": "FieldValueInvalid", "message": "m", "field": "spec.b"},
        {"reason": "FieldValueRequired", "message": "n", "field": "spec.a"},
    ]
    body = {"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": "long"}
    [normal] = _normal({**body, "details": {"name": "a", "causes": causes}})
    assert normal["details"] == {
        "name": "a",
        "causes": [
            {"reason": "FieldValueRequired", "field": "spec.a"},
            {"reason": "FieldValueInvalid", "field": "spec.b"},
        ],
    }
    assert "message" not in normal
    assert _normal({**body, "reason": "NotFound"})[0]["message"] == "long"


def test_tokens_addresses_and_numbers_of_runs_are_replaced():
    """They differ between any two runs."""
    service = {**_thing("s", 1), "kind": "Service", "spec": {"clusterIP": "10.1.2.3", "clusterIPs": ["10.1.2.3"]}}
    headless = {**_thing("t", 2), "kind": "Service", "spec": {"clusterIP": "None"}}
    page = {"kind": "ThingList", "metadata": {"resourceVersion": "3", "continue": "abc"}, "items": []}
    bodies = _normal(service, headless, page, _thing("run-17", 4))
    assert bodies[0]["spec"] == {"clusterIP": "address#0", "clusterIPs": ["address#0"]}
    assert bodies[1]["spec"] == {"clusterIP": "None"}
    assert bodies[2]["metadata"]["continue"] == "<continue>"
    assert bodies[3]["metadata"]["name"] == "run-#"


def test_events_are_normal_objects_in_their_order():
    """And whether the server ended the watch."""
    events = ({"type": "ADDED", "object": _thing("a", 5)}, {"type": "DELETED", "object": _thing("a", 8)})
    [normal] = normal_form([Exchange(Drain("w"), Events(events, closed=True))])
    assert [event["object"]["metadata"]["resourceVersion"] for event in normal["events"]] == [
        "revision#1",
        "revision#2",
    ]
    assert normal["closed"] is True


def test_of_headers_only_the_meaning_is_kept():
    """How many warnings, and whether the server asked to retry later."""
    answer = Answer(429, {"kind": "Status", "status": "Failure"}, ("299 - one", "299 - two"), "10")
    [normal] = normal_form([Exchange(Ask("GET", "/"), answer)])
    assert (normal["warnings"], normal["retry_after"]) == (2, True)
