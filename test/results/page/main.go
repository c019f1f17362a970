// Command page writes the results of a suite into its page in docs/results, between two
// marks.
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
	command := flag.String("command", "make e2e-faults", "command that made the results: its name is in the page's marks")
	flag.Parse()
	all, err := results.ReadAll(*dir)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no results in %s: %s makes them", *dir, *command)
	}
	if err == nil {
		err = results.WritePage(*page, *command, results.Table(all))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}
