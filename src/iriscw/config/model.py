"""What a cluster's configuration holds, as the rest of iriscw reads it.

Everything is resolved here: no attribute is absent because a default was meant, each group has its own timeouts and its
complete slice template. Sizes are bytes, CPU shares thousandths of a core, lengths of time ns. Build one with
:func:`iriscw.config.load.load_config` or :func:`iriscw.config.load.build_config`; both refuse what cannot work.
"""

# ruff: noqa: RUF009 - key() and oneof() give attrs fields, not values that instances would share
from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import attrs

from iriscw.config.kinds import (
    ENV_VALUE_LIMIT,
    Choice,
    Cpu,
    Flag,
    Section,
    Sections,
    Size,
    Span,
    Text,
    TextMap,
    Whole,
)
from iriscw.config.quantities import NS_PER_MS
from iriscw.config.schema import key, oneof

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = Text(pattern=_LABEL, meaning="a DNS label: lower-case letters, digits and '-', at most 63", empty=False)
_PORT = Whole(minimum=1, maximum=65535)
_FREE_PORT = Whole(minimum=0, maximum=65535)
_POSITIVE = Span(minimum=NS_PER_MS)

WORKER_LEASE_LIMIT: Final = 24 * 3600 * 1000 * NS_PER_MS
"""For as long at most tasks go on without a controller, and wait if they were lost with their worker: a night."""
_REQUIRED_TEXT = Text(empty=False)
_OBJECT = Text(
    pattern=r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
    meaning="a name that Kubernetes takes: lower-case letters, digits, '-', '.'",
)
_FOLDER = Text(pattern=r"/\S*", meaning="an absolute path")
_PATHS = Text(pattern=r"/[^\s:]*(:/[^\s:]*)*", meaning="absolute paths, with ':' between them")
_SOCKET = Text(
    pattern=r"/run/(?!(containerd|crio|dbus|docker|lock|runc|systemd|user)/)[a-z0-9][a-z0-9-]*/[A-Za-z0-9_-]+\.sock",
    meaning="a socket in a folder of its own below /run, such as /run/kybernate/shim.sock",
    empty=False,
)
_NODE_FOLDER = Text(
    pattern=r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*){2,}", meaning="an absolute path, at least two deep", empty=False
)
_OPTIONAL_NODE_FOLDER = attrs.evolve(_NODE_FOLDER, empty=True)
_PORT_NUMBER = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_ENDPOINT = Text(
    pattern=rf"https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\])(:({_PORT_NUMBER}))?",
    meaning="http(s)://host[:port], without a path and without keys",
)
_REGION = Text(pattern=r"[A-Za-z0-9][A-Za-z0-9-]*", meaning="a region: letters, digits and '-'")
_URI = Text(pattern=r"(file|gs|s3)://\S+", meaning="a file://, s3:// or gs:// address")
_BUCKET_URI = Text(pattern=r"(gs|s3)://\S+", meaning="an s3:// or gs:// address")
_SECRET_KEY = Text(
    pattern=r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}", meaning="a key of a Secret: letters, digits, '-', '_', '.'"
)
_CHECKPOINT_LABEL = Text(
    pattern=r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?", meaning="a label of checkpoints, such as job"
)
_WORD = Text(pattern=r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", meaning="a label value such as H100")
_VARIANT = attrs.evolve(_WORD, empty=False)
_ENVIRONMENT = TextMap(
    pattern=r"(?!IRIS_)[A-Za-z_][A-Za-z0-9_]*",
    meaning="the name of an environment variable that is yours to set (IRIS_ ones are not)",
    limit=ENV_VALUE_LIMIT,
)
_SECRETS = TextMap(
    pattern=r"(?!IRIS_|IRISCW_)[A-Za-z_][A-Za-z0-9_]*",
    meaning="the name of an environment variable that is yours to set (IRIS_ ones are not)",
    value_pattern=r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]{1,253}",
    value_meaning="a Secret's name and one of its keys, such as wandb/api-key",
)
_TAINTS = TextMap(
    pattern=r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
    meaning="the key of a taint",
    value_pattern=r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?:(NoSchedule|PreferNoSchedule|NoExecute)",
    value_meaning="a value and an effect, such as true:NoSchedule",
)
_SETTINGS = TextMap(pattern=r"[a-z][a-z0-9_]{0,62}", meaning="a setting's name: lower-case letters, digits and '_'")
_ATTRIBUTES = TextMap(pattern=r"[a-z]([a-z0-9._-]{0,61}[a-z0-9])?", meaning="an attribute's name", limit=63)


