package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// exitStatus is what an exit code of a command means.
type exitStatus struct {
	code  int
	means string
}

// exitStatuses are those of each command, as --help and its man page list them.
// Commands that are not here end with 0, 1 for what could not be done, or
// exitUsage.
var exitStatuses = map[string][]exitStatus{
	"plegd run": {
		{0, "ended by SIGTERM or SIGINT"}, {1, "could not run"}, {exitRunUsage, "wrong flag or argument"},
	},
	"plegd check": {
		{exitHealthy, "healthy"}, {exitDegraded, "degraded, or starting with a reason"}, {exitUnhealthy, "unhealthy"}, {exitUnknown, "unknown"}, {exitUsage, "wrong flag or argument"},
	},
	"plegd status": {
		{exitHealthy, "healthy"}, {exitDegraded, "degraded, or starting with a reason"}, {exitUnhealthy, "unhealthy"}, {exitUnknown, "unknown, or no daemon runs"}, {exitUsage, "wrong flag or argument"},
	},
	"plegd incidents": {
		{0, "listed"}, {exitUnknown, "unknown ID; or no daemon runs and there is no state directory"}, {exitUsage, "wrong flag or argument"},
	},
	"plegd replay": {
		{0, "the same verdicts"}, {1, "different verdicts"}, {exitUnknown, "FILE is not an incident"}, {exitUsage, "wrong flag or argument"},
	},
}

// setExitHelp adds the exit codes that differ from the usual ones to the help of
// cmd and of the commands below it.
func setExitHelp(cmd *cobra.Command) {
	if statuses, ok := exitStatuses[cmd.CommandPath()]; ok {
		var parts []string
		for _, s := range statuses {
			parts = append(parts, fmt.Sprintf("  %d  %s", s.code, s.means))
		}
		cmd.Long += "\n\nExit status:\n" + strings.Join(parts, "\n")
	}
	for _, c := range cmd.Commands() {
		setExitHelp(c)
	}
}
