"""Read from Kubernetes' Go modules how the kinds that are served are written as protobuf; run it to write the table.

``generated.proto`` of a group says which number has which type, the tags in its ``types.go`` how JSON calls that, what
stands in the object itself there, and what is left out when it is not set. The table is
``sims/iriscw_sims/serve/protobuf_types.txt``, whose head says how it is read. The modules are those of the API server
that ``build-apiserver`` builds: they are in Go's module cache then.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "sims" / "iriscw_sims" / "serve" / "protobuf_types.txt"

HEAD = """\
# Written by tests/kube/real/kube_protobuf.py, from Kubernetes {version}.
# A message is a line: its name, and each field as number:name in JSON:type. A type is a message, or one letter:
# s text, i whole number, d number, b truth, y bytes, t time, m time with microseconds, q quantity, x number or text,
# n raw JSON.
# In front of it stand [] for a list, {{}} for a map by text, ? where nothing is not the same as 0, "" or false, and !
# where JSON has these; else what is so is left out. A name of ~ means that the fields stand in the object itself, and
# of = that JSON has this instead of the message: of several the last one that is there.
"""

PACKAGES = {
    "k8s.io.api.core.v1": ("v1", "k8s.io/api", "core/v1"),
    "k8s.io.api.apps.v1": ("apps/v1", "k8s.io/api", "apps/v1"),
    "k8s.io.api.authorization.v1": ("authorization.k8s.io/v1", "k8s.io/api", "authorization/v1"),
    "k8s.io.api.autoscaling.v1": ("autoscaling/v1", "k8s.io/api", "autoscaling/v1"),
    "k8s.io.api.coordination.v1": ("coordination.k8s.io/v1", "k8s.io/api", "coordination/v1"),
    "k8s.io.api.networking.v1": ("networking.k8s.io/v1", "k8s.io/api", "networking/v1"),
    "k8s.io.api.node.v1": ("node.k8s.io/v1", "k8s.io/api", "node/v1"),
    "k8s.io.api.policy.v1": ("policy/v1", "k8s.io/api", "policy/v1"),
    "k8s.io.api.rbac.v1": ("rbac.authorization.k8s.io/v1", "k8s.io/api", "rbac/v1"),
    "k8s.io.api.scheduling.v1": ("scheduling.k8s.io/v1", "k8s.io/api", "scheduling/v1"),
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1": (
        "apiextensions.k8s.io/v1",
        "k8s.io/apiextensions-apiserver",
        "pkg/apis/apiextensions/v1",
    ),
    "k8s.io.apimachinery.pkg.apis.meta.v1": ("meta/v1", "k8s.io/apimachinery", "pkg/apis/meta/v1"),
}
"""By the name of the package in protobuf: how its names begin in the table, its module, and where it is there."""

KINDS = (
    *(f"v1/{each}" for each in ("Namespace", "Pod", "Node", "ConfigMap", "Secret", "Service", "ServiceAccount")),
    *(f"v1/{each}" for each in ("Event", "PersistentVolumeClaim", "Binding")),
    "apps/v1/DaemonSet",
    "apps/v1/Deployment",
    "authorization.k8s.io/v1/SelfSubjectAccessReview",
    "authorization.k8s.io/v1/SubjectAccessReview",
    "autoscaling/v1/Scale",
    "coordination.k8s.io/v1/Lease",
    "networking.k8s.io/v1/NetworkPolicy",
    "node.k8s.io/v1/RuntimeClass",
    "policy/v1/PodDisruptionBudget",
    "policy/v1/Eviction",
    *(f"rbac.authorization.k8s.io/v1/{each}" for each in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
    "scheduling.k8s.io/v1/PriorityClass",
    "apiextensions.k8s.io/v1/CustomResourceDefinition",
    "meta/v1/DeleteOptions",
)
"""What has a body that is read here."""

LETTERS = {
    "string": "s",
    "bool": "b",
    "bytes": "y",
    "double": "d",
    **dict.fromkeys(("int32", "int64"), "i"),
    ".k8s.io.apimachinery.pkg.apis.meta.v1.Time": "t",
    ".k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime": "m",
    ".k8s.io.apimachinery.pkg.api.resource.Quantity": "q",
    ".k8s.io.apimachinery.pkg.util.intstr.IntOrString": "x",
    ".k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1": "n",
    ".k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON": "n",
    ".k8s.io.apimachinery.pkg.runtime.RawExtension": "n",
}
"""Types that JSON writes in a way of its own."""

_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (optional|repeated|map<string, ([\w.]+)>) ?([\w.]+)? (\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r"^\t(?:\w+ +)?([\w.*\[\]]+) *`([^`]*)`", re.MULTILINE)


def modules():
    """Return the folder of Go's modules, and the version of Kubernetes, which all of its modules have after a 0."""
    text = (HERE / "servers" / "go.mod").read_text(encoding="utf-8")
    version = re.search(r"k8s\.io/kubernetes v1\.(\S+)", text)[1]
    cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
    return Path(cache.stdout.strip()), version


