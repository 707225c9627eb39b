// A controller as people write them, with client-go as it is: what it sends is protobuf where a kind has it. It makes,
// changes and deletes objects, records an event, evicts a pod and wins a lease; the first thing that fails ends it.
//
// usage: controller KUBECONFIG NAMESPACE    do it, and print a line for each thing done
//
//	controller --record               print objects as client-go sends them: a line of JSON each
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

func of[T any](value T) *T { return &value }

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: named(name), Spec: podSpec()}
}

func podSpec() corev1.PodSpec {
	limits := corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")}
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: of(int64(0)),
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.example/train:1", Args: []string{"", "a"},
			Env: []corev1.EnvVar{{Name: "EMPTY"}, {Name: "NODE", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
			Resources:      corev1.ResourceRequirements{Limits: limits},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}},
			VolumeMounts:   []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
		}},
		Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
}

func deployment() *appsv1.Deployment {
	selector := map[string]string{"app": "web"}
	return &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{
		Replicas: of(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: selector},
		Template: corev1.PodTemplateSpec{ObjectMeta: named("web"), Spec: func() corev1.PodSpec {
			spec := podSpec()
			spec.TerminationGracePeriodSeconds = of(int64(1))
			return spec
		}()},
	}}
}

func service() *corev1.Service {
	return &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"},
		Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
	}}
}

func budget() *policyv1.PodDisruptionBudget {
	half := intstr.FromString("50%")
	return &policyv1.PodDisruptionBudget{ObjectMeta: named("web"), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: &half, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
}

func role() *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: named("reader"), Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
}

func binding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: named("reader"),
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "bob"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"}}
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: named("data"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: of(""),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
	}}
}

func event(namespace string) *corev1.Event {
	seen := metav1.NewTime(time.Unix(1_800_000_000, 5_000))
	return &corev1.Event{ObjectMeta: named("seen"), Reason: "Seen", Message: "it was seen", Type: "Normal", Count: 1,
		FirstTimestamp: seen, LastTimestamp: seen, EventTime: metav1.NewMicroTime(time.Unix(1_800_000_000, 5_000)),
		ReportingController: "example.com/controller", ReportingInstance: "a", Action: "Look",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: "one"}}
}

func lease() *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Unix(1_800_000_000, 123_456_000))
	return &coordinationv1.Lease{ObjectMeta: named("kept"), Spec: coordinationv1.LeaseSpec{
		HolderIdentity: of(""), LeaseDurationSeconds: of(int32(15)), LeaseTransitions: of(int32(0)), RenewTime: &now}}
}

func review() *authorizationv1.SelfSubjectAccessReview {
	return &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}
}

func record() {
	objects := []runtime.Object{
		pod("one"), deployment(), service(), budget(), role(), binding(), claim(), event("default"), lease(), review(),
		&corev1.ConfigMap{ObjectMeta: named("c"), Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": {0, 255}}},
		&corev1.Secret{ObjectMeta: named("s"), Data: map[string][]byte{"a": []byte("b")}, Immutable: of(false)},
		&corev1.Namespace{ObjectMeta: named("n")}, &corev1.ServiceAccount{ObjectMeta: named("a")},
		&corev1.Node{ObjectMeta: named("n"), Spec: corev1.NodeSpec{Unschedulable: true}},
		&policyv1.Eviction{ObjectMeta: named("one"), DeleteOptions: metav1.NewDeleteOptions(0)},
		&autoscalingv1.Scale{ObjectMeta: named("web"), Spec: autoscalingv1.ScaleSpec{Replicas: 0}},
		&corev1.Binding{ObjectMeta: named("one"), Target: corev1.ObjectReference{Name: "node"}},
	}
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	for _, object := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		check("kind", err)
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
		var sent bytes.Buffer
		check("encode", encoder.Encode(object, &sent))
		check("print", json.NewEncoder(os.Stdout).Encode(map[string]any{"json": object, "pb": sent.Bytes()}))
	}
}

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func done(what string, err error) {
	check(what, err)
	fmt.Println(what)
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--record" {
		record()
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	check("config", err)
	client, err := kubernetes.NewForConfig(config)
	check("client", err)
	namespace := os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	version, err := client.Discovery().ServerVersion()
	check("version", err)
	if version.GitCommit == "" || version.BuildDate == "" || version.Platform == "" || version.Compiler == "" {
		check("version", fmt.Errorf("a part of it is empty: %+v", version))
	}
	create := metav1.CreateOptions{}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: named(namespace)}, create)
	done("namespace", err)
	core := client.CoreV1()
	made, err := core.Pods(namespace).Create(ctx, pod("one"), create)
	done("pod", err)
	if *made.Spec.TerminationGracePeriodSeconds != 0 || made.Spec.Containers[0].ReadinessProbe.TCPSocket.Port.IntVal != 80 {
		check("pod", fmt.Errorf("it is not what was sent: %+v", made.Spec))
	}
	done("pod changed", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := core.Pods(namespace).Get(ctx, "one", metav1.GetOptions{})
		check("pod", err)
		found.Labels["changed"] = "yes"
		_, err = core.Pods(namespace).Update(ctx, found, metav1.UpdateOptions{})
		return err
	}))
	_, err = client.AppsV1().Deployments(namespace).Create(ctx, deployment(), create)
	done("deployment", err)
	done("scale", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale, err := client.AppsV1().Deployments(namespace).GetScale(ctx, "web", metav1.GetOptions{})
		check("scale", err)
		scale.Spec.Replicas = 1
		_, err = client.AppsV1().Deployments(namespace).UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		return err
	}))
	_, err = core.Services(namespace).Create(ctx, service(), create)
	done("service", err)
	_, err = core.PersistentVolumeClaims(namespace).Create(ctx, claim(), create)
	done("claim", err)
	_, err = core.Events(namespace).Create(ctx, event(namespace), create)
	done("event", err)
	_, err = client.RbacV1().Roles(namespace).Create(ctx, role(), create)
	done("role", err)
	_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, binding(), create)
	done("binding", err)
	_, err = client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget(), create)
	done("budget", err)
	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review(), create)
	done("review", err)
	if !answer.Status.Allowed {
		check("review", fmt.Errorf("it is not allowed: %s", answer.Status.Reason))
	}
	nodes, err := core.Nodes().List(ctx, metav1.ListOptions{})
	check("nodes", err)
	for _, each := range nodes.Items {
		check("node", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			node, err := core.Nodes().Get(ctx, each.Name, metav1.GetOptions{})
			check("node", err)
			node.Labels["seen"] = "yes"
			_, err = core.Nodes().Update(ctx, node, metav1.UpdateOptions{})
			return err
		}))
	}
	lead(ctx, client, namespace)
	check("evict", client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}, DeleteOptions: metav1.NewDeleteOptions(0)}))
	fmt.Println("evicted")
	uid := types.UID("another")
	err = client.AppsV1().Deployments(namespace).Delete(ctx, "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil {
		check("delete", fmt.Errorf("its precondition was not read"))
	}
	done("deleted", client.AppsV1().Deployments(namespace).Delete(ctx, "web", metav1.DeleteOptions{}))
}

func lead(ctx context.Context, client kubernetes.Interface, namespace string) {
	until, stop := context.WithCancel(ctx)
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "controller"},
		Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}}
	led := false
	leaderelection.RunOrDie(until, leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				for !led { // until it has renewed it once
					lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, "controller", metav1.GetOptions{})
					check("lease", err)
					led = lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time)
				}
				stop()
			},
			OnStoppedLeading: func() {},
		},
	})
	if !led {
		check("lead", fmt.Errorf("it never led"))
	}
	fmt.Println("led")
}
