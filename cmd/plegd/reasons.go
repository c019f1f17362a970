package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/health"
)

func newReasonsCommand() *cobra.Command {
	var dir string
	var output *string
	cmd := &cobra.Command{
		Use:   "reasons [ID]",
		Short: "List every reason, or print all about one: meaning, evidence, what to do",
		Example: `  plegd reasons
  plegd reasons ShimStuck
  plegd reasons -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir != "" {
				return writePages(dir)
			}
			table, text := health.Reasons(), health.List()
			if len(args) > 0 {
				at := slices.IndexFunc(table, func(r health.Reason) bool { return strings.EqualFold(r.ID, args[0]) })
				if at < 0 {
					return usage(fmt.Errorf("unknown reason %q%s (`plegd reasons` lists them all)", args[0], didYouMean(similar(args[0], reasonIDs()))))
				}
				table, text = table[at:at+1], table[at].Text()
			}
			if *output == "json" {
				return indented(cmd.OutOrStdout(), reasonDocuments(table))
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return reasonIDs(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	output = outputFlag(cmd, "text", "json")
	cmd.Flags().StringVar(&dir, "markdown", "", "write a page for each reason to this directory")
	_ = cmd.Flags().MarkHidden("markdown")
	return cmd
}

func reasonIDs() (ids []string) {
	for _, r := range health.Reasons() {
		ids = append(ids, r.ID)
	}
	return ids
}

// reasonDocument is a reason as reasons -o json prints it.
type reasonDocument struct {
	ID         string            `json:"id"`
	Severities []health.Severity `json:"severities"`
	Meaning    string            `json:"meaning"`
	Evidence   string            `json:"evidence"`
	Thresholds []string          `json:"thresholds"`
	Layer      health.Layer      `json:"layer"`
	Next       string            `json:"next"`
	Steps      []string          `json:"steps"`
	// RestartHelps is yes, no or maybe; Restart says it in a sentence.
	RestartHelps health.Help `json:"restart_helps"`
	Restart      string      `json:"restart"`
	Runbook      string      `json:"runbook"`
}

func reasonDocuments(table []health.Reason) []reasonDocument {
	out := make([]reasonDocument, 0, len(table))
	for _, r := range table {
		steps := make([]string, 0, len(r.Steps))
		for _, s := range r.Steps {
			steps = append(steps, health.Generic(s))
		}
		thresholds := make([]string, 0, len(r.Thresholds))
		for _, t := range r.Thresholds {
			thresholds = append(thresholds, t.String())
		}
		out = append(out, reasonDocument{
			ID: r.ID, Severities: r.Severities(), Meaning: r.Meaning, Evidence: r.Needs, Thresholds: thresholds,
			Layer: r.Layer, Next: health.Generic(r.Next), Steps: steps,
			RestartHelps: r.Restart, Restart: r.RestartAnswer(), Runbook: r.Runbook(),
		})
	}
	return out
}

// writePages writes the reasons' pages, and removes those of reasons that no
// longer exist.
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