class PlatformKind(enum.Enum):
    """Where a cluster's machines come from."""

    LOCAL = "local"
    COREWEAVE = "coreweave"
    PLUGIN = "plugin"
    """Of an installed package."""


class AcceleratorType(enum.Enum):
    """What kind of device a group's nodes offer."""

    CPU = "cpu"
    GPU = "gpu"


class Durability(enum.Enum):
    """What a crash may take before an acknowledged job is lost."""

    LOCAL = "local"
    """Survives the controller's process."""
    REPLICATED = "replicated"
    """Survives the controller's node."""


class TaskRuntimeKind(enum.Enum):
    """Where the attempts of a group's workers run."""

    PROCESS = "process"
    """As processes of the worker's pod."""
    POD = "pod"
    """Each in a pod of its own on the worker's node."""
    DOCKER = "docker"
    """Each in a container of its own, on the Docker engine of the worker's machine."""


def _names_only(environment: Mapping[str, str]) -> str:
    """Show an environment without its values: tokens live there."""
    return f"<{', '.join(environment)}>"


@attrs.frozen(kw_only=True)
class TimeoutConfig:
    """How long the steps of a slice's and a worker's life may take."""

    requesting_timeout: int = key(_POSITIVE, "From the request for a slice until the cloud has accepted it.")
    boot_timeout: int = key(_POSITIVE, "From the acceptance until all nodes of the slice are ready.")
    init_timeout: int = key(_POSITIVE, "From ready nodes until all workers of the slice are registered.")
    worker_health_timeout: int = key(_POSITIVE, "From a worker's start until its `/health` answers.")
    worker_timeout: int = key(_POSITIVE, "From the last contact with a worker until it counts as lost.")
    worker_lease: int = key(
        Span(maximum=WORKER_LEASE_LIMIT),
        "How long tasks go on while no controller is there; `0s`: twice `worker_timeout`, else at least that. The"
        " longest of all groups holds for all. A task of a lost worker is tried again when this and `worker_timeout`"
        " are over, unless the worker is known to be gone.",
    )
    api_timeout: int = key(_POSITIVE, "For each call of the cloud's API.")


@attrs.frozen(kw_only=True)
class AutoscalerConfig:
    """When slices are created and deleted."""

    evaluation_interval: int = key(
        _POSITIVE, "The longest time between two looks at demand; a change is acted on at once."
    )
    scale_up_delay: int = key(Span(), "How long demand must last before a slice is created for it.")
    scale_down_delay: int = key(Span(), "How long a slice must be idle before it is deleted.")
    startup_grace_period: int = key(Span(), "How long a new slice is kept although nothing runs on it yet.")


@attrs.frozen(kw_only=True)
class LocalPlatformConfig:
    """Workers are processes of this machine: for demos, tests and development."""

    workdir: str = key(_REQUIRED_TEXT, "Where pools, workers and logs live; relative to the working directory.")
    boot_delay: int = key(Span(), "How long a node takes to boot.")
    node_cpu_milli: int = key(Cpu(), "CPU that one node has.", written="node_cpu")
    node_memory_bytes: int = key(Size(), "Memory that one node has.", written="node_memory")
    task_paths: str = key(_PATHS, "Paths of this machine that tasks in containers see, not writable: data, models.")


