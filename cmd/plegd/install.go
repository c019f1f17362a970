package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// newInstallCommand copies the running program into a directory of the node. The image has no
// other program: the chart's installBinary uses it in an init container.
func newInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "install DIR",
		Short:  "Copy this program into a directory",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return install(args[0]) },
	}
}

// install writes the running program to plegd in dir. A plegd that is there is replaced at once,
// so that a command that runs from it continues.
func install(dir string) error {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("read the running program: %w", err)
	}
	defer func() { _ = program.Close() }()
	err = replaceFile(filepath.Join(dir, "plegd"), 0o755, func(w io.Writer) error {
		_, err := io.Copy(w, program)
		return err
	})
	if err != nil {
		return fmt.Errorf("install into %s: %w", dir, err)
	}
	return nil
}
