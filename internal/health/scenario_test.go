package health

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/factstest"
	"github.com/plegd/plegd/test/must"
)

// scenario is a file of testdata/scenarios: how the facts of a moment differ from those of
// a healthy node (testdata/healthy.json), and what a person who knows the case concludes.
// The folder is the primary reason. Change is a JSON merge patch (RFC 7386); a text such
// as "now-2.5s" is the time that long before the moment.
type scenario struct {
	Facts facts.Facts
	Want  want
}

type want struct {
	State          facts.State `json:"state"`
	Reason         string      `json:"reason"`
	Active         []string    `json:"active"`
	NotReadyIn     *float64    `json:"not_ready_in_seconds"`
	KubeletMessage string      `json:"kubelet_message"`
	// Evidence is the primary reason's, where it is the point of the scenario.
	Evidence []string `json:"evidence,omitempty"`
}

// scenarioNow is the moment of every scenario.
var scenarioNow = time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC)

// scenarioFiles are the files of the scenarios in folders.
func scenarioFiles(t *testing.T, folders string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/scenarios/" + folders + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s holds no scenario (%v)", folders, err)
	}
	return files
}

// readScenario reads a scenario's file.
func readScenario(t *testing.T, file string) scenario {
	t.Helper()
	read := func(path string, into any) {
		if b, err := os.ReadFile(path); err != nil {
			t.Fatal(err)
		} else if err := json.Unmarshal(b, into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var one struct {
		Change any
		Want   want
	}
	var healthy any
	read("testdata/healthy.json", &healthy)
	read(file, &one)
	b, err := json.Marshal(dated(t, merged(healthy, one.Change)))
	must.Do(t, err)
	s := scenario{Want: one.Want}
	if err := facts.Unmarshal(b, &s.Facts); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// merged applies a JSON merge patch.
func merged(to, change any) any {
	fields, ok := change.(map[string]any)
	if !ok {
		return change
	}
	out, ok := to.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for name, v := range fields {
		if v == nil {
			delete(out, name)
		} else {
			out[name] = merged(out[name], v)
		}
	}
	return out
}

// dated replaces the times that are relative to now.
func dated(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = dated(t, field)
		}
	case []any:
		for i := range v {
			v[i] = dated(t, v[i])
		}
	case string:
		if after, ok := strings.CutPrefix(v, "now"); ok {
			d, err := time.ParseDuration(cmp.Or(after, "0s"))
			must.Do(t, err)
			return scenarioNow.Add(d).Format(time.RFC3339Nano)
		}
	}
	return v
}

func TestScenarios(t *testing.T) {
	folders, err := os.ReadDir("testdata/scenarios")
	must.Do(t, err)
	have := map[string]bool{}
	for _, folder := range folders {
		have[folder.Name()] = true
		for _, file := range scenarioFiles(t, folder.Name()) {
			t.Run(folder.Name()+"/"+filepath.Base(file), func(t *testing.T) { runScenario(t, folder.Name(), file) })
		}
	}
	for _, r := range Reasons() {
		if !have[r.ID] {
			t.Errorf("the reason %s has no scenario in testdata/scenarios/%s", r.ID, r.ID)
		}
	}
}

func runScenario(t *testing.T, folder, file string) {
	s := readScenario(t, file)
	if folder != "None" && s.Want.Reason != folder || folder == "None" && s.Want.Reason != "" {
		t.Fatalf("the scenario wants %q but lies in %s", s.Want.Reason, folder)
	}
	v := Judge(&s.Facts, scenarioNow, nil)
	got := want{State: v.State, Reason: v.Reason, KubeletMessage: v.KubeletMessage, Active: []string{}}
	for _, a := range v.Active {
		got.Active = append(got.Active, a.ID)
		if len(a.Evidence) == 0 {
			t.Errorf("%s is active without evidence", a.ID)
		}
		if a.ID == v.Reason && s.Want.Evidence != nil {
			got.Evidence = a.Evidence
		}
	}
	if v.NotReadyIn != nil {
		seconds := math.Round(v.NotReadyIn.Seconds()*1000) / 1000
		got.NotReadyIn = &seconds
	}
	if diff := gocmp.Diff(s.Want, got); diff != "" {
		t.Errorf("verdict (-want +got):\n%s\nevidence: %v", diff, v.Active)
	}
	for _, c := range command.FindAllString(strings.Join(append(v.Steps, v.Next), "\n"), -1) {
		if toFillIn.MatchString(c) {
			t.Errorf("the step %s has a word to be filled in", c)
		}
	}
	if again := Judge(&s.Facts, scenarioNow, nil); !gocmp.Equal(v, again) {
		t.Error("the same facts gave two verdicts")
	}
}

// TestScenariosNameNoPods: evidence is shown over TCP, where names must not be.
func TestScenariosNameNoPods(t *testing.T) {
	for _, file := range scenarioFiles(t, "Pod*") {
		s := readScenario(t, file)
		const secret = "secret-name"
		for _, pods := range [][]facts.PodInspection{s.Facts.Relist.Inspecting, s.Facts.Relist.Failing, s.Facts.Relist.Slowest} {
			for i := range pods {
				pods[i].Name, pods[i].Namespace, pods[i].UID = secret, secret, secret
				if pods[i].Err != nil {
					pods[i].Err.Message = secret
				}
			}
		}
		v, err := facts.Marshal(Judge(&s.Facts, scenarioNow, nil))
		must.Do(t, err)
		if contains(string(v), secret) {
			t.Errorf("%s: the verdict names a pod: %s", file, v)
		}
	}
}

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// healthyFacts are those of a node on which all was well a moment before.
var healthyFacts = factstest.Healthy
