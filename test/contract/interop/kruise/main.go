// Reads and writes the objects that we share with OpenKruise as a Go program does, with Kubernetes' own types of probes,
// times and pods.
//
//	check KIND  objects of that kind from stdin, one a line; of each a line with what Go makes of it and what it did not know
//	record      the corpus: objects as Kruise's manager and daemon write them
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// As long as an object may be.
const maxLineBytes = 4 << 20

type verdict struct {
	Object any      `json:"object"`
	Extra  []string `json:"extra"`
	Error  string   `json:"error"`
}

// decode reads as client-go does: names are told apart by case, fields that the type does not have are dropped; it
// names those.
func decode(kind string, line []byte) verdict {
	var into any
	switch kind {
	case "NodePodProbe":
		into = &nodePodProbe{}
	case "PodProbeMarker":
		into = &podProbeMarker{}
	case "Pod":
		into = &corev1.Pod{}
	case "Event":
		into = &corev1.Event{}
	case "podprobe": // The annotation of the serverless protocol.
		into = &[]markerProbe{}
	default:
		return verdict{Error: "no such kind: " + kind}
	}
	unknown, err := kjson.UnmarshalStrict(line, into)
	if err != nil {
		return verdict{Error: err.Error()}
	}
	extra := []string{}
	for _, each := range unknown {
		extra = append(extra, each.Error())
	}
	return verdict{Object: into, Extra: extra}
}

func check(kind string) error {
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		if err := out.Encode(decode(kind, lines.Bytes())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "check":
		err = check(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == "record":
		err = record(os.Stdout)
	default:
		err = fmt.Errorf("check KIND, or record")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
