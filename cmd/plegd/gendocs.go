//go:build gendocs

package main

import (
	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Packages are built with gendocs. The plegd that is shipped carries no generator.
func init() {
	buildTimeCommands = []*cobra.Command{{
		Use:    "gendocs DIR",
		Short:  "Write the man pages to DIR, dated SOURCE_DATE_EPOCH",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.Root().DisableAutoGenTag = true
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{
				Section: "8", Source: "plegd " + version.Version, Manual: "System administration",
			}, args[0])
		},
	}}
}
