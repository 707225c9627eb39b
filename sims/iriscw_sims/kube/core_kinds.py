"""The built-in kinds that a fleet of pods needs, as rows of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iriscw_sims.kube import columns, core_rules, pod_rules, pods, workload_rules
from iriscw_sims.kube.crds import default_definition, judge_definition, prepare_definition_status
from iriscw_sims.kube.kinds import (
    CHANGES_ONLY,
    LENIENT_CHANGES,
    METADATA_FIELDS,
    NO_LOOK,
    Field,
    Json,
    Kind,
    ScalePaths,
    field_at,
)
from iriscw_sims.kube.schema import core_schema


def _paths(*paths: str) -> dict[str, Field]:
    return {path: field_at(*path.split(".")) for path in paths}


def _or(name: str, default: str) -> Callable[[Json], str]:
    read = field_at(*name.split("."))
    return lambda item: read(item) or default


_POD_FIELDS = {
    **METADATA_FIELDS,
    **_paths("spec.nodeName", "spec.schedulerName", "spec.serviceAccountName", "status.phase", "status.podIP"),
    **_paths("status.nominatedNodeName"),
    "spec.restartPolicy": field_at("spec", "restartPolicy"),
    "spec.hostNetwork": _or("spec.hostNetwork", "false"),
}
_EVENT_FIELDS = {
    **METADATA_FIELDS,
    **_paths(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ),
    "source": field_at("source", "component"),
}


def _core(group: str, version: str, kind: str, plural: str, singular: str, **more: Any) -> Kind:
    return Kind(group, version, kind, plural, singular, schema=core_schema(kind), **more)


NAMESPACE = _core(
    "", "v1", "Namespace", "namespaces", "namespace", namespaced=False, short_names=("ns",), status=True,
    returns_deleted=True, one_by_one=True, fields=_paths("metadata.name", "status.phase"), name_rule="label",
    subresources=("finalize",), default=core_rules.default_namespace, prepare=core_rules.prepare_namespace,
    prepare_status=core_rules.prepare_namespace_status,
    columns=columns.NAMESPACE,
)  # fmt: skip
POD = _core(
    "", "v1", "Pod", "pods", "pod", short_names=("po",), categories=("all",), status=True, generation=True,
    graceful=True, returns_deleted=True, fields=_POD_FIELDS,
    kept_by_status=(("f:spec",), ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")),
    subresources=("binding", "eviction"), default=pods.default_pod, prepare=pods.admit_pod,
    prepare_status=pods.prepare_pod_status, rule=pod_rules.judge_pod, status_rule=pod_rules.judge_pod_status,
    columns=columns.POD,
)  # fmt: skip
NODE = _core(
    "", "v1", "Node", "nodes", "node", namespaced=False, short_names=("no",), status=True,
    fields={**_paths("metadata.name"), "spec.unschedulable": _or("spec.unschedulable", "false")},
    default=core_rules.default_node, prepare=core_rules.admit_node,
    prepare_status=core_rules.keep_status_on_create, rule=core_rules.judge_node,
    columns=columns.NODE,
)  # fmt: skip
CONFIG_MAP = _core(
    "", "v1", "ConfigMap", "configmaps", "configmap", short_names=("cm",), rule=core_rules.judge_data,
    columns=columns.CONFIG_MAP,
)  # fmt: skip
SECRET = _core(
    "", "v1", "Secret", "secrets", "secret", fields={**METADATA_FIELDS, **_paths("type")},
    default=core_rules.default_secret, rule=core_rules.judge_secret,
    columns=columns.SECRET,
)  # fmt: skip
SERVICE = _core(
    "", "v1", "Service", "services", "service", short_names=("svc",), categories=("all",), status=True, upsert=True,
    returns_deleted=True, fields={**METADATA_FIELDS, **_paths("spec.clusterIP", "spec.type")}, name_rule="label1035",
    metadata_rules=CHANGES_ONLY,
    default=core_rules.default_service, prepare=core_rules.prepare_service, draw=core_rules.draw_address,
    prepare_status=core_rules.prepare_service_status, rule=core_rules.judge_service,
    columns=columns.SERVICE,
)  # fmt: skip
SERVICE_ACCOUNT = _core(
    "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", short_names=("sa",), returns_deleted=True
)
EVENT = _core(
    "", "v1", "Event", "events", "event", short_names=("ev",), upsert=True, fields=_EVENT_FIELDS,
    metadata_rules=NO_LOOK, cached=False, collected=False, rule=core_rules.judge_event,
    columns=columns.EVENT,
)  # fmt: skip
VOLUME_CLAIM = _core(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim", short_names=("pvc",),
    status=True, returns_deleted=True, default=core_rules.default_claim, prepare=core_rules.prepare_claim,
    prepare_status=core_rules.prepare_claim_status,
    columns=columns.VOLUME_CLAIM,
)  # fmt: skip
LEASE = _core(
    "coordination.k8s.io", "v1", "Lease", "leases", "lease", unconditional=False, upsert=True,
    metadata_rules=LENIENT_CHANGES, rule=core_rules.judge_lease,
    columns=columns.LEASE,
)  # fmt: skip
DEPLOYMENT = _core(
    "apps", "v1", "Deployment", "deployments", "deployment", short_names=("deploy",), categories=("all",),
    status=True, generation=True, default=workload_rules.default_deployment, counts_annotations=True,
    prepare_status=workload_rules.prepare_deployment_status, status_rule=workload_rules.judge_deployment_status,
    metadata_rules=CHANGES_ONLY,
    kept_by_status=(("f:spec",), ("f:metadata", "f:labels")),
    rule=workload_rules.judge_deployment, scale=ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector"),
    columns=columns.DEPLOYMENT,
)  # fmt: skip
DAEMON_SET = _core(
    "apps", "v1", "DaemonSet", "daemonsets", "daemonset", short_names=("ds",), categories=("all",),
    status=True, generation=True, default=workload_rules.default_daemon_set,
    prepare=workload_rules.prepare_daemon_set, prepare_status=core_rules.only_status, metadata_rules=CHANGES_ONLY,
    rule=workload_rules.judge_daemon_set, columns=columns.DAEMON_SET,
)  # fmt: skip
NETWORK_POLICY = _core(
    "networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "networkpolicy", short_names=("netpol",),
    generation=True, default=workload_rules.default_network_policy, columns=columns.NETWORK_POLICY,
)  # fmt: skip
PRIORITY_CLASS = _core(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass", namespaced=False,
    short_names=("pc",), fields=_paths("metadata.name"), default=workload_rules.default_priority_class,
    prepare=workload_rules.prepare_priority_class, rule=workload_rules.judge_priority_class,
    columns=columns.PRIORITY_CLASS,
)  # fmt: skip
RUNTIME_CLASS = _core(
    "node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass", namespaced=False, unconditional=False,
    fields=_paths("metadata.name"), rule=workload_rules.judge_runtime_class, columns=columns.RUNTIME_CLASS,
)  # fmt: skip
DISRUPTION_BUDGET = _core(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget", short_names=("pdb",),
    status=True, generation=True, unconditional=False, prepare_status=workload_rules.prepare_budget_status,
    metadata_rules=NO_LOOK, rule=workload_rules.judge_budget, status_rule=workload_rules.judge_budget_status,
    columns=columns.BUDGET,
)  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"
ROLE = _core(
    _RBAC,
    "v1",
    "Role",
    "roles",
    "role",
    upsert=True,
    name_rule="segment",
    prepare=core_rules.prepare_role,
    rule=core_rules.judge_role,
)
ROLE_BINDING = _core(
    _RBAC, "v1", "RoleBinding", "rolebindings", "rolebinding", upsert=True, name_rule="segment",
    default=core_rules.default_role_binding, rule=core_rules.judge_role_binding,
)  # fmt: skip
CLUSTER_ROLE = _core(
    _RBAC,
    "v1",
    "ClusterRole",
    "clusterroles",
    "clusterrole",
    namespaced=False,
    upsert=True,
    name_rule="segment",
    prepare=core_rules.prepare_role,
    rule=core_rules.judge_role,
)
CLUSTER_ROLE_BINDING = _core(
    _RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding", namespaced=False, upsert=True,
    name_rule="segment", default=core_rules.default_role_binding, rule=core_rules.judge_role_binding,
)  # fmt: skip
DEFINITION = _core(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "customresourcedefinition",
    namespaced=False, short_names=("crd", "crds"), status=True, generation=True, unconditional=False,
    default=default_definition, prepare_status=prepare_definition_status, rule=judge_definition,
    metadata_rules=LENIENT_CHANGES,
    columns=columns.DEFINITION,
)  # fmt: skip

CORE_KINDS: tuple[Kind, ...] = (
    NAMESPACE, POD, NODE, CONFIG_MAP, SECRET, SERVICE, SERVICE_ACCOUNT, EVENT, VOLUME_CLAIM, LEASE, DEPLOYMENT,
    DAEMON_SET, NETWORK_POLICY, PRIORITY_CLASS, RUNTIME_CLASS, DISRUPTION_BUDGET, ROLE, ROLE_BINDING, CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING, DEFINITION,
)  # fmt: skip