@attrs.frozen(kw_only=True)
class CoreweavePlatformConfig:
    """CoreWeave Kubernetes Service: each slice is a NodePool of bare-metal nodes."""

    region: str = key(Text(), "The region of slices whose template names none, such as `LGA1`.")
    namespace: str = key(_NAME, "The Kubernetes namespace of controller and workers.")
    kubeconfig_path: str = key(Text(), "The kubeconfig to use; empty for the pod's own service account.")
    container_registry: str = key(Text(), "Put before image names that name no registry.")
    image_pull_secret: str = key(_OBJECT, "The Secret with which images are pulled; empty for none.")
    storage_secret: str = key(
        _OBJECT, "The Secret with storage credentials: `credentials` (AWS), `credentials.json` (GCS); empty for none."
    )
    priority_class: str = key(_OBJECT, "The PriorityClass of worker pods; empty for the cluster's default.")
    node_cache_dir: str = key(_FOLDER, "Where on a node its workers' `cache_dir` lies; empty for scratch space.")
    object_storage_endpoint: str = key(
        _ENDPOINT,
        "The service behind `s3://`, for controller, workers, tasks and agents: `http://cwlota.com` is CoreWeave's. "
        "Empty for Amazon, or what the credentials name. `AWS_ENDPOINT_URL_S3` and `AWS_ENDPOINT_URL` win.",
    )
    object_storage_region: str = key(
        _REGION, "Its region, for signatures, likewise. `AWS_REGION` and `AWS_DEFAULT_REGION` win."
    )


@attrs.frozen(kw_only=True)
class PluginPlatformConfig:
    """A platform of an installed package, found by its entry point in the group `iriscw.platforms`."""

    name: str = key(_NAME, "The entry point's name.")
    settings: Mapping[str, str] = key(_SETTINGS, "What the platform itself reads; its package's documentation says it.")


@attrs.frozen(kw_only=True)
class PlatformConfig:
    """Where the machines come from: exactly one of the platforms, and what differs for it from `defaults`."""

    local: LocalPlatformConfig | None = oneof(LocalPlatformConfig, "platform", "Processes of this machine.")
    coreweave: CoreweavePlatformConfig | None = oneof(CoreweavePlatformConfig, "platform", "CoreWeave.")
    plugin: PluginPlatformConfig | None = oneof(PluginPlatformConfig, "platform", "A platform of an installed package.")
    timeouts: TimeoutConfig = key(Section(TimeoutConfig), "For all groups.", otherwise="`defaults.timeouts`")
    autoscaler: AutoscalerConfig = key(Section(AutoscalerConfig), "For all groups.", otherwise="`defaults.autoscaler`")

    @property
    def kind(self) -> PlatformKind:
        """Which platform it is."""
        if self.plugin is not None:
            return PlatformKind.PLUGIN
        return PlatformKind.LOCAL if self.local is not None else PlatformKind.COREWEAVE

    @property
    def name(self) -> str:
        """What the platform is called: a plugin has its own name."""
        return self.plugin.name if self.plugin is not None else self.kind.value


@attrs.frozen(kw_only=True)
class LocalControllerConfig:
    """The controller is a process of this machine."""

    port: int = key(_FREE_PORT, "Where it answers gRPC and HTTP; 0 for any free port.")
    host: str = key(_REQUIRED_TEXT, "The address it listens on.")


@attrs.frozen(kw_only=True)
class CoreweaveControllerConfig:
    """The controller is a Deployment behind a Service."""

    port: int = key(_PORT, "Where it answers gRPC and HTTP.")
    service_name: str = key(_NAME, "The Service by which workers find it.")
    instance_type: str = key(
        Text(), "The type of its own node, such as `cd-gp-i64-erapids`; empty: no pool is made for it."
    )
    cpu_milli: int = key(Cpu(), "CPU that it asks for; it may use more.", written="cpu")
    memory_bytes: int = key(Size(minimum=2**28), "Memory that it asks for, and may not exceed.", written="memory")
    storage_class: str = key(_OBJECT, "The storage class of its state's volume; empty: the cluster's default.")
    storage_bytes: int = key(Size(minimum=2**30), "The size of that volume.", written="storage")
    insecure_plaintext: bool = key(Flag(), "Whether it listens without TLS: the cluster's network is trusted.")
    network_policy: bool = key(Flag(), "Whether network policies are made.")
    service_monitor: bool = key(Flag(), "Whether a ServiceMonitor of the Prometheus operator is made.")
    system_critical: bool = key(
        Flag(), "Whether its own node takes CoreWeave's agents, too, which else keep a slice's node busy."
    )


