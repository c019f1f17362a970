//go:build e2e

package faults

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
)

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
	dir := incident.Dir(b.plegd.StateDir)
	list, _, err := incident.Read(dir)
	b.must(err)
	i := slices.IndexFunc(list, func(s incident.Summary) bool {
		return s.Outcome == incident.Recovered && s.Closed.After(began) &&
			slices.ContainsFunc(s.Reasons, func(r incident.ReasonTimes) bool { return r.ID == f.want })
	})
	if i < 0 {
		// On a busy machine its own load continues in the same incident.
		b.t.Logf("%s: not kept: no incident of it has ended: %+v", f.name, list)
		return
	}
	one, err := incident.ReadOne(dir, list[i].ID)
	b.must(err)
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

var notInFiles = regexp.MustCompile(`[^A-Za-z0-9]`)

// slug is a fault's name as a file's.
func slug(name string) string {
	return strings.Trim(notInFiles.ReplaceAllString(strings.ReplaceAll(name, ",", ""), "-"), "-")
}
