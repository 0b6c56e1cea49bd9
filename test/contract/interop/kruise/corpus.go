package main

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	node      = "node-1"
	namespace = "games"
	finalizer = "kruise.io/node-pod-probe-cleanup"
	idle      = "game.kruise.io/idle"
	web       = "game.kruise.io/web"
	door      = "game.kruise.io/door"
	deletion  = "controller.kubernetes.io/pod-deletion-cost"
)

// What one of Kruise's halves wrote, as it sends it: whole objects, by PUT.
type recorded struct {
	Name   string `json:"name"`
	By     string `json:"by"`
	Kind   string `json:"kind"`
	Object any    `json:"object"`
}

func record(to io.Writer) error {
	out := json.NewEncoder(to)
	for _, each := range corpus() {
		if err := out.Encode(each); err != nil {
			return err
		}
	}
	return nil
}

// at is a moment as `metav1.Now()` gives it: finer than a second, which is lost on the wire.
func at(minutes int) metav1.Time {
	begin := time.Date(2026, 11, 21, 11, 45, 0, 123_456_789, time.UTC)
	return metav1.NewTime(begin.Add(time.Duration(minutes) * time.Minute))
}

func corpus() []recorded {
	begun, answers := begun(), answered{PodProbeStatuses: answers()}
	first, second := pod("web-0", "127.1.0.1"), pod("web-1", "127.1.0.2")
	return []recorded{
		{"marker", "manager", "PodProbeMarker", marker("game", 2, 2, idleProbe(), webProbe())},
		{"marker-late", "manager", "PodProbeMarker", marker("a-late-one", 1, 2, doorProbe())},
		{"marker-of-no-pods", "manager", "PodProbeMarker", marker("a-late-one", 1, 0, doorProbe())},
		{"report-created", "manager", "NodePodProbe", nodePodProbe{TypeMeta: kruises("NodePodProbe"), ObjectMeta: metav1.ObjectMeta{Name: node}}},
		{"report-asked", "manager", "NodePodProbe", report(askedOfBoth(""), answered{})},
		{"report-emptied", "manager", "NodePodProbe", report(asked{}, answered{})},
		{"report-begun", "daemon", "NodePodProbe", report(askedOfBoth("127.1.0.2"), answered{PodProbeStatuses: []answeredOfPod{begun}})},
		{"report-answered", "daemon", "NodePodProbe", report(askedOfBoth("127.1.0.2"), answers)},
		{"report-left-over", "daemon", "NodePodProbe", report(asked{}, answers)},
		{"pod-asked", "manager", "Pod", first},
		{"pod-without-address", "manager", "Pod", pod("web-1", "")},
		{"pod-begun", "manager", "Pod", shown(first, begun)},
		{"pod-succeeded", "manager", "Pod", shown(first, answers.PodProbeStatuses[0])},
		{"pod-failed", "manager", "Pod", shown(second, answers.PodProbeStatuses[1])},
		{"pod-annotated", "webhook", "Pod", annotated(pod("web-2", ""))},
	}
}

func kruises(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "apps.kruise.io/v1alpha1", Kind: kind}
}

func meta(name, in string, generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: in, UID: types.UID("uid-" + name), ResourceVersion: "1", Generation: generation,
		CreationTimestamp: at(0),
	}
}

func marker(name string, generation, matched int64, probes ...markerProbe) podProbeMarker {
	made := podProbeMarker{
		TypeMeta: kruises("PodProbeMarker"), ObjectMeta: meta(name, namespace, generation),
		Spec:   markerSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "game"}}, Probes: probes},
		Status: markerStatus{ObservedGeneration: generation, MatchedPods: matched},
	}
	made.Finalizers = []string{finalizer}
	return made
}

// idleProbe has no number at all.
func idleProbe() markerProbe {
	return markerProbe{
		Name: "idle", ContainerName: "main", PodConditionType: idle,
		Probe: corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/idle.sh", "<5"}}}},
		MarkerPolicy: []policy{
			{State: "Succeeded", Labels: map[string]string{"idle": "true"}, Annotations: map[string]string{deletion: "-10"}},
			{State: "Failed", Annotations: map[string]string{deletion: "10"}},
		},
	}
}

// webProbe has every number, and names its port.
func webProbe() markerProbe {
	get := &corev1.HTTPGetAction{
		Path: "/healthy", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP,
		HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Probe", Value: "kruise"}},
	}
	return markerProbe{
		Name: "web", ContainerName: "main", PodConditionType: web,
		Probe: corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: get}, InitialDelaySeconds: 5, TimeoutSeconds: 2, PeriodSeconds: 10,
			SuccessThreshold: 1, FailureThreshold: 3,
		},
	}
}

// doorProbe has one number and no policy, and its port by number.
func doorProbe() markerProbe {
	return markerProbe{
		Name: "door", ContainerName: "proxy", PodConditionType: door,
		Probe: corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9000)}},
			PeriodSeconds: 5,
		},
	}
}

// asks is a probe as the node is asked it, with the number of its port.
func asks(of string, probe markerProbe) containerProbe {
	if probe.Probe.HTTPGet != nil {
		get := *probe.Probe.HTTPGet
		get.Port = intstr.FromInt32(8080)
		probe.Probe.HTTPGet = &get
	}
	return containerProbe{Name: of + "#" + probe.Name, ContainerName: probe.ContainerName, Probe: probe.Probe}
}

