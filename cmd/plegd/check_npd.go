package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/server"
)

// node-problem-detector's protocol for a custom plugin: exit codes, the longest
// message, and a time that is inside its usual timeout of 5 s.
const (
	npdOK       = 0
	npdProblem  = 1
	npdUnknown  = 2
	npdMaxBytes = 80
	npdTimeout  = 3500 * time.Millisecond
)

// What -o npd calls a problem, beside the ID of a reason.
const (
	npdAny       = "any"       // everything that is not healthy
	npdUnhealthy = "unhealthy" // the kubelet no longer manages pods
	npdCritical  = "critical"  // a critical reason of the runtime or the node
)

// cutMark ends a line that was too long: half a number must not pass for a
// whole one.
const cutMark = "..."

// notTheRuntime are critical reasons of which the container runtime is not the
// cause: replacing or restarting it would be wrong.
var notTheRuntime = []string{health.KubeletStalled, health.KubeletDown, health.RelistLoopStalled}

func npdProblems() []string {
	out := []string{npdAny, npdUnhealthy, npdCritical}
	for _, r := range health.Reasons() {
		out = append(out, r.ID)
	}
	return out
}

func isReason(problem string) bool {
	return problem != npdAny && problem != npdUnhealthy && problem != npdCritical
}

func validNPDProblem(problem, output string) error {
	if !slices.Contains(npdProblems(), problem) {
		return fmt.Errorf("--npd-problem: %q: want any, unhealthy, critical or the ID of a reason (plegd reasons)", problem)
	}
	if problem != npdAny && output != "npd" {
		return fmt.Errorf("--npd-problem: %q: only -o npd has it", problem)
	}
	return nil
}

// npdCode is the exit code of a diagnosis for what is called a problem.
func npdCode(d *health.Snapshot, problem string) int {
	code := exitCode(d)
	var found bool
	switch problem {
	case npdAny:
		found = code == exitDegraded || code == exitUnhealthy
	case npdUnhealthy:
		found = code == exitUnhealthy
	case npdCritical:
		found = slices.ContainsFunc(d.Active, func(r health.Active) bool {
			return r.Severity == health.SeverityCritical && !slices.Contains(notTheRuntime, r.ID)
		})
	}
	switch {
	case found:
		return npdProblem
	case code == exitUnknown:
		return npdUnknown
	}
	return npdOK
}

// printNPD prints at most 80 bytes, as node-problem-detector keeps of them.
func printNPD(w io.Writer, d *health.Snapshot, problem string) (int, error) {
	line := oneLine(d)
	_, err := fmt.Fprintln(w, cutNPD(line+details(d, npdMaxBytes-len(line))))
	return npdCode(d, problem), err
}

func cutNPD(line string) string {
	if len(line) <= npdMaxBytes {
		return line
	}
	for len(line) > npdMaxBytes-len(cutMark) {
		_, size := utf8.DecodeLastRuneInString(line)
		line = line[:len(line)-size]
	}
	return line + cutMark
}

// checkReason answers for an event of node-problem-detector, which is made each time that the
// exit code is not 0, 2 included: without a daemon nothing is known, and there is no event. No
// diagnosis is made instead: dozens of these run one after another.
func checkReason(ctx context.Context, w io.Writer, socket, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(timeout, npdTimeout))
	defer cancel()
	d, err := server.FetchStatus(ctx, socket)
	if err != nil {
		_, err = fmt.Fprintln(w, cutNPD(printable("plegd does not answer: "+err.Error())))
		return err
	}
	i := slices.IndexFunc(d.Active, func(r health.Active) bool { return r.ID == id })
	if i < 0 {
		_, err = fmt.Fprintln(w, "not "+id)
		return err
	}
	line := id
	if id == d.Reason {
		line += details(d, npdMaxBytes-len(line))
	} else if evidence := d.Active[i].Evidence; len(evidence) > 0 {
		line += ": " + evidence[0]
	}
	if _, err := fmt.Fprintln(w, cutNPD(printable(line))); err != nil {
		return err
	}
	return exit(npdProblem)
}
