//go:build !gendocs

package main

import "github.com/spf13/cobra"

// buildTimeCommands are none in the plegd that is shipped: see gendocs.go.
func buildTimeCommands() []*cobra.Command { return nil }
