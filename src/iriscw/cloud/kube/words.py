"""The words of Kubernetes and CoreWeave that are known here: states, reasons, taints. All that is not among them is
tolerated, never judged by, and counted (:func:`iriscw.cloud.kube.parsing.unknown_words`).

CoreWeave has renamed conditions before, and announces it in release notes only: the names stand here with the age they
have, newest first.
"""

from __future__ import annotations

STATE_LABELS = ("node.coreweave.cloud/state", "node.coreweave.com/state")
"""Where a node's state stands; CoreWeave uses both domains for others of its labels already."""

PRODUCTION = "production"
"""The one state in which a node takes work."""

OTHER_STATES = ("triage", "cordoned", "repair", "rma", "debug", "decommissioned", "quarantine", "maintenance", "zap")
"""States that say the contrary; ``PhaseState`` appends what is going on (``triage-...``)."""

PHASE_CONDITIONS = ("PhaseState",)
"""Conditions that say the state of a node without a state label. Internal, says CoreWeave: a last resort."""

POOL_CONDITIONS = ("Validated", "Valid", "AtTarget", "Capacity", "Quota", "Ready", "Progressing", "Accepted")
JUDGED_CONDITIONS = ("Validated", "Valid", "AtTarget", "Capacity", "Quota")
"""Those whose reasons are words to know; the others' reasons are nobody's business."""

POOL_REASONS = (
    *("Valid", "Invalid", "TargetMet", "UnderTarget", "OverTarget", "Sufficient", "QueuedAwaitingCapacity"),
    *("CapacityUnknown", "Partial", "NoneAvailable", "NodePoolZero", "Under", "NotSet", "Over", "InternalError"),
)
NODE_CONDITIONS = (
    *("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"),
    *("CWActive", "PhaseState", "PendingPhaseState", "KernelDeadlock"),
)
POD_CONDITIONS = (
    *("PodScheduled", "Initialized", "ContainersReady", "Ready", "DisruptionTarget", "TerminationTarget"),
    *("PodReadyToStartContainers", "PodHasNetwork", "PodResizePending", "PodResizeInProgress"),
)

ENDED_BY = ("DisruptionTarget", "TerminationTarget")
"""Conditions with which somebody says why he ends a pod: Kubernetes itself, and Kueue when it preempts."""

EMPTY_WAITS = ("", "ContainerCreating", "PodInitializing")
"""Reasons to wait that every pod has for a while."""

EMPTY_ENDS = ("", "Completed", "Error")
"""Reasons of an end that say no more than the exit code."""

GPU_RESOURCE = "nvidia.com/gpu"
RDMA_RESOURCE = "rdma/ib"
RESERVED_TAINT = "node.coreweave.cloud/reserved"

GPU_CLASS_LABEL = "gpu.nvidia.com/class"

OUR_TOLERATIONS = (GPU_RESOURCE, RESERVED_TAINT)
"""Taints that all worker pods tolerate, whatever their value."""

INTERRUPTABLE_TAINT = "qos.coreweave.cloud/interruptable"
"""Of nodes that may be taken away (``NoExecute``). Its point is that pods go; a group may say that its pods stay for as
long as the node does. Fresh nodes may carry it, too: then a group that does not never gets to work there."""

PASSING_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Say again what the condition ``Ready`` says; the API server gives every pod a toleration of 300 s for them."""
