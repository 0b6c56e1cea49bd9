// Runs kubelet's own probers: reads a probe per line from stdin, writes its outcome per line to stdout, in any order.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"reflect"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
)

type request struct {
	ID      int      `json:"id"`
	IP      string   `json:"ip"`
	Probe   v1.Probe `json:"probe"`
	Timeout float64  `json:"timeout"`
}

type outcome struct {
	ID      int          `json:"id"`
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
		return probeGRPC(asked.IP, service, int(action.GRPC.Port), timeout)
	}
}

// probeGRPC passes the defaults of options that newer versions added at the end.
func probeGRPC(known ...any) (probe.Result, string, error) {
	function := reflect.ValueOf(grpcprobe.New().Probe)
	arguments := make([]reflect.Value, function.Type().NumIn())
	for i := range arguments {
		if i < len(known) {
			arguments[i] = reflect.ValueOf(known[i])
		} else {
			arguments[i] = reflect.Zero(function.Type().In(i))
		}
	}
	returned := function.Call(arguments)
	err, _ := returned[2].Interface().(error)
	return returned[0].Interface().(probe.Result), returned[1].String(), err
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	var writing sync.Mutex
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		go func() {
			result, message, err := run(asked)
			answer := outcome{ID: asked.ID, Result: result, Message: message}
			if err != nil {
				answer.Error = err.Error()
			}
			writing.Lock()
			defer writing.Unlock()
			if err := answers.Encode(answer); err != nil {
				panic(err)
			}
		}()
	}
}