@attrs.frozen(kw_only=True)
class ControllerVmConfig:
    """The controller process: exactly one kind, by default that of the platform."""

    local: LocalControllerConfig | None = oneof(LocalControllerConfig, "controller", "A process here.")
    coreweave: CoreweaveControllerConfig | None = oneof(CoreweaveControllerConfig, "controller", "A Deployment.")
    image: str = key(Text(), "The controller's container image.")
    bundle_prefix: str = key(
        _URI, "Where bundles and results are kept; empty for beside the journal, or its second copy."
    )
    journal_dir: str = key(_REQUIRED_TEXT, "Where the journal is; on `local` relative to the workdir.")
    durability: Durability = key(
        Choice(Durability),
        "Whether an acknowledged job survives the controller's process (`local`) or its node (`replicated`).",
    )
    replica_prefix: str = key(_URI, "Where `replicated` keeps its second copy of the journal.")
    secrets_dir: str = key(
        _FOLDER,
        "A folder with `cluster-secret`, `admin-token`, and `metrics-token`, `tls.crt` and `tls.key` if there are any. "
        "Without it the controller makes tokens of its own.",
    )

    @property
    def port(self) -> int:
        """Where it answers; 0 for any free port."""
        chosen = self.local or self.coreweave
        return chosen.port if chosen is not None else 0


@attrs.frozen(kw_only=True)
class BootstrapConfig:
    """How a worker is started."""

    docker_image: str = key(_REQUIRED_TEXT, "The worker's container image; `local` needs none.")
    worker_port: int = key(_FREE_PORT, "Where a worker answers `/health` and `/metrics`; 0 for any free port.")
    cache_dir: str = key(_REQUIRED_TEXT, "Where a worker keeps bundles; on `local` relative to the workdir.")
    controller_address: str = key(
        Text(), "Where workers find the controller, as `host:port`.", otherwise="the Service's name"
    )
    env_vars: Mapping[str, str] = key(_ENVIRONMENT, "The worker process's environment.", repr=_names_only)


@attrs.frozen(kw_only=True)
class AgentKeysConfig:
    """Which keys of a Secret protect the agents' repository: their pods alone have them, and need all."""

    secret: str = key(_OBJECT, "The Secret; empty: checkpoints are neither signed nor encrypted.")
    sign_with: str = key(
        _SECRET_KEY, "Its key, such as `sign.pem`, with the Ed25519 private key (PEM) that signs what is stored."
    )
    trust: str = key(
        _SECRET_KEY,
        "Its key, such as `trusted.pem`, with public keys (PEM): one of them must have signed what is fetched.",
    )
    encrypt_with: str = key(
        _SECRET_KEY,
        "Its key, such as `encrypt.key`, with 32 bytes in base64 that encrypt what is stored. What is fetched must be"
        " encrypted, too.",
    )
    decrypt_with: str = key(
        _SECRET_KEY, "Its key, such as `decrypt.keys`, with further keys, one on a line, for what they have encrypted."
    )


@attrs.frozen(kw_only=True)
class AgentRetainConfig:
    """What an agent keeps of the checkpoints of its node; the oldest go first. What its repository has stays."""

    max_checkpoints: int = key(Whole(), "At most so many; 0: no bound.")
    max_total_size_bytes: int = key(Size(), "At most so many bytes together; 0: no bound.", written="max_total_size")
    max_checkpoint_size_bytes: int = key(Size(), "None that is larger; 0: no bound.", written="max_checkpoint_size")
    max_age: int = key(Span(), "None that is older; 0: no bound.")
    per: str = key(
        _CHECKPOINT_LABEL, "The label by whose values the first two are counted, such as `job`; empty: all together."
    )


