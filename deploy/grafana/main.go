// Command grafana writes the dashboard plegd.json beside it. The dashboard is
// made here and nowhere else: change panels.go and run `make generate`.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

//go:generate go run . -o plegd.json

func main() {
	out := flag.String("o", "", "`file` to write; empty: standard output")
	flag.Parse()
	b, err := encode(newDashboard())
	if err == nil {
		if *out == "" {
			_, err = os.Stdout.Write(b)
		} else {
			err = os.WriteFile(*out, b, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "writing the dashboard:", err)
		os.Exit(1)
	}
}

func encode(d dashboard) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	return b.Bytes(), err
}
