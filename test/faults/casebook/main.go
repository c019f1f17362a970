// Command casebook writes the results of the case book into docs/results/casebook.md. It
// changes what stands between two marks and nothing else.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/plegd/plegd/test/faults/book"
	"github.com/plegd/plegd/test/resultpage"
)

func main() {
	dir := flag.String("results", "build/casebook", "directory of the results")
	page := flag.String("write", "", "page to write the table into; empty: print it")
	flag.Parse()
	if err := run(*dir, *page); err != nil {
		fmt.Fprintln(os.Stderr, "casebook:", err)
		os.Exit(1)
	}
}

func run(dir, page string) error {
	all, err := book.ReadAll(dir)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no results in %s: make e2e-casebook makes them", dir)
	}
	return resultpage.Write(page, "make e2e-casebook", book.Table(all))
}