@attrs.frozen(kw_only=True)
class AgentConfig:
    """The node agent on the machines of all groups, which freezes and thaws processes there. On `coreweave` only."""

    enabled: bool = key(Flag(), "Whether `iriscw manifests` makes a DaemonSet of it: privileged pods.")
    image: str = key(_REQUIRED_TEXT, "The agent's container image.")
    socket: str = key(_SOCKET, "Where it listens on the node; the folder is its own, and for root alone.")
    state_dir: str = key(_NODE_FOLDER, "Where on the node its journal and the tier `disk` lie.")
    ram_budget_bytes: int = key(
        Size(), "Room for the tier `ram`; 0: half of the node's `/dev/shm`.", written="ram_budget"
    )
    disk_budget_bytes: int = key(
        Size(), "Room for the tier `disk`; 0: 80 % of the disk that it is on.", written="disk_budget"
    )
    runtime_class: str = key(
        _OBJECT, "The RuntimeClass of pods that can be frozen, handler `kybernate`; empty: none is made."
    )
    gpu_runtime_class: str = key(
        _OBJECT,
        "The RuntimeClass that gives the agent NVIDIA's libraries, such as `nvidia`; empty: the nodes' own does.",
    )
    gpu_libraries: str = key(
        _OPTIONAL_NODE_FOLDER, "Where on the node NVIDIA's libraries lie, if no runtime puts them into containers."
    )
    repository: str = key(
        _BUCKET_URI, "The object store that keeps checkpoints beyond their node, as `s3://bucket/prefix`; empty: none."
    )
    storage_secret: str = key(
        _OBJECT,
        "The Secret with credentials for it, which no other pod has: `credentials` (AWS), `credentials.json` (GCS).",
        otherwise="`platform.coreweave.storage_secret`",
    )
    repository_keys: AgentKeysConfig = key(Section(AgentKeysConfig), "What signs and encrypts checkpoints there.")
    accept_unprotected: bool = key(
        Flag(), "Whether what nobody has signed or encrypted is fetched, too, for as long as there is some of it."
    )
    retain: AgentRetainConfig = key(Section(AgentRetainConfig), "What each agent keeps of its node's checkpoints.")


@attrs.frozen(kw_only=True)
class DefaultsConfig:
    """What holds for every group that does not say otherwise."""

    bootstrap: BootstrapConfig = key(Section(BootstrapConfig), "How workers are started.")
    timeouts: TimeoutConfig = key(Section(TimeoutConfig), "How long steps may take.")
    autoscaler: AutoscalerConfig = key(Section(AutoscalerConfig), "When slices come and go.")
    task_env: Mapping[str, str] = key(
        _ENVIRONMENT, "Environment of every task; a job's own values win.", repr=_names_only
    )
    task_secrets: Mapping[str, str] = key(
        _SECRETS, "More of it, from Secrets of the namespace: variable to `NAME/KEY`. Never shown. Not on `local`."
    )
    preemption: bool = key(Flag(), "Whether tasks give way to tasks of higher bands, as their jobs say.")


@attrs.frozen(kw_only=True)
class ScaleGroupResources:
    """What one node of a group promises to tasks; a worker that has less is refused."""

    cpu_milli: int = key(Cpu(), "CPU.", written="cpu")
    ram_bytes: int = key(Size(), "Memory.", written="ram")
    disk_bytes: int = key(Size(), "Disk space.", written="disk")
    gpu_count: int = key(Whole(), "Whole GPUs that each worker hands out: a machine with fewer is refused.")


@attrs.frozen(kw_only=True)
class LocalSliceConfig:
    """A slice of local processes needs nothing beyond its group."""


@attrs.frozen(kw_only=True)
class CoreweaveSliceConfig:
    """The NodePool of one slice."""

    region: str = key(_REQUIRED_TEXT, "The region.", otherwise="`platform.coreweave.region`")
    instance_type: str = key(_REQUIRED_TEXT, "The type of node, such as `gd-8xh100ib-i128`.")
    gpus_per_node: int = key(Whole(), "GPUs of one node.", otherwise="`resources.gpu_count`")
    gpu_class: str = key(_WORD, "The nodes' `gpu.nvidia.com/class`.", otherwise="`accelerator_variant`")
    infiniband: bool = key(Flag(), "Whether worker pods ask for `rdma/ib`.", otherwise="what the type of node has")
    interruptable: bool = key(
        Flag(),
        "Whether worker pods go to nodes that are about to be taken back, and stay on them for as long as they last.",
        otherwise="`slice_template.preemptible`",
    )
    node_taints: Mapping[str, str] = key(
        _TAINTS, "Taints of the nodes, which worker pods tolerate: key to `VALUE:EFFECT`."
    )


