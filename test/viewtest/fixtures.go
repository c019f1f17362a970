// Package viewtest has snapshots and an incident for the tests of the packages
// that show them. The snapshots are files: the facts, and the verdict before them.
package viewtest

import (
	"embed"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/must"
)

// T0 is the moment of every snapshot.
var T0 = time.Date(2026, 11, 21, 3, 4, 5, 250_000_000, time.UTC)

// Ago returns the moment d before T0.
func Ago(d time.Duration) time.Time { return T0.Add(-d) }

// Clock returns T0.
func Clock() time.Time { return T0 }

//go:embed testdata/*.json
var files embed.FS

// load returns the snapshot of a file, each further one of which is a difference to the
// ones before, with the verdict on its facts.
func load(names ...string) (s facts.Snapshot) {
	for _, name := range names {
		b, err := files.ReadFile("testdata/" + name + ".json")
		if err != nil {
			panic(err)
		}
		if err := s.UnmarshalJSON(b); err != nil {
			panic(name + ": " + err.Error())
		}
	}
	s.Verdict, s.Previous = *health.Judge(&s.Facts, s.At, s.Previous), nil
	return s
}

// Starting is a daemon that has just started and has found no runtime.
func Starting() facts.Snapshot { return load("starting") }

// Healthy is a quiet node.
func Healthy() facts.Snapshot { return load("healthy") }

// Degraded is a node on which a pod cannot be inspected.
func Degraded() facts.Snapshot { return load("healthy", "degraded") }

// Unhealthy is a node whose runtime has hung for longer than the threshold.
func Unhealthy() facts.Snapshot { return load("healthy", "unhealthy") }

// Stalled is a node whose list of containers waits for a stopped shim, before the kubelet stops managing pods.
func Stalled() facts.Snapshot { return load("healthy", "stalled") }

// Filled is a snapshot in which every text is the same, and every list and map has one
// entry. All times are a minute ago.
func Filled(text string) (s facts.Snapshot) {
	fill(reflect.ValueOf(&s).Elem(), text)
	s.SchemaVersion, s.At = facts.SchemaVersion, T0
	return s
}

func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(Ago(time.Minute)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case reflect.Map:
		one := reflect.New(v.Type().Elem()).Elem()
		fill(one, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), one)
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	}
}

// Source answers with a snapshot.
type Source struct {
	// List are the incidents.
	List []incident.Summary
	snap facts.Snapshot
}

// NewSource returns a source of s.
func NewSource(s facts.Snapshot) *Source { return &Source{snap: s} }

// Snapshot returns the snapshot, as of now.
func (f *Source) Snapshot(now time.Time) facts.Snapshot {
	s := f.snap
	s.At = now
	return s
}

// Incidents returns List.
func (f *Source) Incidents() []incident.Summary { return f.List }

// IncidentID is the ID of Incident.
const IncidentID = "20261121T030245Z-0a1b2c"

// Incident is the incident of a node whose runtime hung, and answered again at T0.
func Incident() *incident.Incident {
	bad, worse, after := Stalled(), Unhealthy(), Healthy()
	before := after.Verdict
	bad.Previous, worse.Previous, after.Previous = &before, &bad.Verdict, &worse.Verdict
	closed := T0
	one := &incident.Incident{
		Summary: incident.Summary{
			SchemaVersion: facts.SchemaVersion, PlegdVersion: "1.0.0", ID: IncidentID,
			Outcome: incident.Recovered, Opened: Ago(80 * time.Second), Closed: &closed,
			Duration: 80, State: facts.StateUnhealthy, Reason: bad.Reason, Stored: true,
			Reasons: []incident.ReasonTimes{
				{ID: bad.Reason, Primary: 47.5}, {ID: worse.Reason, Primary: 32.5},
			},
		},
		Updated:        T0,
		KubeletMessage: worse.KubeletMessage,
		Ending:         []string{"containerd, pid 812, was stopped and was continued. It was not restarted."},
	}
	one.Timeline = []incident.Moment{{Snapshot: &bad}, {Offset: 47.5, Snapshot: &worse}, {Offset: 80, Snapshot: &after}}
	for _, m := range one.Timeline {
		m.Snapshot.PlegdVersion, m.Snapshot.Node = "", ""
	}
	return one
}

// update flag
var update = flag.Bool("update", false, "rewrite the golden files and the generated documents")

// Golden compares got with a file, or rewrites the file with -update.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must.Do(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if that is meant, run go test on the package, with -update, (-want +got):\n%s", file, diff)
	}
}

// DocsDir is the project's documentation, as seen from this package.
const DocsDir = "../../docs/"
