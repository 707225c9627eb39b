"""Where a client finds its controller."""

import json
import os

import pytest
import trustme

from iriscw._errors import InvalidArgument
from iriscw.client import discovery
from iriscw.client.discovery import context_path, discover, read_context, remove_context, write_context
from iriscw.client.errors import InvalidContextFile, NoController
from iriscw.rpc.tokens import Secret, write_token_file
from iriscw.task.context import TaskContext, entered
from iriscw.task.environment import AttemptFacts
from raised import that


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A context file's path, and an environment that says nothing else."""
    for name in ("IRIS_CONTROLLER_ADDRESS", "IRIS_TOKEN_FILE", "IRIS_WORKDIR", "IRIS_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "state" / "context.json"
    monkeypatch.setenv("IRISCW_CONTEXT", str(path))
    return path


def test_the_path_follows_the_conventions():
    """The variable of its own first, then the runtime folder, then the user's state."""
    home = {"HOME": "/home/u"}
    assert str(context_path(home)) == "/home/u/.local/state/iriscw/context.json"
    runtime = {**home, "XDG_RUNTIME_DIR": "/run/user/7"}
    assert str(context_path(runtime)) == "/run/user/7/iriscw/context.json"
    assert str(context_path({**runtime, "IRISCW_CONTEXT": "/x/c.json"})) == "/x/c.json"


def test_nobody_says_where(path):
    """Without any hint the error says what to do."""
    with pytest.raises(NoController, check=that(comes_from="discovery.discover")):
        discover()


def test_a_context_is_private_and_found(path):
    """What was left is found, and only its owner can read it."""
    written = write_context(path, "127.0.0.1:7", Secret("tok"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert written.is_alive
    assert "<secret>" in repr(written)
    found = discover()
    assert (found.address, found.token) == ("127.0.0.1:7", Secret("tok"))


def test_a_context_says_where_the_cluster_lives(path):
    """For whoever cleans up after it; what an earlier version wrote did not say so."""
    write_context(path, "127.0.0.1:7", Secret("tok"), path.parent / "work")
    assert read_context(path).workdir == path.parent / "work"
    content = json.loads(path.read_text())
    del content["workdir"]
    path.write_text(json.dumps(content))
    assert read_context(path).workdir is None


def test_the_token_belongs_to_its_address(path):
    """A token goes to the address it was left for, and to no other."""
    write_context(path, "127.0.0.1:7", Secret("tok"))
    assert discover("127.0.0.1:7").token == Secret("tok")
    assert discover("127.0.0.1:8").token is None
    assert discover("127.0.0.1:8", "mine").token == Secret("mine")


def test_a_token_alone_is_no_address(path):
    """A token without an address is a slip."""
    with pytest.raises(InvalidArgument):
        discover(token="tok")


def test_a_context_that_others_can_read_is_refused(path):
    """Whoever could read it has the token: it is not used."""
    write_context(path, "127.0.0.1:7", Secret("tok"))
    path.chmod(0o644)
    with pytest.raises(InvalidContextFile, check=that(comes_from="discovery.read_context")):
        discover()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"address": "a", "token": "sec ret", "owner": {}}'])
def test_a_broken_context_is_named(path, content):
    """A file that is not a context is an error that does not show what it holds."""
    path.parent.mkdir(parents=True)
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InvalidContextFile) as caught:
        read_context(path)
    assert "sec ret" not in str(caught.value)


def test_only_its_writer_removes_a_context(path):
    """A later cluster's file is not removed by an earlier one."""
    ours = write_context(path, "127.0.0.1:7", Secret("tok"))
    later = discovery.ClusterContext(ours.address, ours.token, discovery.ProcessIdentity(1, 1, "x"))
    remove_context(path, later)
    assert path.exists()
    remove_context(path, ours)
    assert not path.exists()
    remove_context(path, ours)


def test_the_environment_comes_before_the_context(path, tmp_path, monkeypatch):
    """Whoever sets the variables means them."""
    write_context(path, "127.0.0.1:7", Secret("tok"))
    write_token_file(tmp_path / "token", Secret("other"))
    monkeypatch.setenv("IRIS_CONTROLLER_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv("IRIS_TOKEN_FILE", str(tmp_path / "token"))
    assert (discover().address, discover().token) == ("127.0.0.1:9", Secret("other"))


def test_a_task_finds_its_own_controller(path, tmp_path):
    """Inside a task its context wins, and its job becomes the parent of what it submits."""
    facts = AttemptFacts(job_id="job-7", task_id="job-7/0", attempt_uid="u", index=0, num_tasks=1)
    task = TaskContext(discovery.attrs.evolve(facts, controller_address="127.0.0.1:5"), tmp_path)
    write_token_file(task.token_file, Secret("scoped"))
    with entered(task):
        found = discover()
    assert (found.address, found.token, found.job_id) == ("127.0.0.1:5", Secret("scoped"), "job-7")


def test_a_task_that_names_its_own_controller_is_no_stranger_there(path, tmp_path, monkeypatch):
    """With a token of one's own, too, the task's job asks; of another controller's jobs it is none."""
    facts = AttemptFacts(job_id="job-7", task_id="job-7/0", attempt_uid="u", index=0, num_tasks=1)
    with entered(TaskContext(discovery.attrs.evolve(facts, controller_address="10.0.0.1:5"), tmp_path)):
        assert discover("10.0.0.1:5", "mine") == discovery.ControllerEndpoint("10.0.0.1:5", Secret("mine"), "job-7")
        assert discover("10.0.0.1:6", "mine").job_id == ""
    assert discover("10.0.0.1:5", "mine").job_id == ""
    monkeypatch.setenv("IRIS_CONTROLLER_ADDRESS", "10.0.0.1:5")
    monkeypatch.setenv("IRIS_JOB_ID", "job-8")
    assert discover("10.0.0.1:5", "mine").job_id == "job-8"
    assert discover("10.0.0.1:6", "mine").job_id == ""


def test_the_owner_is_known_where_it_lives(path):
    """A client learns which process keeps the cluster up, if that is this machine's, however it was found."""
    owner = write_context(path, "127.0.0.1:7", Secret("t")).owner
    for found in (discover(), discover("127.0.0.1:7")):
        assert found.keeper.process == owner
    assert discover("127.0.0.1:8").keeper is None
    write_context(path, "10.0.0.1:7", Secret("t"))
    assert discover().keeper is None


def test_a_tunnel_says_who_is_at_its_far_end(path, tmp_path):
    """Its context has the certificate's name and authority; when its process is gone, the way out is its own."""
    written = write_context(path, "https://127.0.0.1:7", Secret("t"), server_name="c.iris", authority=tmp_path / "ca")
    found = discover()
    assert (found.server_name, found.authority, found.keeper.process) == ("c.iris", tmp_path / "ca", written.owner)
    assert discover("https://127.0.0.1:7") == found
    assert read_context(path) == written
    content = json.loads(path.read_text())
    content["owner"]["start_ticks"] = 1
    path.write_text(json.dumps(content))
    with pytest.raises(NoController, check=that(comes_from="discovery.discover", names="connect")):
        discover()


def test_the_way_back_to_jobs_names_their_folder(path, tmp_path):
    """A cluster that was killed is taken up from its own folder; one that starts elsewhere knows none of its jobs."""
    for kept in (False, True):
        written = write_context(path, "127.0.0.1:7", Secret("t"), tmp_path / "my state", kept=kept)
        assert read_context(path) == written
        assert discover().keeper.comes_back is kept
        content = json.loads(path.read_text())
        content["owner"]["start_ticks"] = 1
        path.write_text(json.dumps(content))
        with pytest.raises(NoController) as failed:
            discover()
        assert str(failed.value).endswith(
            f"`iriscw up --workdir '{tmp_path / 'my state'}'`, with its other options, takes its jobs up"
            if kept
            else "run `iriscw up` again"
        )


def test_the_environments_name_is_for_its_own_address(path, monkeypatch):
    """Another controller's certificate has to hold that one's name."""
    monkeypatch.setenv("IRIS_SERVER_NAME", "c.iris")
    assert discover("https://127.0.0.1:9", "t").server_name == ""
    monkeypatch.setenv("IRIS_CONTROLLER_ADDRESS", "https://127.0.0.1:9")
    assert discover().server_name == "c.iris"
    assert discover("https://127.0.0.1:9", "t").server_name == "c.iris"
    assert discover("https://127.0.0.1:8", "t").server_name == ""


def test_a_dead_owner_is_seen(path):
    """Whether the cluster's process lives can be told from the file."""
    written = write_context(path, "a:1", Secret("t"))
    gone = discovery.attrs.evolve(written.owner, start_ticks=1)
    assert not discovery.attrs.evolve(written, owner=gone).is_alive
    assert written.owner.pid == os.getpid()


def test_whom_to_trust(monkeypatch, tmp_path):
    """An authority of its own counts where the address asks for TLS; a trusted network is said in words."""
    monkeypatch.delenv("IRIS_CA_FILE", raising=False)
    monkeypatch.delenv("IRISCW_INSECURE_PLAINTEXT", raising=False)
    assert discovery.authority_of("https://controller:10000") is None
    assert not discovery.is_network_trusted()
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    monkeypatch.setenv("IRIS_CA_FILE", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("IRISCW_INSECURE_PLAINTEXT", "1")
    assert len(discovery.authority_of("https://controller:10000").get_ca_certs()) == 1
    assert discovery.authority_of("controller:10000") is None
    assert discovery.is_network_trusted()
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
    theirs = discovery.authority_of("https://controller:10000", tmp_path / "other.crt").get_ca_certs()
    assert theirs != discovery.authority_of("https://controller:10000").get_ca_certs()
    with pytest.raises(InvalidArgument, check=that(comes_from="discovery.authority_of", names="missing.crt")):
        discovery.authority_of("https://controller:10000", tmp_path / "missing.crt")
    (tmp_path / "ca.crt").write_text("nothing")
    with pytest.raises(InvalidArgument, check=that(comes_from="discovery.authority_of", names="IRIS_CA_FILE")):
        discovery.authority_of("https://controller:10000")