// askedOfBoth is in the order in which things came, which is that of no name.
func askedOfBoth(secondIP string) asked {
	probes := []containerProbe{asks("game", idleProbe()), asks("game", webProbe()), asks("a-late-one", doorProbe())}
	return asked{PodProbes: []askedOfPod{
		{Name: "web-1", Namespace: namespace, UID: "uid-web-1", IP: secondIP, Probes: probes},
		{Name: "web-0", Namespace: namespace, UID: "uid-web-0", IP: "127.1.0.1", Probes: probes},
	}}
}

func report(spec asked, status answered) nodePodProbe {
	return nodePodProbe{TypeMeta: kruises("NodePodProbe"), ObjectMeta: meta(node, "", 3), Spec: spec, Status: status}
}

func states(of string, states ...state) answeredOfPod {
	return answeredOfPod{Name: of, Namespace: namespace, UID: "uid-" + of, ProbeStates: states}
}

func result(name, verdict string, probed, moved int, message string) state {
	return state{Name: name, State: verdict, LastProbeTime: at(probed), LastTransitionTime: at(moved), Message: message}
}

// begun is what stands there before a probe's first verdict.
func begun() answeredOfPod {
	return states("web-0", result("game#idle", "Unknown", 1, 1, ""))
}

// answers are in no order, as results come out of a map; one of the messages ends with half a character.
func answers() []answeredOfPod {
	cut := (strings.Repeat("x", 1023) + "ä")[:1024]
	return []answeredOfPod{
		states("web-0",
			result("a-late-one#door", "Failed", 9, 2, "Container(proxy) is Non-running"),
			result("game#web", "Succeeded", 12, 4, ""),
			result("game#idle", "Succeeded", 12, 3, "idle <0 players> & waiting\n"),
		),
		states("web-1",
			result("game#idle", "Failed", 12, 11, "3 players"),
			result("a-late-one#door", "Succeeded", 12, 2, ""),
			result("game#web", "Failed", 12, 12, cut),
		),
	}
}

func pod(name, ip string) corev1.Pod {
	made := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(name, namespace, 0),
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{
				{Name: "main", Image: "game", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}},
				{Name: "proxy", Image: "proxy"},
			},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: web}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
	}
	made.Labels = map[string]string{"app": "game"}
	for _, each := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodScheduled} {
		// Kubelet leaves the time of the last probe unset, which is null.
		native := corev1.PodCondition{Type: each, Status: corev1.ConditionTrue, LastTransitionTime: at(0)}
		made.Status.Conditions = append(made.Status.Conditions, native)
	}
	return made
}

// owned says who wrote it: the name of Kruise's program, by a PUT of the status.
func owned(of corev1.Pod, fields string) corev1.Pod {
	moment := at(12)
	of.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &moment,
		FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}, Subresource: "status",
	}}
	return of
}

// shown is a pod with these results: a condition of each, and the marks of idle's policy for its state.
func shown(of corev1.Pod, results answeredOfPod) corev1.Pod {
	types := map[string]corev1.PodConditionType{"game#idle": idle, "game#web": web, "a-late-one#door": door}
	var fields, marks []string
	of.Labels = map[string]string{"app": "game"}
	for _, each := range results.ProbeStates {
		// Whatever is no success is False, Unknown too.
		status := corev1.ConditionFalse
		if each.State == "Succeeded" {
			status = corev1.ConditionTrue
		}
		of.Status.Conditions = append(of.Status.Conditions, corev1.PodCondition{
			Type: types[each.Name], Status: status, Message: each.Message,
			LastProbeTime: each.LastProbeTime, LastTransitionTime: each.LastTransitionTime,
		})
		fields = append(fields, conditionField(string(types[each.Name])))
		for _, policy := range idleProbe().MarkerPolicy {
			if each.Name != "game#idle" || each.State != policy.State {
				continue
			}
			of.Annotations = policy.Annotations
			marks = append(marks, `"f:annotations":{"f:`+deletion+`":{}}`)
			for key, value := range policy.Labels {
				of.Labels[key] = value
				marks = append(marks, `"f:labels":{"f:`+key+`":{}}`)
			}
		}
	}
	return owned(of, `{"f:metadata":{`+strings.Join(marks, ",")+`},"f:status":{"f:conditions":{`+strings.Join(fields, ",")+`}}}`)
}

func conditionField(kind string) string {
	return `"k:{\"type\":\"` + kind + `\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:message":{},"f:status":{},"f:type":{}}`
}

// annotated is a pod that a provider without a node probes: probes without policies, and the names of their markers.
func annotated(of corev1.Pod) corev1.Pod {
	idle, web, door := idleProbe(), webProbe(), doorProbe()
	idle.MarkerPolicy, web.MarkerPolicy, door.MarkerPolicy = nil, nil, nil
	list, err := json.Marshal([]markerProbe{door, idle, web})
	if err != nil {
		panic(err) // Plain values: there is nothing that could not be encoded.
	}
	// It is created just now, and on no node.
	of.Spec.NodeName, of.Status = "", corev1.PodStatus{}
	of.Annotations = map[string]string{
		"kruise.io/podprobe": string(list), "kruise.io/podprobemarker-list": "a-late-one,game",
	}
	return of
}
