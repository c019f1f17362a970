package incident

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/plegd/plegd/internal/health"
)

// TestStory: the life of one incident, as it is told and as it is stored.
func TestStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		for i := range 200 {
			n.Relisted(health.RelistResult{Start: time.Now(), End: time.Now(), Changed: i})
		}
		n.well()
		time.Sleep(time.Second)
		n.degraded("A")
		for range 8 { // nothing new for 2 s
			time.Sleep(250 * time.Millisecond)
			n.degraded("A")
		}
		n.degraded("B", "A")
		time.Sleep(5 * time.Second)
		n.say(health.StateUnhealthy, "B")
		time.Sleep(3 * time.Second)
		n.well()
		time.Sleep(time.Second)
		n.settle()

		doc := n.one()
		if doc.Outcome != Recovered || doc.Reason != "B" || doc.State != health.StateUnhealthy || doc.Duration != 10 || doc.Closed == nil {
			t.Errorf("the head is %+v", doc.Summary)
		}
		want := []ReasonTimes{
			{"A", health.SeverityCritical, 0, 2, 7, 2},
			{"B", health.SeverityCritical, 2, 7, 8, 8},
		}
		if got := doc.Reasons; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("reasons\n got %v\nwant %v", got, want)
		}
		if doc.KubeletMessage != "container runtime is down" || doc.PlegdVersion != "1.2.3" || doc.BootID != "boot-1" {
			t.Errorf("message %q, version %q, boot %q", doc.KubeletMessage, doc.PlegdVersion, doc.BootID)
		}
		if len(doc.Relists) != relistsKept || doc.Relists[relistsKept-1].Changed != 199 {
			t.Errorf("%d relists, the last is %+v", len(doc.Relists), doc.Relists[len(doc.Relists)-1])
		}
		var told []string
		for _, m := range doc.Timeline {
			told = append(told, fmt.Sprintf("%g %s/%s", m.Offset, m.Snapshot.State, m.Snapshot.Reason))
			if m.Snapshot.Facts.Endpoint.Path != "/run/x.sock" || m.Snapshot.Previous == nil {
				t.Errorf("the moment at %g lacks what it was made from", m.Offset)
			}
		}
		if got, want := strings.Join(told, ", "), "0 degraded/A, 2 degraded/B, 7 unhealthy/B, 10 healthy/"; got != want {
			t.Errorf("timeline\n got %s\nwant %s", got, want)
		}
		if n.opened.Load() != 1 {
			t.Errorf("%d opened", n.opened.Load())
		}
		if got := ids2(n.onDisk()); got != "recovered/B" {
			t.Errorf("on disk: %s", got)
		}
	})
}

// TestWhatOpensNone: starting and reasons of severity info.
func TestWhatOpensNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.say(health.StateStarting, "RuntimeSocketMissing")
		time.Sleep(time.Minute)
		n.say(health.StateHealthy, "SomeInfo")
		time.Sleep(time.Minute)
		if list := n.List(); len(list) != 0 || n.opened.Load() != 0 {
			t.Errorf("%d opened: %+v", n.opened.Load(), list)
		}
	})
}

// opened returns a node with an incident of that age.
func opened(t *testing.T, age time.Duration) *node {
	n := newNode(t)
	n.start()
	n.well()
	for left := age; left > 0; left -= time.Second {
		n.degraded("A")
		time.Sleep(time.Second)
	}
	n.degraded("A")
	n.settle()
	return n
}

