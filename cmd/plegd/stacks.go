package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/stacks"
	"github.com/plegd/plegd/internal/view"
)

// Exit codes of stacks.
const (
	exitNoDump  = 1
	exitNotDump = 3
)

// stacksCommand is one run of plegd stacks.
type stacksCommand struct {
	cfg    daemon.Config
	client server.Client
	file   string
	signal bool
	yes    bool
	output *string
}

// stacksDocument is what stacks -o json prints.
type stacksDocument struct {
	Dumps []stacksDump `json:"dumps"`
	// Missing are the processes without a dump, and why.
	Missing []string `json:"missing"`
}

type stacksDump struct {
	Program string         `json:"program,omitempty"`
	PID     int            `json:"pid,omitempty"`
	Source  string         `json:"source"`
	Time    time.Time      `json:"time,omitzero"`
	Report  *stacks.Report `json:"report"`
}

func newStacksCommand() *cobra.Command {
	c := &stacksCommand{cfg: daemon.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "stacks",
		Short: "Show which request waits for whose lock inside the runtime",
		Long: `Reads the goroutine dump of the runtime, and of dockerd and its containerd
behind cri-dockerd. CRI-O and dockerd serve one; containerd serves one if it has a
debug socket. Otherwise the file that an earlier SIGUSR1 left is read.

A lock's holder is named only where the dump proves it.

--signal sends SIGUSR1 to the runtime, after a question, and reads the file that it
writes. The runtime continues to run. Only containerd, crio and dockerd get it, and
only if they run as root and handle the signal.

Exit status: 0 analysed, 1 no dump to be had, 3 not a dump, 4 wrong flag or argument`,
		Example: `  sudo plegd stacks
  sudo plegd stacks --signal
  plegd stacks --file containerd.812.stacks.log -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	cmd.Flags().StringVar(&c.file, "file", "", "dump to read, - for the standard input; empty: ask the runtime")
	cmd.Flags().BoolVar(&c.signal, "signal", false, "have the runtime write a dump: send it SIGUSR1")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "answer the question of --signal with yes")
	c.output = outputFlag(cmd, "text", "json")
	socketFlag(cmd, &c.client.Socket, "find the runtime without a daemon")
	watchFlags(cmd.Flags(), &c.cfg)
	return cmd
}

func (c *stacksCommand) validate(cmd *cobra.Command) error {
	c.cfg.Given = cmd.Flags().Changed
	if c.signal && c.file != "" {
		return errors.New("--signal: --file names the dump to read: give one of them")
	}
	if c.yes && !c.signal {
		return errors.New("--yes: only --signal asks a question")
	}
	return c.cfg.Validate()
}

func (c *stacksCommand) run(cmd *cobra.Command) error {
	if err := c.validate(cmd); err != nil {
		return usage(err)
	}
	var found []*stacks.Found
	doc := stacksDocument{Dumps: []stacksDump{}, Missing: []string{}}
	if c.file != "" {
		one, err := readDumpFile(cmd.InOrStdin(), c.file)
		if err != nil {
			return exit(exitNoDump, err)
		}
		found = append(found, one)
	} else {
		var err error
		found, err = c.ask(cmd, &doc)
		if err != nil {
			return exit(exitNoDump, err)
		}
	}
	for _, one := range found {
		report, err := one.Report()
		if err != nil {
			return exit(exitNotDump, fmt.Errorf("%s: %w", one.Source, err))
		}
		doc.Dumps = append(doc.Dumps, stacksDump{
			Program: one.Program, PID: one.PID, Source: plain.Text(one.Source), Time: one.Time.UTC(), Report: report,
		})
	}
	if *c.output == "json" {
		return view.WriteJSON(cmd.OutOrStdout(), doc)
	}
	return doc.writeText(cmd.OutOrStdout())
}

// ask gets the dumps of the runtime and of the processes behind it. The error is that there
// is none.
func (c *stacksCommand) ask(cmd *cobra.Command, doc *stacksDocument) ([]*stacks.Found, error) {
	ctx := cmd.Context()
	limited, cancel := context.WithTimeout(ctx, bundleDiagnosis)
	defer cancel()
	d, err := diagnose(limited, c.client, c.cfg)
	if err != nil {
		return nil, err
	}
	reader := &stacks.Reader{Table: proc.NewTable(c.cfg.ProcFS)}
	input := bufio.NewReader(cmd.InOrStdin())
	var found []*stacks.Found
	hint := ""
	for _, target := range stacks.Targets(&d.Facts) {
		var one *stacks.Found
		if c.signal {
			one, err = c.sendSignal(ctx, reader, target, input, cmd.ErrOrStderr())
		} else {
			one, err = reader.Read(ctx, target)
		}
		if err != nil {
			doc.Missing = append(doc.Missing, plain.Text(err.Error()))
			hint = cmp.Or(hint, c.signalHint(ctx, reader, target.PID))
			continue
		}
		found = append(found, one)
	}
	if len(found) > 0 {
		return found, nil
	}
	if len(doc.Missing) == 0 {
		return nil, fmt.Errorf("%w: no process is known at the runtime's socket %q (run as root on the node, or give "+
			"--runtime-endpoint)", stacks.ErrNone, d.Facts.Endpoint.Path)
	}
	return nil, fmt.Errorf("%s%s", strings.Join(doc.Missing, "; "), hint)
}

// signalHint offers --signal for a process that would get the signal; "" for any other.
func (c *stacksCommand) signalHint(ctx context.Context, reader *stacks.Reader, pid int) string {
	_, err := reader.Describe(ctx, pid)
	if c.signal || err != nil {
		return ""
	}
	return " (--signal has the runtime write one)"
}

// sendSignal has a runtime write its dump, after a question.
func (c *stacksCommand) sendSignal(ctx context.Context, reader *stacks.Reader, target stacks.Target, input *bufio.Reader, stderr io.Writer) (*stacks.Found, error) {
	program, err := reader.Describe(ctx, target.PID)
	if err != nil {
		return nil, err
	}
	if !c.yes && !confirmed(program, target.PID, input, stderr) {
		return nil, fmt.Errorf("%s, pid %d, got no signal: the answer was not yes", program, target.PID)
	}
	return reader.Signal(ctx, target.PID)
}

// confirmed asks whether a runtime may get a signal.
func confirmed(program string, pid int, input *bufio.Reader, stderr io.Writer) bool {
	_, _ = fmt.Fprintf(stderr, "Send SIGUSR1 to %s, pid %d? It writes its goroutines to a file and continues to run. [y/N] ",
		program, pid)
	answer, _ := input.ReadString('\n') // no answer is a no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// readDumpFile reads a dump that a person names.
func readDumpFile(stdin io.Reader, path string) (*stacks.Found, error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, stacks.MaxBytes+1))
		return &stacks.Found{Source: "the standard input", Text: text}, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, stacks.MaxBytes+1))
	return &stacks.Found{Source: path, Time: info.ModTime(), Text: text}, err
}

// age describes when an old dump was made.
func (d *stacksDump) age() string {
	const recent = time.Minute
	age := time.Since(d.Time)
	if d.Time.IsZero() || age < recent {
		return ""
	}
	return fmt.Sprintf(", made %s ago", age.Round(time.Second))
}

func (d *stacksDocument) writeText(w io.Writer) error {
	for i, dump := range d.Dumps {
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		if dump.PID != 0 {
			_, _ = fmt.Fprintf(w, "%s, pid %d: ", dump.Program, dump.PID)
		}
		_, _ = fmt.Fprintf(w, "%s%s\n", dump.Source, dump.age())
		if err := dump.Report.WriteText(w); err != nil {
			return err
		}
	}
	for _, missing := range d.Missing {
		_, _ = fmt.Fprintf(w, "\nwithout %s\n", missing)
	}
	return nil
}
