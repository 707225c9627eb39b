"""The types of the built-in kinds, field by field: upstream's ``types.go`` of Kubernetes 1.36 as a table.

One type a paragraph: its name, then ``field:type:flags``. Types: ``s`` string, ``i`` integer of 32 bits, ``l`` of 64,
``n`` number, ``b`` boolean, ``q`` quantity, ``t`` time, ``m`` time to the microsecond, ``x`` integer or string, ``y``
bytes, ``a`` and ``S`` anything, a name another type; ``[]`` a list and ``{}`` a map of what follows. Flags: ``*`` a
pointer (its zero value is kept), ``!`` never left out, ``0`` left out if zero although a struct, ``@a @s @m(keys) @A``
a list that is atomic, a set or a map by its keys, and a map or type that is atomic (for server-side apply); ``%key``
merged by a key and ``^`` retainKeys (for strategic merge patches).
"""

from __future__ import annotations

TYPES = """
Namespace metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus
Pod metadata:ObjectMeta spec:PodSpec status:PodStatus
Node metadata:ObjectMeta spec:NodeSpec status:NodeStatus
ConfigMap metadata:ObjectMeta immutable:b:* data:{}s binaryData:{}y
Secret metadata:ObjectMeta immutable:b:* data:{}y stringData:{}s type:s
Service metadata:ObjectMeta spec:ServiceSpec status:ServiceStatus
ServiceAccount metadata:ObjectMeta secrets:[]ObjectReference:@m(name)%name
  imagePullSecrets:[]LocalObjectReference:@a automountServiceAccountToken:b:*
Event metadata:ObjectMeta:! involvedObject:ObjectReference:! reason:s message:s source:EventSource firstTimestamp:t
  lastTimestamp:t count:i type:s eventTime:m series:EventSeries:* action:s related:ObjectReference:*
  reportingComponent:s:! reportingInstance:s:!
PersistentVolumeClaim metadata:ObjectMeta spec:PersistentVolumeClaimSpec status:PersistentVolumeClaimStatus
Lease metadata:ObjectMeta spec:LeaseSpec
Deployment metadata:ObjectMeta spec:DeploymentSpec status:DeploymentStatus
DaemonSet metadata:ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus
NetworkPolicy metadata:ObjectMeta spec:NetworkPolicySpec
PriorityClass metadata:ObjectMeta value:i:! globalDefault:b description:s preemptionPolicy:s:*
RuntimeClass metadata:ObjectMeta handler:s:! overhead:Overhead:* scheduling:Scheduling:*
PodDisruptionBudget metadata:ObjectMeta spec:PodDisruptionBudgetSpec status:PodDisruptionBudgetStatus
Role metadata:ObjectMeta rules:[]PolicyRule:!@a
RoleBinding metadata:ObjectMeta subjects:[]Subject:@a roleRef:RoleRef:!
ClusterRole metadata:ObjectMeta rules:[]PolicyRule:!@a aggregationRule:AggregationRule:*
ClusterRoleBinding metadata:ObjectMeta subjects:[]Subject:@a roleRef:RoleRef:!
CustomResourceDefinition metadata:ObjectMeta spec:CustomResourceDefinitionSpec:!
  status:CustomResourceDefinitionStatus
ObjectMeta name:s generateName:s namespace:s selfLink:s uid:s resourceVersion:s generation:l creationTimestamp:t:0
  deletionTimestamp:t:* deletionGracePeriodSeconds:l:* labels:{}s annotations:{}s
  ownerReferences:[]OwnerReference:@m(uid)%uid finalizers:[]s:@s% managedFields:[]ManagedFieldsEntry:@a
NamespaceSpec finalizers:[]s:@a
NamespaceStatus phase:s conditions:[]NamespaceCondition:@m(type)%type
PodSpec volumes:[]Volume:@m(name)%name^ initContainers:[]Container:@m(name)%name
  containers:[]Container:!@m(name)%name ephemeralContainers:[]EphemeralContainer:@m(name)%name restartPolicy:s
  terminationGracePeriodSeconds:l:* activeDeadlineSeconds:l:* dnsPolicy:s nodeSelector:{}s:@A serviceAccountName:s
  serviceAccount:s automountServiceAccountToken:b:* nodeName:s hostNetwork:b hostPID:b hostIPC:b
  shareProcessNamespace:b:* securityContext:PodSecurityContext:*
  imagePullSecrets:[]LocalObjectReference:@m(name)%name hostname:s subdomain:s affinity:Affinity:* schedulerName:s
  tolerations:[]Toleration:@a hostAliases:[]HostAlias:@m(ip)%ip priorityClassName:s priority:i:*
  dnsConfig:PodDNSConfig:* readinessGates:[]PodReadinessGate:@a runtimeClassName:s:* enableServiceLinks:b:*
  preemptionPolicy:s:* overhead:{}q
  topologySpreadConstraints:[]TopologySpreadConstraint:@m(topologyKey,whenUnsatisfiable)%topologyKey
  setHostnameAsFQDN:b:* os:PodOS:* hostUsers:b:* schedulingGates:[]PodSchedulingGate:@m(name)%name
  resourceClaims:[]PodResourceClaim:@m(name)%name^ resources:ResourceRequirements:* hostnameOverride:s:*
  schedulingGroup:PodSchedulingGroup:*
PodStatus observedGeneration:l phase:s conditions:[]PodCondition:@m(type)%type message:s reason:s
  nominatedNodeName:s hostIP:s hostIPs:[]HostIP:@a%ip podIP:s podIPs:[]PodIP:@m(ip)%ip startTime:t:*
  initContainerStatuses:[]ContainerStatus:@a containerStatuses:[]ContainerStatus:@a qosClass:s
  ephemeralContainerStatuses:[]ContainerStatus:@a resize:s
  resourceClaimStatuses:[]PodResourceClaimStatus:@m(name)%name^
  extendedResourceClaimStatus:PodExtendedResourceClaimStatus:* allocatedResources:{}q
  resources:ResourceRequirements:* nodeAllocatableResourceClaimStatuses:[]NodeAllocatableResourceClaimStatus:@a
NodeSpec podCIDR:s podCIDRs:[]s:@s% providerID:s unschedulable:b taints:[]Taint:@a configSource:NodeConfigSource:*
  externalID:s
NodeStatus capacity:{}q allocatable:{}q phase:s conditions:[]NodeCondition:@m(type)%type
  addresses:[]NodeAddress:@m(type)%type daemonEndpoints:NodeDaemonEndpoints nodeInfo:NodeSystemInfo
  images:[]ContainerImage:@a volumesInUse:[]s:@a volumesAttached:[]AttachedVolume:@a config:NodeConfigStatus:*
  runtimeHandlers:[]NodeRuntimeHandler:@a features:NodeFeatures:* declaredFeatures:[]s:@a
ServiceSpec ports:[]ServicePort:@m(port,protocol)%port selector:{}s:@A clusterIP:s clusterIPs:[]s:@a type:s
  externalIPs:[]s:@a sessionAffinity:s loadBalancerIP:s loadBalancerSourceRanges:[]s:@a externalName:s
  externalTrafficPolicy:s healthCheckNodePort:i publishNotReadyAddresses:b
  sessionAffinityConfig:SessionAffinityConfig:* ipFamilies:[]s:@a ipFamilyPolicy:s:*
  allocateLoadBalancerNodePorts:b:* loadBalancerClass:s:* internalTrafficPolicy:s:* trafficDistribution:s:*
ServiceStatus loadBalancer:LoadBalancerStatus conditions:[]Condition:@m(type)%type
ObjectReference@A kind:s namespace:s name:s uid:s apiVersion:s resourceVersion:s fieldPath:s
LocalObjectReference@A name:s
EventSource component:s host:s
EventSeries count:i lastObservedTime:m
PersistentVolumeClaimSpec accessModes:[]s:@a selector:LabelSelector:* resources:VolumeResourceRequirements
  volumeName:s storageClassName:s:* volumeMode:s:* dataSource:TypedLocalObjectReference:*
  dataSourceRef:TypedObjectReference:* volumeAttributesClassName:s:*
PersistentVolumeClaimStatus phase:s accessModes:[]s:@a capacity:{}q
  conditions:[]PersistentVolumeClaimCondition:@m(type)%type allocatedResources:{}q allocatedResourceStatuses:{}s
  currentVolumeAttributesClassName:s:* modifyVolumeStatus:ModifyVolumeStatus:*
LeaseSpec holderIdentity:s:* leaseDurationSeconds:i:* acquireTime:m:* renewTime:m:* leaseTransitions:i:*
  strategy:s:* preferredHolder:s:*
DeploymentSpec replicas:i:* selector:LabelSelector:*! template:PodTemplateSpec:! strategy:DeploymentStrategy:^
  minReadySeconds:i revisionHistoryLimit:i:* paused:b progressDeadlineSeconds:i:*
DeploymentStatus observedGeneration:l replicas:i updatedReplicas:i readyReplicas:i availableReplicas:i
  unavailableReplicas:i terminatingReplicas:i:* conditions:[]DeploymentCondition:@m(type)%type collisionCount:i:*
DaemonSetSpec selector:LabelSelector:*! template:PodTemplateSpec:! updateStrategy:DaemonSetUpdateStrategy
  minReadySeconds:i revisionHistoryLimit:i:*
DaemonSetStatus currentNumberScheduled:i:! numberMisscheduled:i:! desiredNumberScheduled:i:! numberReady:i:!
  observedGeneration:l updatedNumberScheduled:i numberAvailable:i numberUnavailable:i collisionCount:i:*
  conditions:[]DaemonSetCondition:@m(type)%type
NetworkPolicySpec podSelector:LabelSelector:! ingress:[]NetworkPolicyIngressRule:@a
  egress:[]NetworkPolicyEgressRule:@a policyTypes:[]s:@a
Overhead podFixed:{}q
Scheduling nodeSelector:{}s:@A tolerations:[]Toleration:@a
PodDisruptionBudgetSpec minAvailable:x:* selector:LabelSelector:* maxUnavailable:x:* unhealthyPodEvictionPolicy:s:*
PodDisruptionBudgetStatus observedGeneration:l disruptedPods:{}t disruptionsAllowed:i:! currentHealthy:i:!
  desiredHealthy:i:! expectedPods:i:! conditions:[]Condition:@m(type)%type
PolicyRule verbs:[]s:!@a apiGroups:[]s:@a resources:[]s:@a resourceNames:[]s:@a nonResourceURLs:[]s:@a
Subject@A kind:s:! apiGroup:s name:s:! namespace:s
RoleRef@A apiGroup:s:! kind:s:! name:s:!
AggregationRule clusterRoleSelectors:[]LabelSelector:@a
CustomResourceDefinitionSpec group:s:! names:CustomResourceDefinitionNames:! scope:s:!
  versions:[]CustomResourceDefinitionVersion:!@a conversion:CustomResourceConversion:* preserveUnknownFields:b
CustomResourceDefinitionStatus conditions:[]CustomResourceDefinitionCondition:!@m(type)
  acceptedNames:CustomResourceDefinitionNames:! storedVersions:[]s:!@a observedGeneration:l
OwnerReference@A apiVersion:s:! kind:s:! name:s:! uid:s:! controller:b:* blockOwnerDeletion:b:*
ManagedFieldsEntry manager:s operation:s apiVersion:s time:t:* fieldsType:s fieldsV1:a:* subresource:s
NamespaceCondition type:s:! status:s:! lastTransitionTime:t reason:s message:s
Volume name:s:! hostPath:HostPathVolumeSource:* emptyDir:EmptyDirVolumeSource:*
  gcePersistentDisk:GCEPersistentDiskVolumeSource:* awsElasticBlockStore:AWSElasticBlockStoreVolumeSource:*
  gitRepo:GitRepoVolumeSource:* secret:SecretVolumeSource:* nfs:NFSVolumeSource:* iscsi:ISCSIVolumeSource:*
  glusterfs:GlusterfsVolumeSource:* persistentVolumeClaim:PersistentVolumeClaimVolumeSource:* rbd:RBDVolumeSource:*
  flexVolume:FlexVolumeSource:* cinder:CinderVolumeSource:* cephfs:CephFSVolumeSource:*
  flocker:FlockerVolumeSource:* downwardAPI:DownwardAPIVolumeSource:* fc:FCVolumeSource:*
  azureFile:AzureFileVolumeSource:* configMap:ConfigMapVolumeSource:* vsphereVolume:VsphereVirtualDiskVolumeSource:*
  quobyte:QuobyteVolumeSource:* azureDisk:AzureDiskVolumeSource:*
  photonPersistentDisk:PhotonPersistentDiskVolumeSource:* projected:ProjectedVolumeSource:*
  portworxVolume:PortworxVolumeSource:* scaleIO:ScaleIOVolumeSource:* storageos:StorageOSVolumeSource:*
  csi:CSIVolumeSource:* ephemeral:EphemeralVolumeSource:* image:ImageVolumeSource:*
Container name:s:! image:s command:[]s:@a args:[]s:@a workingDir:s
  ports:[]ContainerPort:@m(containerPort,protocol)%containerPort envFrom:[]EnvFromSource:@a
  env:[]EnvVar:@m(name)%name resources:ResourceRequirements resizePolicy:[]ContainerResizePolicy:@a
  restartPolicy:s:* restartPolicyRules:[]ContainerRestartRule:@a volumeMounts:[]VolumeMount:@m(mountPath)%mountPath
  volumeDevices:[]VolumeDevice:@m(devicePath)%devicePath livenessProbe:Probe:* readinessProbe:Probe:*
  startupProbe:Probe:* lifecycle:Lifecycle:* terminationMessagePath:s terminationMessagePolicy:s imagePullPolicy:s
  securityContext:SecurityContext:* stdin:b stdinOnce:b tty:b
EphemeralContainer name:s:! image:s command:[]s:@a args:[]s:@a workingDir:s
  ports:[]ContainerPort:@m(containerPort,protocol)%containerPort envFrom:[]EnvFromSource:@a
  env:[]EnvVar:@m(name)%name resources:ResourceRequirements resizePolicy:[]ContainerResizePolicy:@a
  restartPolicy:s:* restartPolicyRules:[]ContainerRestartRule:@a volumeMounts:[]VolumeMount:@m(mountPath)%mountPath
  volumeDevices:[]VolumeDevice:@m(devicePath)%devicePath livenessProbe:Probe:* readinessProbe:Probe:*
  startupProbe:Probe:* lifecycle:Lifecycle:* terminationMessagePath:s terminationMessagePolicy:s imagePullPolicy:s
  securityContext:SecurityContext:* stdin:b stdinOnce:b tty:b targetContainerName:s
PodSecurityContext seLinuxOptions:SELinuxOptions:* windowsOptions:WindowsSecurityContextOptions:* runAsUser:l:*
  runAsGroup:l:* runAsNonRoot:b:* supplementalGroups:[]l:@a supplementalGroupsPolicy:s:* fsGroup:l:*
  sysctls:[]Sysctl:@a fsGroupChangePolicy:s:* seccompProfile:SeccompProfile:* appArmorProfile:AppArmorProfile:*
  seLinuxChangePolicy:s:*
Affinity nodeAffinity:NodeAffinity:* podAffinity:PodAffinity:* podAntiAffinity:PodAntiAffinity:*
Toleration key:s operator:s value:s effect:s tolerationSeconds:l:*
HostAlias ip:s:! hostnames:[]s:@a
PodDNSConfig nameservers:[]s:@a searches:[]s:@a options:[]PodDNSConfigOption:@a
PodReadinessGate conditionType:s:!
TopologySpreadConstraint maxSkew:i:! topologyKey:s:! whenUnsatisfiable:s:! labelSelector:LabelSelector:*
  minDomains:i:* nodeAffinityPolicy:s:* nodeTaintsPolicy:s:* matchLabelKeys:[]s:@a
PodOS name:s:!
PodSchedulingGate name:s:!
PodResourceClaim name:s:! resourceClaimName:s:* resourceClaimTemplateName:s:*
ResourceRequirements limits:{}q requests:{}q claims:[]ResourceClaim:@m(name)
PodSchedulingGroup podGroupName:s:*
PodCondition type:s:! observedGeneration:l status:s:! lastProbeTime:t lastTransitionTime:t reason:s message:s
HostIP ip:s:!
PodIP ip:s:!
ContainerStatus name:s:! state:ContainerState lastState:ContainerState ready:b:! restartCount:i:! image:s:!
  imageID:s:! containerID:s started:b:* allocatedResources:{}q resources:ResourceRequirements:*
  volumeMounts:[]VolumeMountStatus:@m(mountPath)%mountPath user:ContainerUser:*
  allocatedResourcesStatus:[]ResourceStatus:@m(name)%name stopSignal:s:*
PodResourceClaimStatus name:s:! resourceClaimName:s:*
PodExtendedResourceClaimStatus requestMappings:[]ContainerExtendedResourceRequest:!@a resourceClaimName:s:!
NodeAllocatableResourceClaimStatus resourceClaimName:s:! containers:[]s:@s resources:{}q:!
Taint key:s:! value:s effect:s:! timeAdded:t:*
NodeConfigSource configMap:ConfigMapNodeConfigSource:*
NodeCondition type:s:! status:s:! lastHeartbeatTime:t lastTransitionTime:t reason:s message:s
NodeAddress type:s:! address:s:!
NodeDaemonEndpoints kubeletEndpoint:DaemonEndpoint
NodeSystemInfo machineID:s:! systemUUID:s:! bootID:s:! kernelVersion:s:! osImage:s:! containerRuntimeVersion:s:!
  kubeletVersion:s:! kubeProxyVersion:s:! operatingSystem:s:! architecture:s:! swap:NodeSwapStatus:*
ContainerImage names:[]s:!@a sizeBytes:l
AttachedVolume name:s:! devicePath:s:!
NodeConfigStatus assigned:NodeConfigSource:* active:NodeConfigSource:* lastKnownGood:NodeConfigSource:* error:s
NodeRuntimeHandler name:s:! features:NodeRuntimeHandlerFeatures:*
NodeFeatures supplementalGroupsPolicy:b:*
ServicePort name:s protocol:s appProtocol:s:* port:i:! targetPort:x nodePort:i
SessionAffinityConfig clientIP:ClientIPConfig:*
LoadBalancerStatus ingress:[]LoadBalancerIngress:@a
Condition type:s:! status:s:! observedGeneration:l lastTransitionTime:t:! reason:s:! message:s:!
LabelSelector@A matchLabels:{}s matchExpressions:[]LabelSelectorRequirement:@a
VolumeResourceRequirements limits:{}q requests:{}q
TypedLocalObjectReference@A apiGroup:s:*! kind:s:! name:s:!
TypedObjectReference apiGroup:s:*! kind:s:! name:s:! namespace:s:*
PersistentVolumeClaimCondition type:s:! status:s:! lastProbeTime:t lastTransitionTime:t reason:s message:s
ModifyVolumeStatus targetVolumeAttributesClassName:s status:s:!
PodTemplateSpec metadata:ObjectMeta spec:PodSpec
DeploymentStrategy type:s rollingUpdate:RollingUpdateDeployment:*
DaemonSetUpdateStrategy type:s rollingUpdate:RollingUpdateDaemonSet:*
DaemonSetCondition type:s:! status:s:! lastTransitionTime:t reason:s message:s
NetworkPolicyIngressRule ports:[]NetworkPolicyPort:@a from:[]NetworkPolicyPeer:@a
NetworkPolicyEgressRule ports:[]NetworkPolicyPort:@a to:[]NetworkPolicyPeer:@a
DeploymentCondition type:s:! status:s:! lastUpdateTime:t lastTransitionTime:t reason:s message:s
CustomResourceDefinitionNames plural:s:! singular:s shortNames:[]s:@a kind:s:! listKind:s categories:[]s:@a
CustomResourceDefinitionVersion name:s:! served:b:! storage:b:! deprecated:b deprecationWarning:s:* schema:S:*
  subresources:CustomResourceSubresources:* additionalPrinterColumns:[]CustomResourceColumnDefinition:@a
  selectableFields:[]SelectableField:@a
CustomResourceConversion strategy:s:! webhook:WebhookConversion:*
CustomResourceDefinitionCondition type:s:! status:s:! lastTransitionTime:t reason:s message:s observedGeneration:l
HostPathVolumeSource path:s:! type:s:*
EmptyDirVolumeSource medium:s sizeLimit:q:*
GCEPersistentDiskVolumeSource pdName:s:! fsType:s partition:i readOnly:b
AWSElasticBlockStoreVolumeSource volumeID:s:! fsType:s partition:i readOnly:b
GitRepoVolumeSource repository:s:! revision:s directory:s
SecretVolumeSource secretName:s items:[]KeyToPath:@a defaultMode:i:* optional:b:*
NFSVolumeSource server:s:! path:s:! readOnly:b
ISCSIVolumeSource targetPortal:s:! iqn:s:! lun:i:! iscsiInterface:s fsType:s readOnly:b portals:[]s:@a
  chapAuthDiscovery:b chapAuthSession:b secretRef:LocalObjectReference:* initiatorName:s:*
GlusterfsVolumeSource endpoints:s:! path:s:! readOnly:b
PersistentVolumeClaimVolumeSource claimName:s:! readOnly:b
RBDVolumeSource monitors:[]s:!@a image:s:! fsType:s pool:s user:s keyring:s secretRef:LocalObjectReference:*
  readOnly:b
FlexVolumeSource driver:s:! fsType:s secretRef:LocalObjectReference:* readOnly:b options:{}s
CinderVolumeSource volumeID:s:! fsType:s readOnly:b secretRef:LocalObjectReference:*
CephFSVolumeSource monitors:[]s:!@a path:s user:s secretFile:s secretRef:LocalObjectReference:* readOnly:b
FlockerVolumeSource datasetName:s datasetUUID:s
DownwardAPIVolumeSource items:[]DownwardAPIVolumeFile:@a defaultMode:i:*
FCVolumeSource targetWWNs:[]s:@a lun:i:* fsType:s readOnly:b wwids:[]s:@a
AzureFileVolumeSource secretName:s:! shareName:s:! readOnly:b
ConfigMapVolumeSource name:s items:[]KeyToPath:@a defaultMode:i:* optional:b:*
VsphereVirtualDiskVolumeSource volumePath:s:! fsType:s storagePolicyName:s storagePolicyID:s
QuobyteVolumeSource registry:s:! volume:s:! readOnly:b user:s group:s tenant:s
AzureDiskVolumeSource diskName:s:! diskURI:s:! cachingMode:s:* fsType:s:* readOnly:b:* kind:s:*
PhotonPersistentDiskVolumeSource pdID:s:! fsType:s
ProjectedVolumeSource sources:[]VolumeProjection:!@a defaultMode:i:*
PortworxVolumeSource volumeID:s:! fsType:s readOnly:b
ScaleIOVolumeSource gateway:s:! system:s:! secretRef:LocalObjectReference:*! sslEnabled:b protectionDomain:s
  storagePool:s storageMode:s volumeName:s fsType:s readOnly:b
StorageOSVolumeSource volumeName:s volumeNamespace:s fsType:s readOnly:b secretRef:LocalObjectReference:*
CSIVolumeSource driver:s:! readOnly:b:* fsType:s:* volumeAttributes:{}s nodePublishSecretRef:LocalObjectReference:*
EphemeralVolumeSource volumeClaimTemplate:PersistentVolumeClaimTemplate:*
ImageVolumeSource reference:s pullPolicy:s
ContainerPort name:s hostPort:i containerPort:i:! protocol:s hostIP:s
EnvFromSource prefix:s configMapRef:ConfigMapEnvSource:* secretRef:SecretEnvSource:*
EnvVar name:s:! value:s valueFrom:EnvVarSource:*
ContainerResizePolicy resourceName:s:! restartPolicy:s:!
ContainerRestartRule action:s exitCodes:ContainerRestartRuleOnExitCodes:*
VolumeMount name:s:! readOnly:b recursiveReadOnly:s:* mountPath:s:! subPath:s mountPropagation:s:* subPathExpr:s
VolumeDevice name:s:! devicePath:s:!
Probe exec:ExecAction:* httpGet:HTTPGetAction:* tcpSocket:TCPSocketAction:* grpc:GRPCAction:* initialDelaySeconds:i
  timeoutSeconds:i periodSeconds:i successThreshold:i failureThreshold:i terminationGracePeriodSeconds:l:*
Lifecycle postStart:LifecycleHandler:* preStop:LifecycleHandler:* stopSignal:s:*
SecurityContext capabilities:Capabilities:* privileged:b:* seLinuxOptions:SELinuxOptions:*
  windowsOptions:WindowsSecurityContextOptions:* runAsUser:l:* runAsGroup:l:* runAsNonRoot:b:*
  readOnlyRootFilesystem:b:* allowPrivilegeEscalation:b:* procMount:s:* seccompProfile:SeccompProfile:*
  appArmorProfile:AppArmorProfile:*
SELinuxOptions user:s role:s type:s level:s
WindowsSecurityContextOptions gmsaCredentialSpecName:s:* gmsaCredentialSpec:s:* runAsUserName:s:* hostProcess:b:*
Sysctl name:s:! value:s:!
SeccompProfile type:s:! localhostProfile:s:*
AppArmorProfile type:s:! localhostProfile:s:*
NodeAffinity requiredDuringSchedulingIgnoredDuringExecution:NodeSelector:*
  preferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm:@a
PodAffinity requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm:@a
  preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm:@a
PodAntiAffinity requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm:@a
  preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm:@a
PodDNSConfigOption name:s value:s:*
ResourceClaim name:s:! request:s
ContainerState waiting:ContainerStateWaiting:* running:ContainerStateRunning:* terminated:ContainerStateTerminated:*
VolumeMountStatus name:s:! mountPath:s:! readOnly:b recursiveReadOnly:s:* volumeStatus:VolumeStatus:*
ContainerUser linux:LinuxContainerUser:*
ResourceStatus name:s:! resources:[]ResourceHealth:@m(resourceID)
ContainerExtendedResourceRequest containerName:s:! resourceName:s:! requestName:s:!
ConfigMapNodeConfigSource namespace:s:! name:s:! uid:s resourceVersion:s kubeletConfigKey:s:!
DaemonEndpoint Port:i:!
NodeSwapStatus capacity:l:*
NodeRuntimeHandlerFeatures recursiveReadOnlyMounts:b:* userNamespaces:b:*
ClientIPConfig timeoutSeconds:i:*
LoadBalancerIngress ip:s hostname:s ipMode:s:* ports:[]PortStatus:@a
LabelSelectorRequirement key:s:! operator:s:! values:[]s:@a
RollingUpdateDaemonSet maxUnavailable:x:* maxSurge:x:*
NetworkPolicyPort protocol:s:* port:x:* endPort:i:*
NetworkPolicyPeer podSelector:LabelSelector:* namespaceSelector:LabelSelector:* ipBlock:IPBlock:*
IPBlock cidr:s:! except:[]s:@a
RollingUpdateDeployment maxUnavailable:x:* maxSurge:x:*
CustomResourceSubresources status:a:* scale:CustomResourceSubresourceScale:*
CustomResourceColumnDefinition name:s:! type:s:! format:s description:s priority:i jsonPath:s:!
SelectableField jsonPath:s:!
WebhookConversion clientConfig:WebhookClientConfig:* conversionReviewVersions:[]s:!@a
KeyToPath key:s:! path:s:! mode:i:*
DownwardAPIVolumeFile path:s:! fieldRef:ObjectFieldSelector:* resourceFieldRef:ResourceFieldSelector:* mode:i:*
VolumeProjection secret:SecretProjection:* downwardAPI:DownwardAPIProjection:* configMap:ConfigMapProjection:*
  serviceAccountToken:ServiceAccountTokenProjection:* clusterTrustBundle:ClusterTrustBundleProjection:*
  podCertificate:PodCertificateProjection:*
PersistentVolumeClaimTemplate metadata:ObjectMeta spec:PersistentVolumeClaimSpec:!
ConfigMapEnvSource name:s optional:b:*
SecretEnvSource name:s optional:b:*
EnvVarSource fieldRef:ObjectFieldSelector:* resourceFieldRef:ResourceFieldSelector:*
  configMapKeyRef:ConfigMapKeySelector:* secretKeyRef:SecretKeySelector:* fileKeyRef:FileKeySelector:*
ContainerRestartRuleOnExitCodes operator:s values:[]i:@s
ExecAction command:[]s:@a
HTTPGetAction path:s port:x:! host:s scheme:s httpHeaders:[]HTTPHeader:@a
TCPSocketAction port:x:! host:s
GRPCAction port:i:! service:s:*!
LifecycleHandler exec:ExecAction:* httpGet:HTTPGetAction:* tcpSocket:TCPSocketAction:* sleep:SleepAction:*
Capabilities add:[]s:@a drop:[]s:@a
NodeSelector@A nodeSelectorTerms:[]NodeSelectorTerm:!@a
PreferredSchedulingTerm weight:i:! preference:NodeSelectorTerm:!
PodAffinityTerm labelSelector:LabelSelector:* namespaces:[]s:@a topologyKey:s:! namespaceSelector:LabelSelector:*
  matchLabelKeys:[]s:@a mismatchLabelKeys:[]s:@a
WeightedPodAffinityTerm weight:i:! podAffinityTerm:PodAffinityTerm:!
ContainerStateWaiting reason:s message:s
ContainerStateRunning startedAt:t
ContainerStateTerminated exitCode:i:! signal:i reason:s message:s startedAt:t finishedAt:t containerID:s
VolumeStatus image:ImageVolumeStatus:*
LinuxContainerUser uid:l:! gid:l:! supplementalGroups:[]l:@a
ResourceHealth resourceID:s:! health:s message:s:*
PortStatus port:i:! protocol:s:! error:s:*
CustomResourceSubresourceScale specReplicasPath:s:! statusReplicasPath:s:! labelSelectorPath:s:*
WebhookClientConfig url:s:* service:ServiceReference:* caBundle:y
ObjectFieldSelector@A apiVersion:s fieldPath:s:!
ResourceFieldSelector@A containerName:s resource:s:! divisor:q
SecretProjection name:s items:[]KeyToPath:@a optional:b:*
DownwardAPIProjection items:[]DownwardAPIVolumeFile:@a
ConfigMapProjection name:s items:[]KeyToPath:@a optional:b:*
ServiceAccountTokenProjection audience:s expirationSeconds:l:* path:s:!
ClusterTrustBundleProjection name:s:* signerName:s:* labelSelector:LabelSelector:* optional:b:* path:s:!
PodCertificateProjection signerName:s keyType:s maxExpirationSeconds:i:* credentialBundlePath:s keyPath:s
  certificateChainPath:s userAnnotations:{}s
ConfigMapKeySelector@A name:s key:s:! optional:b:*
SecretKeySelector@A name:s key:s:! optional:b:*
FileKeySelector@A volumeName:s:! path:s:! key:s:! optional:b:*
HTTPHeader name:s:! value:s:!
SleepAction seconds:l:!
NodeSelectorTerm@A matchExpressions:[]NodeSelectorRequirement:@a matchFields:[]NodeSelectorRequirement:@a
ImageVolumeStatus imageRef:s
ServiceReference namespace:s:! name:s:! path:s:* port:i:*
NodeSelectorRequirement key:s:! operator:s:! values:[]s:@a
"""
