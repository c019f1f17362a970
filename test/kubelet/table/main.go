// Command table writes the recordings of make e2e-kubelet or make e2e-cluster into
// docs/results/kubelet.md: a row for each scenario, a column for each kubelet.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/plegd/plegd/test/kubelet/record"
	"github.com/plegd/plegd/test/results"
)

func main() {
	dir := flag.String("results", "build/kubelet", "directory of the recordings")
	page := flag.String("write", "", "page to write the table into; empty: print it")
	command := flag.String("command", "make e2e-kubelet", "command that made the recordings: its name is in the page's marks")
	flag.Parse()
	recordings, err := record.Load(*dir)
	if err == nil {
		err = results.WritePage(*page, *command, results.Table(cases(recordings)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// cases groups the recordings, which are sorted, by scenario and kubelet.
func cases(recordings []*record.Recording) []*results.Case {
	var all []*results.Case
	for _, r := range recordings {
		c := record.Compare(r)
		run := results.Run{}
		if len(c.API) > 0 {
			run.Seconds = &c.API[0].NotReady
		}
		for _, problem := range c.Problems {
			run.Wrong += problem + "\n"
		}
		if run.Wrong != "" {
			run.Wrong += r.Deviation
		}
		name, column := r.Scenario+" ("+r.Runtime+")", "kubelet "+r.Kubelet
		if n := len(all); n == 0 || all[n-1].Name != name || all[n-1].Runtime != column {
			all = append(all, &results.Case{
				Place: r.Place, Name: name, Runtime: column, Version: r.Kubelet, Want: "predicted " + c.Predictions[1].String(),
			})
		}
		last := all[len(all)-1]
		last.Commit, last.Date, last.Runs = r.Commit, r.Date, append(last.Runs, run)
	}
	return all
}
