//go:build gendocs

package main

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// buildTimeCommands are what packages are built with. They exist with the build
// tag gendocs only, so that the plegd that is shipped carries no generator:
//
//	go run -tags gendocs ./cmd/plegd gendocs DIR
func buildTimeCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:    "gendocs DIR",
		Short:  "Write the man pages and the shell completions below DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return generateDocs(args[0]) },
	}}
}

// generateDocs writes man8/*.8.gz and completions/{bash,zsh,fish}. The same
// SOURCE_DATE_EPOCH gives the same bytes.
func generateDocs(dir string) error {
	date, err := sourceDate()
	if err != nil {
		return err
	}
	man, completions := filepath.Join(dir, "man8"), filepath.Join(dir, "completions")
	for _, d := range []string{man, completions} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	root := newRootCommand()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{
		Section: "8", Date: &date, Source: "plegd " + version.Version, Manual: "System administration",
	}, man); err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	pages, err := filepath.Glob(filepath.Join(man, "*.8"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		if err := compress(page); err != nil {
			return err
		}
	}
	for name, write := range map[string]func(string) error{
		"bash": func(path string) error { return root.GenBashCompletionFileV2(path, true) },
		"zsh":  root.GenZshCompletionFile,
		"fish": func(path string) error { return root.GenFishCompletionFile(path, true) },
	} {
		if err := write(filepath.Join(completions, name)); err != nil {
			return fmt.Errorf("write the completion for %s: %w", name, err)
		}
	}
	return nil
}

// sourceDate is the moment that the pages bear: SOURCE_DATE_EPOCH, which the
// packages' Makefile target sets to the commit's.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q: want seconds since 1970, as in $(git log -1 --format=%%ct)", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// compress replaces a file by its gzip, without name and time in it.
func compress(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := os.Create(path + ".gz")
	if err != nil {
		return err
	}
	w, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Remove(path)
}
