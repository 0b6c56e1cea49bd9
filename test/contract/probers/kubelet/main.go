// Runs kubelet's own probers: reads a probe per line from stdin, writes its outcome per line to stdout.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
)

type request struct {
	IP      string   `json:"ip"`
	Probe   v1.Probe `json:"probe"`
	Timeout float64  `json:"timeout"`
}

type outcome struct {
	Result  probe.Result `json:"result"`
	Message string       `json:"message"`
	Error   string       `json:"error"`
}

func run(asked request) (probe.Result, string, error) {
	timeout := time.Duration(asked.Timeout * float64(time.Second))
	switch action := asked.Probe; {
	case action.HTTPGet != nil:
		const followNonLocalRedirects = false
		req, err := httpprobe.NewRequestForHTTPGetAction(action.HTTPGet, &v1.Container{}, asked.IP, "probe")
		if err != nil {
			return probe.Unknown, "", err
		}
		return httpprobe.New(followNonLocalRedirects).Probe(req, timeout)
	case action.TCPSocket != nil:
		return tcpprobe.New().Probe(asked.IP, action.TCPSocket.Port.IntValue(), timeout)
	default:
		service := ""
		if action.GRPC.Service != nil {
			service = *action.GRPC.Service
		}
		return grpcprobe.New().Probe(asked.IP, service, int(action.GRPC.Port), timeout)
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		result, message, err := run(asked)
		answer := outcome{Result: result, Message: message}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			panic(err)
		}
	}
}
