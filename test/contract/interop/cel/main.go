// Evaluates CEL expressions as Flux does: each top-level field of the object is a variable, and what cannot be evaluated is an error.
//
// Input: {"expressions": [...], "object": {...}} lines. Output: one JSON list of "true", "false" or "error" for each line.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

type question struct {
	Expressions []string       `json:"expressions"`
	Object      map[string]any `json:"object"`
}

func evaluate(expression string, object map[string]any) string {
	options := []cel.EnvOption{ext.Strings()}
	for _, name := range []string{"metadata", "spec", "status"} {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		panic(err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		panic(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		panic(err)
	}
	value, _, err := program.Eval(object)
	if err != nil {
		return "error"
	}
	if value.Value() == true {
		return "true"
	}
	return "false"
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		verdicts := []string{}
		for _, expression := range asked.Expressions {
			verdicts = append(verdicts, evaluate(expression, asked.Object))
		}
		if err := out.Encode(verdicts); err != nil {
			panic(err)
		}
	}
}