// TestRestartsAfterKill: an open incident continues after a kill and after a stop; what
// has just begun ends with a stop; a new boot interrupts.
func TestRestartsAfterKill(t *testing.T) {
	t.Run("kill and go on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := opened(t, 40*time.Second)
			id := n.one().ID
			n.kill()
			time.Sleep(10 * time.Second)
			n.start()
			n.say(health.StateStarting, "Starting")
			time.Sleep(5 * time.Second)
			n.degraded("A")
			time.Sleep(5 * time.Second)
			for range 7 {
				n.well()
				time.Sleep(time.Second)
			}
			n.settle()
			doc := n.one()
			if doc.ID != id || doc.Outcome != Recovered || doc.Duration != 60 || len(doc.Gaps) != 1 || n.opened.Load() != 1 {
				t.Errorf("%d opened, gaps %v: %+v", n.opened.Load(), doc.Gaps, doc.Summary)
			}
			// The heartbeat at second 30 was the last word of the first plegd.
			if gap := doc.Gaps[0].To.Sub(doc.Gaps[0].From); gap < 10*time.Second || gap > 21*time.Second {
				t.Errorf("a gap of %s", gap)
			}
			if doc.Timeline[0].Offset != 0 || doc.Timeline[0].Snapshot == nil {
				t.Errorf("the onset is lost: %+v", doc.Timeline[0])
			}
		})
	})
	t.Run("kill, and all is well", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := opened(t, 40*time.Second)
			n.kill()
			n.start()
			time.Sleep(time.Second)
			for range 10 {
				n.well()
				time.Sleep(time.Second)
			}
			n.settle()
			if got := ids2(n.onDisk()); got != "recovered/A" {
				t.Error(got)
			}
			if doc := n.one(); doc.Duration != 41 {
				t.Errorf("it lasted %g s, want the 41 until all was well", doc.Duration)
			}
		})
	})
	t.Run("kill, and evidence comes late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := opened(t, 40*time.Second)
			n.kill()
			n.start()
			for range 3 {
				n.well() // nobody has looked yet
				time.Sleep(time.Second)
			}
			n.degraded("A")
			time.Sleep(time.Second)
			n.settle()
			if got := ids2(n.onDisk()); got != "open/A" {
				t.Error(got)
			}
			n.well()
			time.Sleep(time.Second)
			n.well()
			if got := ids2(n.List()); got != "open/A" {
				t.Errorf("after a second: %s", got)
			}
			time.Sleep(5 * time.Second)
			n.well()
			n.settle()
			if doc := n.one(); doc.Outcome != Recovered || doc.Duration != 44 {
				t.Errorf("%s after %g s, want recovered after 44", doc.Outcome, doc.Duration)
			}
		})
	})
	t.Run("judged before the disk is read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := opened(t, 40*time.Second)
			n.kill()
			slow := &lateFS{gate: make(chan struct{})}
			n.fs = slow
			n.start()
			n.degraded("B")
			time.Sleep(3 * time.Second)
			n.degraded("C")
			close(slow.gate)
			time.Sleep(time.Second)
			n.settle()
			doc := n.one()
			var told []string
			for _, r := range doc.Reasons {
				told = append(told, r.ID)
			}
			if strings.Join(told, "") != "ABC" || len(doc.Timeline) != 3 {
				t.Errorf("reasons %v, %d moments", told, len(doc.Timeline))
			}
		})
	})
}

// TestRestartsAfterStop: a stop closes a young incident, an old one continues.
func TestRestartsAfterStop(t *testing.T) {
	t.Run("stop within 30 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := opened(t, 29*time.Second)
			n.stop()
			if got := ids2(n.onDisk()); got != "shutdown/A" {
				t.Error(got)
			}
		})
	})
	t.Run("stop later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := opened(t, 31*time.Second)
			n.stop()
			if got := ids2(n.onDisk()); got != "open/A" {
				t.Error(got)
			}
		})
	})
}

// TestRestartsAfterBoot: a new boot interrupts an open incident, whatever the
// wall clock says.
func TestRestartsAfterBoot(t *testing.T) {
	t.Run("a new boot", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := opened(t, 31*time.Second)
			n.kill()
			n.boot, n.skew = "boot-2", -time.Hour
			time.Sleep(time.Minute)
			n.start()
			n.degraded("B")
			time.Sleep(time.Second)
			n.settle()
			if got := ids2(n.onDisk()); got != "open/B interrupted/A" {
				t.Error(got)
			}
			if list := n.List(); list[1].Closed == nil || list[1].Duration > 31 {
				t.Errorf("interrupted: %+v", list[1])
			}
		})
	})
	t.Run("a new boot that is older", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := opened(t, 31*time.Second)
			n.kill()
			n.boot, n.skew = "boot-2", time.Hour
			n.start()
			n.degraded("A")
			time.Sleep(time.Second)
			n.settle()
			if got := ids2(n.onDisk()); got != "open/A interrupted/A" {
				t.Error(got)
			}
		})
	})
}

// TestWorstSeverity: a reason that was critical for a time is kept as critical.
func TestWorstSeverity(t *testing.T) {
	var s story
	for _, severity := range []health.Severity{health.SeverityWarning, health.SeverityCritical, health.SeverityWarning} {
		s.reason(&health.Active{ID: "A", Severity: severity}, 0)
	}
	if got := s.doc.Reasons; len(got) != 1 || got[0].Severity != health.SeverityCritical {
		t.Errorf("%+v, want it once, critical", got)
	}
}

// lateFS lists a directory only when it is let go.
type lateFS struct {
	osFS
	gate chan struct{}
}

func (l *lateFS) Names(dir string, n int) ([]string, error) {
	<-l.gate
	return l.osFS.Names(dir, n)
}

