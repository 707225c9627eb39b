"""managedFields: who last set which field."""

from kube_caller import MAPS, PODS, SECOND, config_map, pod

from iriscw_sims.kube.clock import written


def entries(item):
    """Return the entries of an object by manager, operation and subresource."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry
        for entry in item["metadata"].get("managedFields", ())
    }


def test_a_writer_owns_what_it_changed_and_takes_it_from_others(caller):
    """The other keeps the rest."""
    caller.done("POST", MAPS, config_map("a", {"k": "1", "l": "1"}), fieldManager="one")
    item = caller.patch(f"{MAPS}/a", {"data": {"k": "2"}}, fieldManager="two")
    owned = entries(item)
    assert owned["one", "Update", ""]["fieldsV1"] == {"f:data": {".": {}, "f:l": {}}}
    assert owned["two", "Update", ""]["fieldsV1"] == {"f:data": {"f:k": {}}}


def test_what_is_removed_nobody_owns(caller):
    """And who has nothing left is gone."""
    caller.done("POST", MAPS, config_map("a"), fieldManager="one")
    caller.patch(f"{MAPS}/a", {"data": {"k": "1"}}, fieldManager="two")
    item = caller.patch(f"{MAPS}/a", {"data": None}, fieldManager="three")
    assert entries(item) == {}


def test_an_entrys_time_is_that_of_its_last_gain(caller):
    """Writing the same again gains nothing."""
    caller.done("POST", MAPS, config_map("a", {"k": "1"}), fieldManager="one")
    began = caller.now
    caller.now += 10 * SECOND
    item = caller.patch(f"{MAPS}/a", {"data": {"l": "1"}}, fieldManager="two")
    assert entries(item)["one", "Update", ""]["time"] == written(began)
    assert entries(item)["two", "Update", ""]["time"] == written(caller.now)


def test_subresources_have_entries_of_their_own(caller):
    """A kubelet's status is apart from its metadata."""
    caller.done("POST", PODS, pod("a"), fieldManager="me")
    item = caller.patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, fieldManager="kubelet")
    assert entries(item)["kubelet", "Update", "status"]["fieldsV1"] == {"f:status": {"f:phase": {}}}


def test_what_the_server_adds_nobody_owns(caller):
    """Neither its own metadata nor what admission filled in; defaults belong to the writer."""
    item = caller.done("POST", PODS, pod("a"))
    (entry,) = item["metadata"]["managedFields"]
    assert "f:metadata" not in entry["fieldsV1"]
    assert "f:restartPolicy" in entry["fieldsV1"]["f:spec"]
    assert "f:tolerations" not in entry["fieldsV1"]["f:spec"]
    assert item["spec"]["tolerations"]


def test_tracking_can_be_given_up(caller):
    """An empty list or a list of an empty entry."""
    for given in ([], [{}]):
        caller.done("PUT" if given else "POST", f"{MAPS}/a" if given else MAPS, config_map("a", {"k": str(given)}))
        item = caller.patch(f"{MAPS}/a", {"metadata": {"managedFields": given}})
        assert "managedFields" not in item["metadata"]
    assert "managedFields" not in caller.patch(f"{MAPS}/a", {"data": {"z": "1"}})["metadata"]


def test_entries_are_sorted(caller):
    """Applies first, then by time, then by name."""
    caller.done("POST", MAPS, config_map("a", {"k": "1"}), fieldManager="b")
    caller.patch(f"{MAPS}/a", {"data": {"l": "1"}}, fieldManager="a")
    item = caller.apply(f"{MAPS}/a", config_map("a", {"m": "1"}), "z")
    assert [entry["manager"] for entry in item["metadata"]["managedFields"]] == ["z", "a", "b"]


def test_the_oldest_updates_are_joined(caller):
    """Ten entries of updates are kept; those of applies do not count."""
    caller.apply(f"{MAPS}/a", config_map("a", {"k": "1"}), "applier")
    for number in range(12):
        caller.now += SECOND
        caller.patch(f"{MAPS}/a", {"data": {f"k{number:02}": "1"}}, fieldManager=f"m{number:02}")
    entries = caller.done("GET", f"{MAPS}/a")["metadata"]["managedFields"]
    updates = {entry["manager"]: entry for entry in entries if entry["operation"] == "Update"}
    assert sorted(updates) == ["ancient-changes", *(f"m{number:02}" for number in range(3, 12))]
    assert sorted(updates["ancient-changes"]["fieldsV1"]["f:data"]) == ["f:k00", "f:k01", "f:k02"]
    assert [entry["manager"] for entry in entries if entry["operation"] == "Apply"] == ["applier"]


def test_what_a_request_cannot_write_is_not_its_own(caller):
    """The status by the object, all else by the status; what it tries to change and may, is."""
    caller.done("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"providerID": "p"}})
    caller.patch("/api/v1/nodes/n", {"status": {"phase": "x"}, "metadata": {"labels": {"a": "b"}}}, fieldManager="one")
    change = {"status": {"phase": "x"}, "spec": {"unschedulable": True}}
    item = caller.patch("/api/v1/nodes/n/status", change, fieldManager="two")
    owned = {entry["manager"]: [*entry["fieldsV1"]] for entry in item["metadata"]["managedFields"]}
    assert owned["one"] == ["f:metadata"]
    assert owned["two"] == ["f:status"]
