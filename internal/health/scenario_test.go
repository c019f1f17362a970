package health

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scenario is a file of testdata/scenarios: the facts of a moment, and what a
// person who knows the case says of it. The folder is the primary reason.
type scenario struct {
	Now   time.Time `json:"now"`
	Facts Facts     `json:"facts"`
	Want  want      `json:"want"`
}

type want struct {
	State          State    `json:"state"`
	Reason         string   `json:"reason"`
	Active         []string `json:"active"`
	NotReadyIn     *float64 `json:"not_ready_in_seconds"`
	KubeletMessage string   `json:"kubelet_message"`
	// Evidence is the primary reason's, where it is the point of the scenario.
	Evidence []string `json:"evidence,omitempty"`
}

func TestScenarios(t *testing.T) {
	folders, err := os.ReadDir("testdata/scenarios")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, folder := range folders {
		have[folder.Name()] = true
		files, err := filepath.Glob(filepath.Join("testdata/scenarios", folder.Name(), "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s holds no scenario (%v)", folder.Name(), err)
		}
		for _, file := range files {
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
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s scenario
	if err := Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if folder != "None" && s.Want.Reason != folder || folder == "None" && s.Want.Reason != "" {
		t.Fatalf("the scenario wants %q but lies in %s", s.Want.Reason, folder)
	}
	v := Judge(&s.Facts, s.Now, nil)
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
	if diff := cmp.Diff(s.Want, got); diff != "" {
		t.Errorf("verdict (-want +got):\n%s\nevidence: %v", diff, v.Active)
	}
	if again := Judge(&s.Facts, s.Now, nil); !cmp.Equal(v, again) {
		t.Error("the same facts gave two verdicts")
	}
}

// TestScenariosNameNoPods: evidence is shown over TCP, where names must not be.
func TestScenariosNameNoPods(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/Pod*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios about pods", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var s scenario
		if err := Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		const secret = "secret-name"
		for _, pods := range [][]PodInspection{s.Facts.Relist.Inspecting, s.Facts.Relist.Failing, s.Facts.Relist.Slowest} {
			for i := range pods {
				pods[i].Name, pods[i].Namespace, pods[i].UID = secret, secret, secret
				if pods[i].Err != nil {
					pods[i].Err.Message = secret
				}
			}
		}
		v, err := Marshal(Judge(&s.Facts, s.Now, nil))
		if err != nil {
			t.Fatal(err)
		}
		if contains(string(v), secret) {
			t.Errorf("%s: the verdict names a pod: %s", file, v)
		}
	}
}