@attrs.frozen(kw_only=True)
class PluginSliceConfig:
    """A slice of a plugin's platform."""

    region: str = key(Text(), "The region, if the platform has some: workers have it as an attribute.")
    instance_type: str = key(Text(), "The type of machine, if the platform has several.")
    settings: Mapping[str, str] = key(_SETTINGS, "What the platform itself reads.")


@attrs.frozen(kw_only=True)
class SliceConfig:
    """How a slice is created. What it does not say it inherits from its group."""

    local: LocalSliceConfig | None = oneof(LocalSliceConfig, "platform", "On the `local` platform.")
    coreweave: CoreweaveSliceConfig | None = oneof(CoreweaveSliceConfig, "platform", "On CoreWeave.")
    plugin: PluginSliceConfig | None = oneof(PluginSliceConfig, "platform", "On the platform of a package.")
    accelerator_type: AcceleratorType = key(Choice(AcceleratorType), "As the group.", otherwise="the group's")
    accelerator_variant: str = key(_VARIANT, "As the group.", otherwise="the group's")
    num_vms: int = key(Whole(minimum=1), "As the group.", otherwise="the group's")
    preemptible: bool = key(Flag(), "Whether the cloud may take the nodes back at any time.")


@attrs.frozen(kw_only=True)
class ScaleGroupConfig:
    """A set of equal slices, scaled between `min_slices` and `max_slices`."""

    name: str
    accelerator_type: AcceleratorType = key(Choice(AcceleratorType), "What kind of device the nodes offer.")
    accelerator_variant: str = key(_VARIANT, "Which one, such as `H100`.", otherwise="`cpu`; needed for `gpu`")
    num_vms: int = key(Whole(minimum=1), "Nodes, and so workers, of one slice.")
    resources: ScaleGroupResources = key(Section(ScaleGroupResources), "What one node promises.")
    min_slices: int = key(Whole(), "Slices that are kept, demand or not.")
    max_slices: int = key(Whole(), "Slices that exist at most, those being created included.")
    buffer_slices: int = key(Whole(), "Idle slices that are kept ready beyond demand.")
    priority: int = key(Whole(), "Which group takes demand first: the lower number.")
    quota_pool: str = key(
        _WORD,
        "Groups with the same one share a quota: when it is used up for one of them, demand goes to none. Empty: the"
        " group shares none. Quotas of two regions are two.",
        otherwise="`accelerator_variant` of a `gpu` group, not on `local`; else empty",
    )
    attributes: Mapping[str, str] = key(_ATTRIBUTES, "Attributes of the group's workers, for constraints.")
    slice_template: SliceConfig = key(Section(SliceConfig), "How a slice is created.")
    task_runtime: TaskRuntimeKind = key(
        Choice(TaskRuntimeKind),
        "Where attempts run: in the worker's pod (`process`), each in a pod of its own (`pod`, on CoreWeave), or each "
        "in a container of the machine's Docker engine (`docker`, on `local`).",
    )
    task_image: str = key(
        _REQUIRED_TEXT, "The image of attempts with a pod or container of their own, for jobs that name none."
    )
    timeouts: TimeoutConfig = key(Section(TimeoutConfig), "For this group.", otherwise="`platform.timeouts`")
    autoscaler: AutoscalerConfig = key(Section(AutoscalerConfig), "For this group.", otherwise="`platform.autoscaler`")


@attrs.frozen(kw_only=True)
class ClusterConfig:
    """One cluster: where it runs, its controller, and the groups of machines it may scale."""

    name: str = key(_NAME, "Tells this cluster's machines from those of others; the label `iris-cluster`.")
    platform: PlatformConfig = key(Section(PlatformConfig), "Where the machines come from.")
    controller: ControllerVmConfig = key(Section(ControllerVmConfig), "The controller process.")
    agent: AgentConfig = key(Section(AgentConfig), "The node agent.")
    defaults: DefaultsConfig = key(Section(DefaultsConfig), "What holds for every group.")
    scale_groups: Mapping[str, ScaleGroupConfig] = key(Sections(ScaleGroupConfig), "The groups of machines, by name.")