// TestAgain: a fault that is gone for a moment is one incident; another fault, and
// the same one later, are not.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		faulty := func(reason string, then time.Duration) {
			n.degraded(reason)
			time.Sleep(10 * time.Second)
			n.well()
			time.Sleep(then)
		}
		faulty("A", 500*time.Millisecond)
		if list := n.List(); list[0].Outcome != Recovered {
			t.Errorf("it does not end at once: %+v", list[0])
		}
		faulty("A", 2900*time.Millisecond)
		faulty("A", time.Second)
		faulty("B", 3*time.Second)
		faulty("B", time.Minute)
		n.settle()
		if got := ids2(n.onDisk()); got != "recovered/B recovered/B recovered/A" {
			t.Fatal(got)
		}
		a := n.List()[2]
		if a.Episodes != 3 || a.Duration != 33.4 || a.Reasons[0].Active != 30 || n.opened.Load() != 3 {
			t.Errorf("%d opened: %+v", n.opened.Load(), a)
		}
		doc, err := n.Get(t.Context(), a.ID)
		if err != nil || len(doc.Timeline) != 6 {
			t.Errorf("%d moments, %v; want each onset and each end", len(doc.Timeline), err)
		}
		// Gone for a moment, again and again.
		for range 100 {
			faulty("C", time.Second)
		}
		n.settle()
		if list := n.List(); len(list) != 4 || list[0].Episodes != 100 {
			t.Errorf("%d incidents, the last: %+v", len(list), list[0])
		}
	})
}

// TestFlapping: what opens too often continues in the last one, and writes come
// at a bounded rate.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		disk := newMemFS()
		n.fs = disk
		n.limits.Number, n.limits.Burst = 20, 10
		n.start()
		const minutes = 20
		for i := range minutes * 60 {
			n.degraded(fmt.Sprint(i)) // each time another fault
			time.Sleep(500 * time.Millisecond)
			n.well()
			time.Sleep(500 * time.Millisecond)
		}
		n.settle()
		synctest.Wait() // what is too much is removed after the last write
		if most := n.limits.Burst + minutes + 1; int(n.opened.Load()) > most || int(n.opened.Load()) < n.limits.Burst {
			t.Errorf("%d opened in %d min, want at most %d", n.opened.Load(), minutes, most)
		}
		if most := n.limits.WriteBurst + minutes*60 + 1; disk.created > most {
			t.Errorf("%d writes in %d min, want at most one a second", disk.created, minutes)
		}
		if len(disk.files) > n.limits.Number || disk.most > n.limits.Number+1 {
			t.Errorf("%d files, at most %d", len(disk.files), disk.most)
		}
		episodes := 0
		for _, s := range n.List() {
			episodes += s.Episodes
		}
		if last := n.List()[0]; last.Episodes < 50 {
			t.Errorf("the last incident holds %d episodes, want about 60", last.Episodes)
		}
		doc, err := n.Get(t.Context(), n.List()[0].ID)
		if err != nil || len(doc.Timeline) > n.limits.Moments || doc.TimelineDropped == 0 {
			t.Errorf("%d moments, %d dropped, %v", len(doc.Timeline), doc.TimelineDropped, err)
		}
	})
}

// TestOldestClosedGoFirst: never the open one.
func TestOldestClosedGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.limits.Number = 3
		n.start()
		for i := range 6 {
			n.degraded(fmt.Sprint(i))
			time.Sleep(2 * time.Second)
			n.well()
			time.Sleep(time.Second)
		}
		n.degraded("open")
		time.Sleep(2 * time.Second)
		n.settle()
		synctest.Wait()
		if got := ids2(n.onDisk()); got != "open/open recovered/5 recovered/4" {
			t.Errorf("kept: %s", got)
		}
		if got := ids2(n.List()); got != "open/open recovered/5 recovered/4" {
			t.Errorf("listed: %s", got)
		}
		n.stop()
		n.limits.TotalBytes = 1
		n.start()
		n.settle()
		synctest.Wait()
		if got := ids2(n.onDisk()); got != "" && !strings.HasPrefix(got, "shutdown") {
			t.Errorf("kept with no room: %s", got)
		}
		n.degraded("stays")
		time.Sleep(2 * time.Second)
		n.settle()
		synctest.Wait()
		if got := ids2(n.onDisk()); got != "open/stays" {
			t.Errorf("the open one, with no room: %s", got)
		}
	})
}

