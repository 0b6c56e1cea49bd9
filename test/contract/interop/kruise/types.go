package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The two kinds by the facts of their schema: names, cases, what is a pointer and what is left out when empty. Kruise's
// own module is not used, so what Go makes of the fields is tested here, and not whether Kruise has changed them.

type nodePodProbe struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   asked    `json:"spec,omitempty"`
	Status answered `json:"status,omitempty"`
}

type asked struct {
	PodProbes []askedOfPod `json:"podProbes,omitempty"`
}

type askedOfPod struct {
	Name      string           `json:"name"`
	Namespace string           `json:"namespace"`
	UID       string           `json:"uid"`
	IP        string           `json:"IP"`
	Probes    []containerProbe `json:"probes,omitempty"`
}

type containerProbe struct {
	Name          string       `json:"name"`
	ContainerName string       `json:"containerName"`
	Probe         corev1.Probe `json:"probe"`
}

type answered struct {
	PodProbeStatuses []answeredOfPod `json:"podProbeStatuses,omitempty"`
}

type answeredOfPod struct {
	Name        string  `json:"name"`
	Namespace   string  `json:"namespace"`
	UID         string  `json:"uid"`
	ProbeStates []state `json:"probeStates,omitempty"`
}

type state struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// Times are no pointers: one that was never set is null, not absent.
	LastProbeTime      metav1.Time `json:"lastProbeTime,omitempty"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	Message            string      `json:"message,omitempty"`
}

type podProbeMarker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   markerSpec   `json:"spec,omitempty"`
	Status markerStatus `json:"status,omitempty"`
}

type markerSpec struct {
	Selector *metav1.LabelSelector `json:"selector"`
	Probes   []markerProbe         `json:"probes"`
}

type markerProbe struct {
	Name             string       `json:"name"`
	ContainerName    string       `json:"containerName"`
	Probe            corev1.Probe `json:"probe"`
	MarkerPolicy     []policy     `json:"markerPolicy,omitempty"`
	PodConditionType string       `json:"podConditionType,omitempty"`
}

type policy struct {
	State       string            `json:"state"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type markerStatus struct {
	ObservedGeneration int64 `json:"observedGeneration"`
	MatchedPods        int64 `json:"matchedPods,omitempty"`
}
