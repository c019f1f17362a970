//go:build e2e

package faults

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// faults is the table, in the order of docs/results/faults.md.
var faults = slices.Concat(socketFaults, processFaults, callFaults, pluginFaults, podFaults, unnoticedFaults, startFaults, slowFaults, volumeFaults, dockerFaults, storageFaults, takeOvers, twoFaults)

// TestFaults makes the faults of the table, each on a runtime of its own; as many at
// once as LANES says, by go test's -parallel.
func TestFaults(t *testing.T) {
	runs, lanes := lab.Number(t, "RUNS", 1), lab.Number(t, "LANES", 1)
	order := make([]int, len(faults))
	for i := range faults {
		faults[i].complete()
		order[i] = i
	}
	if lanes > 1 { // the longest first
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(faults[b].length(), faults[a].length()) })
	}
	for _, i := range order {
		f := &faults[i]
		if why := f.leftOut(t); why != "" {
			skipped[f.name] = why
			continue
		}
		t.Run(f.test(), func(t *testing.T) {
			if lanes > 1 {
				t.Parallel()
			}
			f.tookNothing(t, i)
			b := newBench(t, f)
			for n := range runs {
				if n > 0 && f.fresh {
					b = newBench(t, f)
				}
				f.took(i, b.run(f))
			}
		})
	}
}

// result is what one run showed. A time below 0 never came.
type result struct {
	named, back time.Duration
	wrong       string
}

// run makes the fault once.
func (b *bench) run(f *fault) (r result) {
	b.t.Helper()
	b.watch(f)
	first := b.plegd.Log.Len()
	w := lab.NewWatch(b.t, b.plegd)
	defer w.End()
	well := time.Now()
	b.plegd.AwaitRelists(time.Minute, 3) // the sources have looked, and no list hung
	time.Sleep(rand.N(f.phase))          // the moment is none in particular

	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if ids := f.unexpected(w.Sights(well), nil); ids != "" {
		complain("before the fault: %s", ids)
	}
	b.injected = time.Now()
	began := b.injected
	end, once := f.make(b), sync.Once{}
	undo := func() { once.Do(end) } // under sync.OnceFunc t.FailNow would panic
	defer undo()
	named, ok := w.Find(b.injected, f.limit, func(s lab.Sight) bool { return s.Reason == f.want })
	r.named = -1
	if ok {
		r.named = named.At.Sub(b.injected)
		wrong = append(wrong, f.compare(b, w)...)
		time.Sleep(max(cmp.Or(f.hold, time.Second+rand.N(3*time.Second)), time.Duration(lab.Number(b.t, "HOLD", 0))*time.Second))
	} else {
		complain("never named %s", f.want)
	}

	mending := time.Now()
	undo()
	fixed := time.Now()
	var err error
	if r.back, err = w.Calm(fixed, f.back, calm); err != nil {
		r.back = -1
		complain("%v", err)
	}
	all := w.Sights(began)
	i := slices.IndexFunc(all, func(s lab.Sight) bool { return s.At.After(mending) })
	if i < 0 {
		i = len(all)
	}
	allowed := append([]string{f.want}, f.onTheWay...)
	if ids := f.unexpected(all[:i], allowed); ids != "" {
		complain("on the way: %s", ids)
	}
	if ids := f.unexpected(all[i:], append(allowed, f.onTheWayBack...)); ids != "" {
		complain("on the way back: %s", ids)
	}
	if n := f.changes(all[:i], b.injected.Add(settling)); n > 1 {
		complain("the primary reason changed %d times later than %s after the fault was made", n, settling)
	}
	wrong = append(wrong, loud(b.plegd.Log.Since(first))...)
	r.wrong = strings.Join(wrong, "; ")
	b.t.Logf("%s: named after %s, healthy after %s: %s", f.name, seconds(r.named), seconds(r.back), lab.Story(all, began))
	if r.wrong == "" {
		b.record(f, began)
	} else {
		b.t.Errorf("%s: %s", f.name, r.wrong)
		for _, l := range b.plegd.Log.Since(first) {
			b.t.Log(l.Text)
		}
	}
	if f.restarts || f.fresh || r.wrong != "" {
		b.unwatch()
	}
	return r
}

