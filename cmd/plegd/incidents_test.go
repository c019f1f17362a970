package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/must"
)

// example is the documentation's incident.
const example = "../../docs/api/incident.json"

func readExample(t *testing.T) *incident.Incident {
	t.Helper()
	one, err := incident.ReadFile(example)
	must.Do(t, err)
	return one
}

// stateDir is the state directory that a dead plegd has left.
func stateDir(t *testing.T, all ...*incident.Incident) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Mkdir(incident.Dir(dir), 0o700))
	for _, one := range all {
		b, err := json.Marshal(one)
		must.Do(t, err)
		must.Do(t, os.WriteFile(filepath.Join(incident.Dir(dir), one.ID+".json"), b, 0o600))
	}
	return dir
}

// TestIncidentsOfADeadDaemon are read from its state directory, and those of a stuck one.
func TestIncidentsOfADeadDaemon(t *testing.T) {
	older, newer := readExample(t), readExample(t)
	newer.ID, newer.Opened = "20261122T030245Z-00000f", newer.Opened.AddDate(0, 0, 1)
	dir := stateDir(t, older, newer)
	none, stuck := filepath.Join(dir, "none.sock"), filepath.Join(dir, "stuck.sock")
	listener, err := net.Listen("unix", stuck) // of a daemon that accepts and does not answer
	must.Do(t, err)
	defer listener.Close()
	ask := func(state, socket string, args ...string) (code int, out, errs string) {
		return plegd(t, slices.Concat([]string{"incidents"}, args, []string{"--state-dir=" + state, "--control-socket=" + socket})...)
	}
	_, out, _ := ask(dir, none, "-o", "json")
	var list []incident.Summary
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || list[0].ID != newer.ID {
		t.Errorf("%v: %s", err, out)
	}
	_, out, _ = ask(dir, none, older.ID, "-o", "json")
	if one, err := incident.Decode([]byte(out)); err != nil || len(one.Timeline) != len(older.Timeline) {
		t.Error(err)
	}
	if code, out, errs := ask(dir, stuck, older.ID); code != 0 || !strings.Contains(out, older.Reason) ||
		!strings.Contains(errs, "no answer from "+stuck) || strings.Count(errs, "\n") != 1 {
		t.Errorf("of a stuck daemon: exit %d: %s%s", code, out, errs)
	}
	if code, _, errs := ask(filepath.Join(dir, "nowhere"), none); code != 3 || !strings.Contains(errs, none) || !strings.Contains(errs, "nowhere") {
		t.Errorf("with nothing to read: exit %d: %s", code, errs)
	}
	for _, id := range []string{"20261121T030245Z-ffffff", "20261121T030405Z-00000F", "", "nonsense", "../../etc/passwd"} {
		code, out, errs := ask(dir, none, id)
		if code != 3 || out != "" || !strings.Contains(errs, "unknown incident") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d: %s%s", id, code, out, errs)
		}
	}
	must.Do(t, os.WriteFile(filepath.Join(incident.Dir(dir), "20261121T030245Z-eeeeee.json"), []byte("half"), 0o600))
	code, out, errs := ask(dir, none)
	if code != 0 || strings.Index(out, newer.ID) > strings.Index(out, older.ID) || strings.Count(out, "\n") != 3 || !strings.Contains(errs, "1 files") {
		t.Errorf("beside half a file: exit %d: %s%s", code, out, errs)
	}
}

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, tt := range []struct {
		path string
		code int
		says string
	}{
		{example, 1, "verdicts differ"}, // it is made up, and the classifier knows
		{filepath.Join(dir, "none.json"), 3, "none.json"},
		{file("garbage", "garbage"), 3, "not an incident of plegd"},
		{file("empty.json", `{"schema_version":2,"id":"20261121T030245Z-ffffff"}`), 3, "no moment of it holds facts"},
		{file("older.json", `{"schema_version":1,"id":"20261121T030245Z-ffffff","plegd_version":"0.0.1","timeline":[{"facts":{"config":{"relist_period_ns":1000000000}}}]}`), 3, "schema_version 1: this plegd reads 2"},
		{file("newer.json", `{"schema_version":7,"id":"20261121T030245Z-ffffff","plegd_version":"9.9.9"}`), 3, "9.9.9"},
	} {
		code, out, errs := plegd(t, "replay", tt.path)
		if code != tt.code || !strings.Contains(out+errs, tt.says) {
			t.Errorf("%s: exit %d: %s%s", tt.path, code, out, errs)
		}
	}
}
