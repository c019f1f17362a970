//go:build gendocs

package main

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	withoutExitHelp(root) // a section of its own has it
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
		if err := addSections(page, root); err != nil {
			return err
		}
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

// withoutExitHelp removes what setExitHelp has added.
func withoutExitHelp(cmd *cobra.Command) {
	cmd.Long, _, _ = strings.Cut(cmd.Long, "\n\nExit status:")
	for _, c := range cmd.Commands() {
		withoutExitHelp(c)
	}
}

// manFiles are the files that plegd reads and writes.
var manFiles = [][2]string{
	{"/run/plegd/plegd.sock", "the daemon's control socket, mode 0600 (--control-socket)"},
	{"/var/lib/plegd", "what must survive a restart of plegd: when the runtime was last seen, and the incidents (--state-dir)"},
	{"/etc/default/plegd", "environment variables of the systemd unit"},
	{"/lib/systemd/system/plegd.service", "the systemd unit"},
}

// manEnvironment are the variables that are no flag's.
var manEnvironment = [][2]string{
	{"PLEGD_*", "every flag: PLEGD_ and its name in capitals with _ for - and . (--relist-period is PLEGD_RELIST_PERIOD); the flag wins"},
	{"NO_COLOR", "no colours on a terminal where it is set"},
	{"STATE_DIRECTORY", "set by systemd: the default of --state-dir"},
	{"GOMEMLIMIT", "the Go runtime's memory limit, instead of plegd's own"},
}

// addSections writes EXIT STATUS, FILES and ENVIRONMENT into a man page, before
// SEE ALSO.
func addSections(page string, root *cobra.Command) error {
	name := strings.TrimSuffix(filepath.Base(page), ".8")
	cmd, _, err := root.Find(strings.Split(name, "-")[1:])
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	var s strings.Builder
	s.WriteString(".SH EXIT STATUS\n")
	for _, e := range statusesOf(cmd) {
		fmt.Fprintf(&s, ".TP\n\\fB%d\\fP\n%s\n", e.code, e.means)
	}
	list := func(head string, rows [][2]string) {
		fmt.Fprintf(&s, ".SH %s\n", head)
		for _, r := range rows {
			fmt.Fprintf(&s, ".TP\n\\fB%s\\fP\n%s\n", strings.ReplaceAll(r[0], "-", `\-`), strings.ReplaceAll(r[1], "-", `\-`))
		}
	}
	list("FILES", manFiles)
	list("ENVIRONMENT", manEnvironment)
	text := strings.Replace(string(b), ".SH EXAMPLE\n", ".SH EXAMPLES\n", 1)
	if at := strings.Index(text, ".SH SEE ALSO"); at >= 0 {
		text = text[:at] + s.String() + text[at:]
	} else {
		text += s.String()
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// statusesOf are the exit codes of a command.
func statusesOf(cmd *cobra.Command) []exitStatus {
	if s, ok := exitStatuses[cmd.CommandPath()]; ok {
		return s
	}
	return []exitStatus{{0, "done"}, {1, "could not be done"}, {exitUsage, "wrong flag or argument"}}
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
