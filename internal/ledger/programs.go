package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// defaultOCI is the program that go-runc calls where the options of a shim name none (DefaultCommand).
	defaultOCI = "runc"
	// maxName and maxEnviron bound a path and an environment, in bytes.
	maxName    = 4 << 10
	maxEnviron = 1 << 20
)

// programs looks at the programs that the start of a pod needs. It returns the process that has one open for writing, or
// the one that cannot be started, nil where none is known, and a text about the one that was changed after the last start
// that did not fail, "" for none.
func (p *pass) programs(ctx context.Context) (culprit *facts.Link, changed string) {
	needed := p.needed(ctx)
	writer := p.writer(ctx, needed)
	if writer != nil {
		return writer, ""
	}
	for _, file := range slices.Sorted(maps.Keys(needed)) {
		program := needed[file]
		if program.Defect != "" {
			return &facts.Link{
				Kind: facts.KindFile, Name: file, State: facts.LinkFailing, Fingerprint: facts.FingerprintWord(path.Base(file)),
				Evidence: file + " " + program.Defect + ", and starts of pods need it",
			}, ""
		}
		if p.isChanged(program) {
			changed = fmt.Sprintf("; %s was changed at %s, after the last start that did not fail", file, program.Changed.UTC().Format(clock))
		}
	}
	return nil, changed
}

// needed returns the programs that the start of a pod needs, by their paths: what the newest shim was started from, the OCI
// runtime that it calls, and the network plugins where starts do not get past these.
func (p *pass) needed(ctx context.Context) map[string]proc.Program {
	out := map[string]proc.Program{}
	newestFirst := slices.SortedFunc(maps.Values(p.shims), func(a, b proc.Process) int {
		return cmp.Or(cmp.Compare(b.Start, a.Start), cmp.Compare(b.PID, a.PID))
	})
	for _, shim := range newestFirst {
		exe, err := proc.Link(proc.Path(p.Table.ProcFS, shim.PID, "exe"))
		p.unread.Add(programsOfStarts, err)
		if err != nil || strings.HasPrefix(exe, "/memfd:") { // it has ended, or runs no file
			continue
		}
		args := p.Table.Args(shim.ID())
		// A runtime that has been started since may look elsewhere.
		isCurrent := shim.Start >= p.started.runtime.Start
		for _, name := range []string{proc.WithoutDeleted(exe), startedFrom(args), p.ociOf(shim, args, exe)} {
			file, program := p.find(ctx, name, isCurrent)
			out[file] = program
		}
		break
	}
	if !p.started.areOfNetwork() {
		return out
	}
	plugins, err := p.NetworkPlugins(ctx)
	p.unread.Add(programsOfStarts, err)
	for _, places := range plugins {
		file, program := p.firstOf(ctx, places)
		out[file] = program
	}
	return out
}

// writer returns the process that has one of the programs open for writing, nil for none. It is looked for again after
// idleLimit.
func (p *pass) writer(ctx context.Context, needed map[string]proc.Program) *facts.Link {
	s := &p.started
	if !p.moment.Before(s.writerDue) {
		s.writerDue = p.moment.Add(idleLimit)
		pid, file, err := p.Table.Writer(ctx, needed)
		p.unread.Add(writersOfPrograms, err)
		s.written = file
		s.writer, _ = p.Table.Alive(pid)
	}
	process, err := p.Table.Alive(s.writer.PID)
	if err != nil || process.ID() != s.writer.ID() {
		return nil
	}
	link := &facts.Link{
		Kind: facts.KindProcess, Name: process.Comm, PID: process.PID, State: facts.LinkBusy,
		Evidence: fmt.Sprintf("has %s open for writing, so that nobody can start it (text file busy)", s.written),
	}
	if process.State == 'T' {
		link.State = facts.LinkStopped
	}
	return link
}

// isChanged reports whether a program was changed between the newest entry that is listed and the first failed start.
func (p *pass) isChanged(program proc.Program) bool {
	newest := int64(0)
	for _, entry := range p.lastListed {
		newest = max(newest, entry.CreatedAt)
	}
	return newest > 0 && program.Changed.After(time.Unix(0, newest)) && program.Changed.Before(p.started.since)
}

// startedFrom returns the path by which a process was started, "" where its arguments show none: it may lead to its
// executable by a link.
func startedFrom(args []string) string {
	if len(args) == 0 || !path.IsAbs(args[0]) {
		return ""
	}
	return args[0]
}

// ociOf returns the OCI runtime that a shim calls, as a path or as a name for PATH; "" where it is not known. A shim of
// containerd keeps the name in its working directory, a conmon has it among its arguments.
func (p *pass) ociOf(shim proc.Process, args []string, exe string) string {
	if !strings.HasPrefix(shim.Comm, "containerd-shim") {
		return cmp.Or(proc.ArgValue(args, "r"), proc.ArgValue(args, "runtime"))
	}
	b, err := p.Table.ReadSlow(proc.Path(p.Table.ProcFS, shim.PID, "cwd/runtime"), maxName)
	p.unread.Add(programsOfStarts, err)
	name := strings.TrimSpace(string(b))
	hasDefault := err == nil && strings.HasPrefix(path.Base(exe), "containerd-shim-runc-")
	if name == "" && hasDefault {
		return defaultOCI
	}
	return name
}

// find returns the file of a program and what it shows, none where that is not known.
func (p *pass) find(ctx context.Context, name string, isCurrent bool) (file string, found proc.Program) {
	file, found = p.firstOf(ctx, p.placesOf(name, isCurrent))
	if found.Defect == proc.NotThere && !path.IsAbs(name) {
		return name, proc.Program{Defect: "is in no directory of the runtime's PATH"}
	}
	return file, found
}

// firstOf returns the first of some paths at which a program can be started, or else what is wrong with the first that is
// there; none where that is not known.
func (p *pass) firstOf(ctx context.Context, places []string) (file string, found proc.Program) {
	for _, place := range places {
		program, err := p.Table.Program(ctx, p.started.runtime.PID, place)
		p.unread.Add(programsOfStarts, err)
		if err != nil {
			return "", proc.Program{}
		}
		if !program.IsSkipped {
			return place, program
		}
		if file == "" || found.Defect == proc.NotThere {
			file = place
			found = program
		}
	}
	return file, found
}

// placesOf returns the paths at which a program is looked for: a name in PATH; a path there, too, unless isCurrent says that
// the runtime has started it from there. It is nil where they are not known.
func (p *pass) placesOf(name string, isCurrent bool) (places []string) {
	if path.IsAbs(name) {
		places = []string{name}
	}
	if name == "" || isCurrent && places != nil {
		return places
	}
	dirs := p.searchedDirs()
	if dirs == nil {
		return nil
	}
	for _, dir := range dirs {
		places = append(places, path.Join(dir, path.Base(name)))
	}
	return places
}

// searchedDirs are where the runtime looks for programs: in PATH, and beside its own; nil where that is not known.
func (p *pass) searchedDirs() []string {
	runtime := p.started.runtime.PID
	environ, err := p.Table.ReadSlow(proc.Path(p.Table.ProcFS, runtime, "environ"), maxEnviron)
	p.unread.Add(programsOfStarts, err)
	exe, invalid := proc.Link(proc.Path(p.Table.ProcFS, runtime, "exe"))
	p.unread.Add(programsOfStarts, invalid)
	dirs := filepath.SplitList(proc.Variable(environ, "PATH"))
	if err != nil || invalid != nil || len(dirs) == 0 {
		return nil
	}
	return slices.DeleteFunc(append(dirs, path.Dir(exe)), func(dir string) bool { return !path.IsAbs(dir) })
}