// settling is how long the primary reason of a constant fault may change more than once: the
// symptom, the first link, the culprit.
const settling = 10 * time.Second

// changes counts how often the primary reason changes after a moment, beside a machine that is short of CPU.
func (f *fault) changes(sights []lab.Sight, from time.Time) (n int) {
	last := f.want
	for _, s := range sights {
		if s.Busy && s.Reason == health.NodePressure {
			continue
		}
		if s.Reason != last && s.At.After(from) {
			n++
		}
		last = s.Reason
	}
	return n
}

// unexpected are the primary reasons that are not allowed. A machine that is short of
// CPU says so, and is right.
func (f *fault) unexpected(sights []lab.Sight, allowed []string) string {
	var ids []string
	for _, s := range sights {
		if s.Reason != "" && !slices.Contains(allowed, s.Reason) && (!s.Busy || s.Reason != health.NodePressure) {
			ids = append(ids, s.Reason)
		}
	}
	return strings.Join(slices.Compact(ids), ", ")
}

// loud returns what the log repeats: the same verdict twice in a row, or an error more
// than three times.
func loud(lines []lab.Line) (wrong []string) {
	last, times := "", map[string]int{}
	for _, l := range lines {
		text := l.Message() + " " + l.String("state") + " " + l.String("reason")
		switch {
		case l.Fields == nil:
			wrong = append(wrong, "a line of the log is not JSON: "+l.Text)
		case l.Message() == "verdict changed" && text == last:
			wrong = append(wrong, "logged twice: "+text)
		case l.Message() == "verdict changed":
			last = text
		case l.Level() == "warn" || l.Level() == "error":
			if times[text]++; times[text] == 4 {
				wrong = append(wrong, "logged four times: "+text)
			}
		}
	}
	return wrong
}

// compare looks at the evidence and the cause, until they are as the row has them.
func (f *fault) compare(b *bench, w *lab.Watch) (wrong []string) {
	for _, id := range f.also {
		if _, ok := w.Find(b.injected, 12*time.Second, func(s lab.Sight) bool { return s.Reason == f.want && s.Active(id) }); !ok {
			wrong = append(wrong, id+" never active beside it")
		}
	}
	if f.evidence != nil {
		want, last := f.evidence(b), ""
		if _, ok := w.Find(b.injected, f.limit+5*time.Second, func(s lab.Sight) bool {
			if s.Reason == f.want && s.Evidence() != "" {
				last = s.Evidence()
			}
			return s.Reason == f.want && strings.Contains(s.Evidence(), want)
		}); !ok {
			wrong = append(wrong, fmt.Sprintf("the evidence is %q, without %q", last, want))
		}
	}
	if f.culprit != nil || f.next != nil {
		last := ""
		for time.Since(b.injected) < f.limit+10*time.Second {
			s, err := b.verdict()
			b.must(err)
			if last = f.explained(b, &s); last == "" {
				b.t.Logf("explained after %s: %s", seconds(time.Since(b.injected)), cause(&s))
				return wrong
			}
			time.Sleep(100 * time.Millisecond)
		}
		wrong = append(wrong, last)
	}
	return wrong
}

// explained returns the first difference between the cause and the row, "" for none.
func (f *fault) explained(b *bench, s *facts.Snapshot) string {
	switch {
	case s.Reason != f.want:
		return "the reason is " + s.Reason
	case f.symptom != "" && s.Symptom != f.symptom:
		return fmt.Sprintf("the symptom is %q: %s", s.Symptom, cause(s))
	case f.next != nil && !strings.Contains(s.Next, f.next(b)):
		return fmt.Sprintf("the next step has no %q: %s", f.next(b), cause(s))
	case f.culprit != nil:
		if want := f.culprit(b); s.Culprit == nil || !isLike(s.Culprit, &want) {
			return fmt.Sprintf("the culprit is not %+v: %s", want, cause(s))
		}
	}
	return ""
}

// cause prints the chain of a verdict.
func cause(s *facts.Snapshot) string {
	text := s.Reason + " behind " + s.Symptom
	for _, l := range s.Chain {
		text += fmt.Sprintf("\n  %s %s (pid %d) %s: %s", l.Kind, l.Name, l.PID, l.State, l.Evidence)
	}
	return text + "\n  " + s.ChainEnd + "\n  " + s.Next
}