// TestRemovedMeanwhile: a file that a running plegd removes as the directory is read
// counts neither as an incident nor as unreadable.
func TestRemovedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.degraded("A")
		time.Sleep(2 * time.Second)
		n.settle()
		n.stop()
		f := &files{dir: n.dir, fs: removingFS{}}
		if list, bad, err := f.list(); len(list) != 0 || bad != 0 || err != nil {
			t.Errorf("%d incidents, %d unreadable, %v", len(list), bad, err)
		}
		if list, err := f.names(); len(list) != 0 || err != nil {
			t.Errorf("%d files are left, %v: this test tests nothing", len(list), err)
		}
	})
}

// removingFS removes each file before it is opened.
type removingFS struct{ osFS }

func (r removingFS) Open(path string) (io.ReadCloser, int64, error) {
	_ = r.Remove(path)
	return r.osFS.Open(path)
}

// TestFullDisk: said once, kept in memory within bounds, stored when there is
// room again.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		disk := &fullFS{full: true}
		n.fs = disk
		n.start()
		for i := range 20 {
			n.degraded(fmt.Sprint(i))
			time.Sleep(time.Minute)
			n.well()
			time.Sleep(time.Minute)
		}
		if list := n.List(); len(list) != n.limits.Pending || list[0].Stored {
			t.Errorf("%d in memory, want %d; the first %+v", len(list), n.limits.Pending, list[0])
		}
		warned := n.logged.FilterMessageSnippet("cannot be stored").Len()
		if warned != 1 || n.failed.Load() < 100 {
			t.Errorf("%d warnings, %d failures counted", warned, n.failed.Load())
		}
		doc, err := n.Get(t.Context(), n.List()[0].ID)
		if err != nil || doc.Reason != "19" {
			t.Errorf("%+v, %v", doc, err)
		}
		disk.set(false)
		time.Sleep(time.Minute)
		n.settle()
		if list := n.onDisk(); len(list) != n.limits.Pending || list[0].Reason != "19" {
			t.Errorf("stored: %s", ids2(list))
		}
		if n.logged.FilterMessageSnippet("stored again").Len() != 1 {
			t.Error("that it works again is not said")
		}
	})
}

// TestSlowDisk: a sync that takes a minute holds up neither the judge nor a
// reader nor plegd's end.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		disk := &slowFS{}
		disk.hold()
		n.fs = disk
		n.start()
		before := time.Now()
		n.degraded("A")
		n.well()
		n.degraded("B")
		if _, err := n.Get(t.Context(), n.List()[0].ID); err != nil {
			t.Error(err)
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("it took %s", took)
		}
		before = time.Now()
		n.stop()
		if took := time.Since(before); took > time.Second {
			t.Errorf("plegd's end took %s", took)
		}
		disk.release()
		synctest.Wait()
	})
}

// TestForeignFiles are left alone and said once.
func TestForeignFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		if err := os.MkdirAll(n.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"README": "hello", "20261121T030405Z-000001.json": "garbage", "20261121T030405Z-000002.json": `{"schema_version":99,"id":"20261121T030405Z-000002"}`,
			"20261121T030405Z-000003.json": `{"schema_version":1,"id":"20261121T030405Z-00000f"}`, "20261121T030405Z-000004.json": "", "x.json": "{}",
			"20261121T030405Z-000005.json.tmp": "half",
		} {
			if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.start()
		n.degraded("A")
		time.Sleep(time.Second)
		n.settle()
		if got := ids2(n.List()); got != "open/A" {
			t.Errorf("listed %s", got)
		}
		if l := n.logged.FilterMessageSnippet("left alone").All(); len(l) != 1 || l[0].ContextMap()["files"] != int64(4) {
			t.Errorf("said %v", n.logged.All())
		}
		if names, _ := os.ReadDir(n.dir); len(names) != 7 { // the half one is gone, A has come
			t.Errorf("%d files: %v", len(names), names)
		}
	})
}

// TestSizeIsBounded: a runtime that says a lot in each moment.
func TestSizeIsBounded(t *testing.T) {
	n := newNode(t)
	n.limits.FileBytes = 64 << 10
	n.start()
	n.well()
	for i := range 100 {
		v := &health.Verdict{State: health.StateDegraded, Reason: fmt.Sprint(i), Active: []health.Active{
			{ID: fmt.Sprint(i), Severity: health.SeverityWarning, Evidence: []string{strings.Repeat("\xff\x00e", 100_000)}}}}
		n.Judged(snapshot(&health.Facts{}, n.last, v))
		n.last = v
	}
	n.settle()
	info, err := os.Stat(n.files.path(n.List()[0].ID))
	if err != nil || info.Size() > int64(n.limits.FileBytes) {
		t.Fatalf("%v, %v", info.Size(), err)
	}
	doc, err := ReadOne(n.dir, n.List()[0].ID)
	if err != nil || doc.Timeline[0].Offset != 0 || doc.Timeline[len(doc.Timeline)-1].Snapshot.Reason != "99" {
		t.Errorf("the onset or the newest moment is gone: %v", err)
	}
}