def read(cache, version):
    """Return the fields of each message, by its name in protobuf: number, name in JSON, and type."""
    messages = {}
    for package, (_, module, place) in PACKAGES.items():
        folder = cache / f"{module}@v0.{version}" / place
        tags = _tags(folder)
        for name, text in _MESSAGE.findall((folder / "generated.proto").read_text(encoding="utf-8")):
            of_struct = tags.get(name, {})  # a list that protobuf has to have as a message is not a struct
            fields = [
                (row[-1], *_field(package, of_struct.get(row[-1], ("*", "")), *row)) for row in _FIELD.findall(text)
            ]
            messages[f".{package}.{name}"] = fields
    return messages


def _tags(folder):
    """Return by struct, and by number, the type in Go and the tag for JSON."""
    found = {}
    for file in sorted(folder.glob("*.go")):
        for name, text in _STRUCT.findall(file.read_text(encoding="utf-8")):
            fields = found.setdefault(name, {})
            for kind, tag in _TAGGED.findall(text):
                number, json = re.search(r'protobuf:"\w+,(\d+),', tag), re.search(r'json:"([^"]*)"', tag)
                if number is not None and json is not None:
                    fields[number[1]] = (kind, json[1])
    return found


def _field(package, tag, label, of_map, kind, name, _number):
    go, json = tag
    json_name, *options = json.split(",") if json else ("=",)
    kind = of_map or kind
    kind = LETTERS.get(kind) or LETTERS.get(f".{package}.{kind}") or (kind if kind[0] == "." else f".{package}.{kind}")
    if label == "repeated":
        kind = f"[]{kind}"
    elif of_map:
        kind = f"{{}}{kind}"
    elif go.startswith("*"):
        kind = f"?{kind}"
    elif "omitempty" not in options:
        kind = f"!{kind}"
    return ("~" if "inline" in options else json_name or name), kind


def table(cache, version):
    """Return the text of the table."""
    messages = read(cache, version)

    def named(name):
        package, _, last = name[1:].rpartition(".")
        return f"{PACKAGES[package][0]}/{last}"

    wanted = [name for name in messages if named(name) in KINDS]
    lines = {}
    for name in wanted:  # it grows
        words = []
        for number, json, kind in messages[name]:
            flags, of = re.fullmatch(r"([\[\]{}?!]*)(.*)", kind).groups()
            if of.startswith("."):
                wanted += [of] if of not in wanted else []
                of = named(of)
            words.append(f"{number}:{json}:{flags}{of}")
        lines[named(name)] = " ".join([named(name), *words])
    return HEAD.format(version=f"1.{version}") + "".join(f"{lines[name]}\n" for name in sorted(lines))


if __name__ == "__main__":
    TABLE.write_text(table(*modules()), encoding="utf-8")
    sys.stdout.write(f"{TABLE}\n")