func isLike(got, want *facts.Link) bool {
	return got.Kind == want.Kind && (want.PID == 0 || got.PID == want.PID) && (want.State == "" || got.State == want.State) &&
		strings.Contains(got.Name, want.Name)
}

// test is the name of the fault's test: a comma in a path is no path to an overlay.
func (f *fault) test() string { return strings.NewReplacer(",", "", "/", " ").Replace(f.name) }

// leftOut is why the fault is not made in this run, "" when it is. CASES is a regular
// expression for names; "book" are the public incidents.
func (f *fault) leftOut(t *testing.T) string {
	simulated, column, cases := f.simulate != nil, runtime.Column(), os.Getenv("CASES")
	switch on := func(s string) bool { return strings.HasPrefix(column, s) }; {
	case cases == "book" && f.incident == "":
		return "no public incident"
	case cases != "book" && !regexp.MustCompile(cases).MatchString(f.name):
		return "not asked for"
	case runtime.Given() && simulated != runtime.StandInsOnly():
		return "of another column"
	case !simulated && f.on != nil && !slices.ContainsFunc(f.on, on):
		return "only on " + strings.Join(f.on, ", ")
	}
	return ""
}

// length is how long a run takes, about.
func (f *fault) length() time.Duration { return f.limit + f.back }

// complete fills in what a row leaves out.
func (f *fault) complete() {
	f.limit, f.back, f.phase = cmp.Or(f.limit, 2*f.goal), cmp.Or(f.back, 8*time.Second), cmp.Or(f.phase, time.Second)
}

// needContainerd skips a test that is about shims.
func needContainerd(t *testing.T) {
	t.Helper()
	if !strings.HasPrefix(runtime.Column(), "containerd") || runtime.StandInsOnly() {
		t.Skip("SKIPPED: only containerd has shims")
	}
}

// recordEnv names a folder for the incidents that plegd recorded of the faults,
// one a fault, in a folder of its reason: `make record-incidents`.
const recordEnv = "PLEGD_RECORD_INCIDENTS"

// record keeps the incident of a run without a mistake, and removes this machine's paths
// and names from it. A later run of the same fault replaces it.
func (b *bench) record(f *fault, began time.Time) {
	b.t.Helper()
	root := os.Getenv(recordEnv)
	if root == "" {
		return
	}
	one, err := b.incidentOf(f, began)
	if err != nil {
		// On a busy machine its own load continues in the same incident.
		b.t.Logf("%s: not kept: %v", f.name, err)
		return
	}
	one.PlegdVersion = "recorded"
	text, err := facts.Marshal(one)
	b.must(err)
	for from, to := range map[string]string{b.socket: "/run/containerd/containerd.sock", filepath.Dir(b.socket): "/run/containerd"} {
		text = bytes.ReplaceAll(text, []byte(from), []byte(to))
	}
	path := filepath.Join(root, f.want, slug(f.name)+".json")
	b.must(os.MkdirAll(filepath.Dir(path), 0o755))
	b.must(os.WriteFile(path, text, 0o644))
}

// incidentOf returns the incident of a fault that was made at a moment or later, once it is over.
func (b *bench) incidentOf(f *fault, began time.Time) (*incident.Incident, error) {
	dir := incident.Dir(b.plegd.StateDir)
	list, _, err := incident.Read(dir)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(s incident.Summary) bool {
		return s.Outcome == incident.Recovered && s.Closed.After(began) &&
			slices.ContainsFunc(s.Reasons, func(r incident.ReasonTimes) bool { return r.ID == f.want })
	})
	if i < 0 {
		return nil, fmt.Errorf("no incident of it has ended: %+v", list)
	}
	return incident.ReadOne(dir, list[i].ID)
}

var notInFiles = regexp.MustCompile(`[^A-Za-z0-9]`)

// slug is a fault's name as a file's.
func slug(name string) string {
	return strings.Trim(notInFiles.ReplaceAllString(strings.ReplaceAll(name, ",", ""), "-"), "-")
}
