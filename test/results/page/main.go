// Command page writes the results of make e2e-faults into docs/results/faults.md.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/plegd/plegd/test/results"
)

func main() {
	dir := flag.String("results", "build/faults", "directory of the results")
	page := flag.String("write", "", "page to write the table into; empty: print it")
	flag.Parse()
	all, err := results.ReadAll(*dir)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no results in %s: make e2e-faults makes them", *dir)
	}
	if err == nil {
		err = results.WritePage(*page, "make e2e-faults", results.Table(all))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}
