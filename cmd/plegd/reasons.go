package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
)

func newReasonsCommand() *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use:   "reasons [ID]",
		Short: "List every reason, or print all about one: meaning, evidence, what to do",
		Example: `  plegd reasons
  plegd reasons ShimStuck
  plegd reasons -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			table := health.Reasons()
			text := health.List()
			if len(args) > 0 {
				reason, err := findReason(args[0])
				if err != nil {
					return usage(err)
				}
				table = []health.Reason{reason}
				text = reason.Text()
			}
			if *output == "json" {
				return view.WriteJSON(cmd.OutOrStdout(), reasonDocuments(table))
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
		ValidArgsFunction: cobra.FixedCompletions(reasonIDs(), cobra.ShellCompDirectiveNoFileComp),
	}
	output = outputFlag(cmd, "text", "json")
	return cmd
}

// findReason returns a reason by its ID, in any case.
func findReason(id string) (health.Reason, error) {
	for _, r := range health.Reasons() {
		if strings.EqualFold(r.ID, id) {
			return r, nil
		}
	}
	return health.Reason{}, fmt.Errorf("unknown reason %q%s (`plegd reasons` lists them all)",
		id, didYouMean(id, reasonIDs()))
}

func reasonIDs() (ids []string) {
	for _, r := range health.Reasons() {
		ids = append(ids, r.ID)
	}
	return ids
}

// reasonDocument is a reason as reasons -o json prints it.
type reasonDocument struct {
	ID         string           `json:"id"`
	Severities []facts.Severity `json:"severities"`
	Layer      facts.Layer      `json:"layer"`
	health.Page
	Runbook string `json:"runbook"`
}

func reasonDocuments(table []health.Reason) []reasonDocument {
	out := make([]reasonDocument, 0, len(table))
	for _, r := range table {
		out = append(out, reasonDocument{
			ID:         r.ID,
			Severities: r.Severities(),
			Layer:      r.Layer,
			Page:       r.Generic(),
			Runbook:    "docs/reasons/" + r.ID + ".md",
		})
	}
	return out
}
