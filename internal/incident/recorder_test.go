package incident

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestStory: the life of one incident, in memory and on disk.
func TestStory(t *testing.T) {
	run(t, func(n *node) {
		n.well(time.Second)
		for range 8 { // no change for 2 s
			n.degraded(250*time.Millisecond, "A")
		}
		check.Equal(t, n.onDisk(), "open/A", "on disk at its begin")
		n.degraded(5*time.Second, "B", "A")
		n.judge(facts.StateUnhealthy, 3*time.Second, "B")
		n.well(time.Second)

		doc := n.one()
		if doc.Outcome != Recovered || doc.Reason != "B" || doc.State != facts.StateUnhealthy || doc.Duration != 10 || doc.Closed == nil {
			t.Errorf("the head is %+v", doc.Summary)
		}
		want := []ReasonTimes{{"A", 2}, {"B", 8}}
		if got := doc.Reasons; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("reasons\n got %v\nwant %v", got, want)
		}
		if doc.KubeletMessage != "container runtime is down" || doc.PlegdVersion != "1.2.3" {
			t.Errorf("message %q, version %q", doc.KubeletMessage, doc.PlegdVersion)
		}
		var timeline []string
		for _, m := range doc.Timeline {
			timeline = append(timeline, fmt.Sprintf("%g %s/%s", m.Offset, m.Snapshot.State, m.Snapshot.Reason))
			if m.Snapshot.Facts.Endpoint.Path != "/run/x.sock" || m.Snapshot.Previous == nil {
				t.Errorf("the moment at %g lacks its facts", m.Offset)
			}
		}
		if got, want := strings.Join(timeline, ", "), "0 degraded/A, 2 degraded/B, 7 unhealthy/B, 10 healthy/"; got != want {
			t.Errorf("timeline\n got %s\nwant %s", got, want)
		}
		if got := n.onDisk(); got != "recovered/B" || n.opened != 1 {
			t.Errorf("on disk: %s; %d opened", got, n.opened)
		}
	})
}

// TestWrites: starting and reasons of severity info open no incident. One is written at its
// begin, when its verdict changes but not within 10 s, and at its end.
func TestWrites(t *testing.T) {
	run(t, func(n *node) {
		for i, step := range []struct {
			state   facts.State
			reasons string
			wait    time.Duration
			writes  int64 // after the wait
		}{
			{facts.StateStarting, "RuntimeSocketMissing", time.Minute, 0},
			{facts.StateHealthy, "SomeInfo", time.Minute, 0},
			{facts.StateDegraded, "A", time.Second, 1},
			{facts.StateDegraded, "B", 8 * time.Second, 1},
			{facts.StateDegraded, "C", 2 * time.Second, 2},
			{facts.StateDegraded, "C D", 9 * time.Second, 2},
			{facts.StateDegraded, "C D", 2 * time.Second, 3}, // 11 s after the change
			{facts.StateDegraded, "C D", time.Minute, 3},
			{facts.StateDegraded, "D", time.Second, 4},
			{facts.StateHealthy, "", time.Second, 5},
			{facts.StateHealthy, "", time.Minute, 5},
		} {
			n.judge(step.state, step.wait, strings.Fields(step.reasons)...)
			if got := n.writes.Load(); got != step.writes || len(n.List()) != int(min(step.writes, 1)) {
				t.Errorf("step %d: %d writes, want %d; %d listed", i, got, step.writes, len(n.List()))
			}
		}
	})
}

// TestInterrupted: an incident that is open when plegd ends is closed as interrupted, at
// once after SIGTERM, by the next plegd after a kill.
func TestInterrupted(t *testing.T) {
	for name, end := range map[string]func(*node){"stop": (*node).stop, "kill": (*node).kill} {
		t.Run(name, func(t *testing.T) {
			run(t, func(n *node) {
				n.well(time.Second)
				n.degraded(time.Minute, "A")
				end(n)
				n.start()
				n.degraded(time.Second, "B")
				check.Equal(t, n.onDisk(), "open/B interrupted/A", "on disk")
				if old := n.List()[1]; old.Closed == nil {
					t.Errorf("not closed: %+v", old)
				}
			})
		})
	}
}

// TestResumed: one fault is one incident over restarts of plegd within minutes. A fault that is
// over when plegd starts, and one of another boot, are interrupted.
func TestResumed(t *testing.T) {
	for name, tt := range map[string]struct {
		gap     time.Duration // between the runs
		forgets bool          // there is no state of this boot
		healthy bool          // at the second start
		want    string
	}{
		"a restart":            {2 * time.Second, false, false, "recovered/A"},
		"a long absence":       {resumeWithin + time.Minute, false, false, "recovered/A interrupted/A"},
		"another boot":         {2 * time.Second, true, false, "recovered/A interrupted/A"},
		"healthy at the start": {2 * time.Second, false, true, "interrupted/A"},
	} {
		for kind, end := range map[string]func(*node){"stop": (*node).stop, "kill": (*node).kill} {
			t.Run(name+" after a "+kind, func(t *testing.T) {
				run(t, func(n *node) {
					n.well(time.Second)
					n.degraded(time.Minute, "A")
					n.saved = time.Now()
					if tt.forgets {
						n.saved = time.Time{}
					}
					begin := n.List()[0].Opened
					end(n)
					time.Sleep(tt.gap)
					n.start()
					n.judge(facts.StateStarting, 2*time.Second)
					if !tt.healthy {
						n.degraded(time.Minute, "A")
					}
					n.well(time.Minute)
					list := n.List()
					if got := n.onDisk(); got != tt.want || outcomes(list) != tt.want {
						t.Errorf("on disk: %s; listed: %s; want %s", got, outcomes(list), tt.want)
					}
					if last := list[len(list)-1]; !last.Opened.Equal(begin) {
						t.Errorf("it opened at %s, and is now of %s", begin, last.Opened)
					}
					if first := list[0]; tt.want == "recovered/A" && first.Duration != (2*time.Minute+4*time.Second).Seconds() {
						t.Errorf("it lasted %g s", first.Duration)
					}
				})
			})
		}
	}
}

// TestFileContent: the file has no characters that a terminal interprets, keeps texts as
// they are, and an older plegd ignores fields of a newer one.
func TestFileContent(t *testing.T) {
	run(t, func(n *node) {
		const hostile = "\x1b[2J\u009b31m\u202egnp.exe\u2066 é"
		n.facts.Runtime.Name = hostile
		n.degraded(time.Second, "A")
		text := n.file()
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("the file holds %q", text[i:min(len(text), i+10)])
		}
		one, err := ReadOne(n.dir, n.List()[0].ID)
		if err != nil || one.Timeline[0].Snapshot.Facts.Runtime.Name != hostile {
			t.Errorf("the text changed: %v", err)
		}
		var doc map[string]any
		must.Do(t, json.Unmarshal([]byte(text), &doc))
		doc["from_the_future"] = []int{1}
		b, err := json.Marshal(doc)
		must.Do(t, err)
		if _, err := Decode(b); err != nil {
			t.Error(err)
		}
	})
}
