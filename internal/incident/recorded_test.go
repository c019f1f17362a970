package incident

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/must"
)

var update = flag.Bool("update", false, "write today's verdicts into the recorded incidents")

// recordedDir are the incidents that plegd recorded of real faults, a folder a
// reason: `make record-incidents`.
const recordedDir = "../health/testdata/incidents"

// TestRecordedIncidents: today's classifier gives the recorded verdicts for the faults
// of the matrix. After an intended change of a rule, run go test ./internal/incident
// -run TestRecordedIncidents -update, and review the diff.
func TestRecordedIncidents(t *testing.T) {
	n := 0
	err := filepath.WalkDir(recordedDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		reason := filepath.Base(filepath.Dir(path))
		t.Run(reason+"/"+d.Name(), func(t *testing.T) { replayRecorded(t, path, reason) })
		return nil
	})
	must.Do(t, err)
	if n == 0 {
		t.Errorf("no incidents in %s: make record-incidents", recordedDir)
	}
}

func replayRecorded(t *testing.T, path, reason string) {
	b, err := os.ReadFile(path)
	must.Do(t, err)
	one, err := Decode(b)
	must.Do(t, err)
	for i := range one.Timeline { // recorded before reasons had the time of their last evidence
		s := one.Timeline[i].Snapshot
		for n := range s.Previous.Active {
			if a := &s.Previous.Active[n]; a.Seen.IsZero() {
				a.Seen = s.At
			}
		}
	}
	different, judged := Replay(one)
	if judged != len(one.Timeline) || judged < 2 {
		t.Errorf("only %d of %d moments can be judged", judged, len(one.Timeline))
	}
	if *update {
		for _, d := range different {
			one.Timeline[d.Index].Snapshot.Verdict = *d.Judged
		}
		if len(different) > 0 {
			writeRecorded(t, path, one)
		}
	} else {
		for _, d := range different {
			t.Errorf("+%.3fs was %s %v, is %s %v", d.Offset, d.Recorded.Reason, ids(d.Recorded), d.Judged.Reason, ids(d.Judged))
		}
	}
	// Intermediate reasons may differ, but the fault's own reason is the primary one.
	if !slices.ContainsFunc(one.Timeline, func(m Moment) bool {
		return health.Judge(&m.Snapshot.Facts, m.Snapshot.At, m.Snapshot.Previous).Reason == reason
	}) {
		t.Errorf("%s is never the primary reason", reason)
	}
}

// writeRecorded writes a line a moment, as they are recorded.
func writeRecorded(t *testing.T, path string, one *Incident) {
	t.Helper()
	moments := one.Timeline
	one.Timeline = []Moment{}
	head, err := facts.Marshal(one)
	must.Do(t, err)
	lines := make([][]byte, len(moments))
	for i := range moments {
		if lines[i], err = facts.Marshal(moments[i]); err != nil {
			t.Fatal(err)
		}
	}
	text := slices.Concat(bytes.TrimSuffix(head, []byte("]}")), []byte("\n"), bytes.Join(lines, []byte(",\n")), []byte("\n]}\n"))
	must.Do(t, os.WriteFile(path, text, 0o644))
}

// FuzzDecode: any file is an incident or an error, its head and its whole agree, and it
// can be judged again.
func FuzzDecode(f *testing.F) {
	b, err := os.ReadFile("../../docs/api/incident.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema_version":2,"id":"20261121T030245Z-ffffff","timeline":[{"snapshot":{"at":"2026-11-21T03:02:45Z","facts":{},"previous":{"reason":"X","reasons":[{"id":"X"}]}}}]}`))
	f.Add([]byte(`{"schema_version":2,"id":"20261121T030245Z-ffffff","timeline":[{"snapshot":{"at":"2026-11-21T03:02:45Z","facts":{"relist":{"failures":1}},"previous":{"reason":"RelistSlow"}}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		one, err := Decode(b)
		if err != nil {
			return
		}
		Replay(one)
	})
}