// TestFilesArePlain: whoever reads a file in a terminal sees names and messages,
// and follows no command in them.
func TestFilesArePlain(t *testing.T) {
	n := newNode(t)
	n.start()
	n.well()
	const hostile = "\x1b[2J\u009b31m\u202egnp.exe\u2066 é"
	v := &health.Verdict{State: health.StateDegraded, Reason: "A", Active: []health.Active{{ID: "A", Severity: health.SeverityWarning, Evidence: []string{hostile}}}}
	n.Judged(snapshot(&health.Facts{Runtime: health.Runtime{Name: hostile}}, n.last, v))
	n.settle()
	id := n.List()[0].ID
	b, err := os.ReadFile(n.files.path(id))
	if err != nil || !strings.Contains(string(b), "gnp.exe") {
		t.Fatalf("%v: %s", err, b)
	}
	for _, r := range string(b) {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("the file holds %U as it is", r)
		}
	}
	if one, err := ReadOne(n.dir, id); err != nil || one.Timeline[0].Snapshot.Active[0].Evidence[0] != hostile || one.Timeline[0].Snapshot.Facts.Runtime.Name != hostile {
		t.Errorf("read again it is another text: %v", err)
	}
}

// TestManyOpen: of a directory that somebody has filled with open incidents only
// some are read whole at once.
func TestManyOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		if err := os.MkdirAll(n.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		store := &files{dir: n.dir, fs: osFS{}}
		const many = 20
		fill := func() {
			for i := range many {
				doc := &Incident{Summary: Summary{SchemaVersion: SchemaVersion, ID: newID(time.Now().Add(time.Duration(i) * time.Second)), Outcome: Open}, BootID: "another"}
				content, err := encode(doc, nil, &n.limits)
				if err == nil {
					err = store.write(doc.ID, content)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		fill()
		left := func() (open int) {
			for _, s := range n.onDisk() {
				if s.Outcome == Open {
					open++
				}
			}
			return open
		}
		for _, want := range []int{many - n.limits.Pending, many - 2*n.limits.Pending, 0} {
			n.start()
			n.well()
			time.Sleep(time.Minute)
			n.settle()
			n.stop()
			if got := left(); got != want {
				t.Errorf("%d are open, want %d", got, want)
			}
		}
		// Nor are there more than may be, whatever they say.
		fill()
		n.limits.Number = 3
		n.start()
		n.well()
		time.Sleep(time.Minute)
		n.settle()
		synctest.Wait()
		if list := n.onDisk(); len(list) > 3 {
			t.Errorf("%d are kept of at most 3", len(list))
		}
	})
}

// TestUnknown: no file is opened for what cannot be an id.
func TestUnknown(t *testing.T) {
	n := newNode(t)
	n.start()
	n.settle()
	for _, id := range []string{"", "x", "../../etc/passwd", "20261121T030405Z-00000f", "20261121T030405Z-00000F", "20261321T030405Z-00000f"} {
		if _, err := n.Get(t.Context(), id); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := ReadOne(n.dir, id); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestClockStep: the times of a snapshot are on the wall clock of its moment.
func TestClockStep(t *testing.T) {
	now := time.Now()
	stepped := now.Add(-time.Minute) // a reading of the monotonic clock, before
	b, err := health.Marshal(&health.Snapshot{At: now, Facts: health.Facts{Started: stepped}})
	if err != nil {
		t.Fatal(err)
	}
	var got health.Snapshot
	if err := health.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if !got.At.Equal(now) || got.At.Sub(got.Facts.Started) != time.Minute || !got.Facts.LastDiscard.IsZero() {
		t.Errorf("at %s, started %s, never %s", got.At, got.Facts.Started, got.Facts.LastDiscard)
	}
}

// TestNewerFields are passed over: an older plegd reads a newer one's file.
func TestNewerFields(t *testing.T) {
	n := newNode(t)
	n.start()
	n.degraded("A")
	n.settle()
	b, err := os.ReadFile(n.files.path(n.List()[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	doc["from_the_future"] = []int{1}
	doc["timeline"].([]any)[0].(map[string]any)["snapshot"].(map[string]any)["facts"].(map[string]any)["from_the_future"] = true
	if b, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(strings.NewReader(string(b))); err != nil {
		t.Error(err)
	}
	if _, err := decodeHead(strings.NewReader(string(b))); err != nil {
		t.Error(err)
	}
}
