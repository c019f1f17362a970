package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/health"
)

func newReasonsCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "reasons [ID]",
		Short: "List every reason, or say all about one: meaning, evidence, what to do",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := cmd.OutOrStdout()
			switch {
			case dir != "":
				return writePages(dir)
			case len(args) == 0:
				_, err := fmt.Fprint(w, health.List())
				return err
			}
			for _, r := range health.Reasons() {
				if strings.EqualFold(r.ID, args[0]) {
					_, err := fmt.Fprint(w, r.Text())
					return err
				}
			}
			return fmt.Errorf("%q is no reason: `plegd reasons` lists them all", args[0])
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var ids []string
			for _, r := range health.Reasons() {
				ids = append(ids, r.ID)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVar(&dir, "markdown", "", "write a page for each reason to this directory")
	_ = cmd.Flags().MarkHidden("markdown")
	return cmd
}

// writePages writes the reasons' pages, and removes those of reasons that are
// no more.
func writePages(dir string) error {
	pages := health.Pages()
	old, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, ok := pages[filepath.Base(path)]; !ok {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
