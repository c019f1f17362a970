// Package reasons holds the runbook of each reason as the page that people read:
// one Markdown file per reason. internal/health parses them by heading.
package reasons

import "embed"

// Pages are the pages, by ID.md; README.md is the index.
//
//go:embed *.md
var Pages embed.FS
