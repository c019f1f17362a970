package incident

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/statedir"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestHungAndPlantedFiles: a FIFO and a link in place of an incident are logged and exported until
// they are removed, and the next incident is stored.
func TestHungAndPlantedFiles(t *testing.T) {
	run(t, func(n *node) {
		n.stop()
		must.Do(t, os.MkdirAll(n.dir, 0o700))
		fifo := path(n.dir, "20261121T030405Z-000001")
		link := path(n.dir, "20261121T030405Z-000002")
		must.Do(t, unix.Mkfifo(fifo, 0o600))
		must.Do(t, os.Symlink("/etc/passwd", link))
		n.start()
		n.degraded(time.Second, "A")
		n.well(time.Second)
		if got := outcomes(n.List()); got != "recovered/A" || !n.List()[0].Stored {
			t.Errorf("listed %s", got)
		}
		source, ok := n.Source()
		if !ok || source.Up || !strings.Contains(source.Err, "2 files cannot be used") || !strings.Contains(source.Err, "not a regular file") {
			t.Errorf("exported as %+v, %v", source, ok)
		}
		must.Do(t, errors.Join(os.Remove(fifo), os.Remove(link)))
		time.Sleep(2 * saveInterval)
		if source, ok := n.Source(); !ok || !source.Up {
			t.Errorf("exported as %+v, %v, once they are removed", source, ok)
		}
		if n.logged.FilterMessageSnippet("left alone").Len() != 1 {
			t.Errorf("logged %v", n.logged.All())
		}
	})
}

// TestForeignDirectory: nothing is stored where another user can write, nor behind a link.
func TestForeignDirectory(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"writable by others": func(dir string) error { return os.Chmod(filepath.Dir(dir), 0o777) },
		"a link": func(dir string) error {
			elsewhere := filepath.Join(filepath.Dir(filepath.Dir(dir)), "elsewhere")
			return errors.Join(os.Mkdir(elsewhere, 0o700), os.Symlink(elsewhere, dir))
		},
		"a file": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		run(t, func(n *node) {
			n.stop()
			must.Do(t, change(n.dir))
			n.start()
			n.degraded(time.Second, "A")
			n.well(time.Second)
			source, ok := n.Source()
			if !ok || source.Up || n.List()[0].Stored || n.logged.FilterMessageSnippet("cannot be stored").Len() != 1 {
				t.Errorf("%s: stored, or exported as %+v, %v", name, source, ok)
			}
		})
	}
}

// TestDropped: an incident beyond the limit of unsaved ones leaves no older version behind.
func TestDropped(t *testing.T) {
	run(t, func(n *node) {
		n.degraded(2*time.Second, "first") // its first version is stored
		var full atomic.Bool
		full.Store(true)
		n.disk = func(path string, content []byte) error {
			if full.Load() {
				return errors.New("no space left on device")
			}
			return writeFile(path, content)
		}
		n.well(time.Minute)
		for i := range maxUnsaved {
			n.degraded(time.Minute, fmt.Sprint(i))
			n.well(time.Minute)
		}
		full.Store(false)
		time.Sleep(time.Minute)
		if got := n.onDisk(); strings.Contains(got, "first") || got != outcomes(n.List()) {
			t.Errorf("on disk: %s; listed: %s", got, outcomes(n.List()))
		}
	})
}

// TestNewestAreKept, also beside a file that was removed by hand.
func TestNewestAreKept(t *testing.T) {
	run(t, func(n *node) {
		for i := range MaxFiles + 5 {
			n.degraded(time.Second, fmt.Sprint(i))
			n.well(time.Second)
			if i == 0 {
				must.Do(t, os.Remove(path(n.dir, n.List()[0].ID)))
			}
		}
		list := n.List()
		files, _ := os.ReadDir(n.dir)
		if len(list) != MaxFiles || len(files) != MaxFiles || list[0].Reason != fmt.Sprint(MaxFiles+4) || list[MaxFiles-1].Reason != "5" {
			t.Errorf("%d listed, %d files: %s to %s", len(list), len(files), list[0].Reason, list[len(list)-1].Reason)
		}
		if n.logged.Len() > 0 {
			t.Errorf("logged %v", n.logged.All())
		}
	})
}

// TestFullDisk: logged once, kept in memory within bounds, stored when there is room.
func TestFullDisk(t *testing.T) {
	run(t, func(n *node) {
		n.stop()
		var full atomic.Bool
		full.Store(true)
		n.disk = func(path string, content []byte) error {
			if full.Load() {
				return errors.New("no space left on device")
			}
			return writeFile(path, content)
		}
		n.start()
		for i := range 20 {
			n.degraded(time.Minute, fmt.Sprint(i))
			n.well(time.Minute)
		}
		if list := n.List(); len(list) != maxUnsaved || list[0].Stored {
			t.Errorf("%d in memory, want %d; the first %+v", len(list), maxUnsaved, list[0])
		}
		if warned := n.logged.FilterMessageSnippet("cannot be stored").Len(); warned != 1 || n.writes.Load() < 100 {
			t.Errorf("%d warnings, %d writes", warned, n.writes.Load())
		}
		if doc := n.one(); doc.Reason != "19" {
			t.Errorf("%+v", doc)
		}
		full.Store(false)
		time.Sleep(time.Minute)
		if got := strings.Fields(n.onDisk()); len(got) != maxUnsaved || got[0] != "recovered/19" {
			t.Errorf("stored: %s", got)
		}
		check.Equal(t, n.logged.FilterMessageSnippet("stored again").Len(), 1, "lines about the end of the failure")
	})
}

// TestSlowDisk: a write that hangs blocks neither the judge nor a reader nor plegd's end.
func TestSlowDisk(t *testing.T) {
	run(t, func(n *node) {
		n.stop()
		release := make(chan struct{})
		n.disk = func(string, []byte) error { <-release; return nil }
		n.start()
		before := time.Now()
		n.degraded(0, "A")
		n.well(0)
		n.degraded(0, "B")
		n.one()
		check.Equal(t, time.Since(before), 0, "it took")
		n.stop()
		if took := time.Since(before); took > time.Second {
			t.Errorf("plegd's end took %s", took)
		}
		close(release)
	})
}

// TestForeignFiles are left alone and logged once.
func TestForeignFiles(t *testing.T) {
	run(t, func(n *node) {
		n.stop()
		must.Do(t, os.MkdirAll(n.dir, 0o700))
		for name, text := range map[string]string{
			"README": "hello", "x.json": "{}", "20261121T030405Z-000001.json": "garbage",
			"20261121T030405Z-000002.json": `{"schema_version":99,"id":"20261121T030405Z-000002"}`,
			"20261121T030405Z-000003.json": `{"schema_version":2,"id":"20261121T030405Z-00000f"}`,
			"20261121T030405Z-000004.json": "", statedir.Draft: "half",
		} {
			must.Do(t, os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600))
		}
		must.Do(t, os.Mkdir(path(n.dir, "20261121T030405Z-000006"), 0o700))
		n.start()
		n.degraded(time.Second, "A")
		check.Equal(t, outcomes(n.List()), "open/A", "listed")
		if l := n.logged.FilterMessageSnippet("left alone").All(); len(l) != 1 || l[0].ContextMap()["files"] != int64(5) {
			t.Errorf("logged %v", n.logged.All())
		}
		if names, _ := os.ReadDir(n.dir); len(names) != 8 { // the draft is gone, A was added
			t.Errorf("%d files: %v", len(names), names)
		}
	})
}

// TestSizeIsBounded: the onset and the newest moment stay.
func TestSizeIsBounded(t *testing.T) {
	run(t, func(n *node) {
		n.well(time.Second)
		n.facts.Runtime.Name = strings.Repeat("\xff\x00e", MaxFileBytes/100)
		for i := range 100 {
			n.degraded(time.Second, fmt.Sprint(i))
		}
		n.well(time.Second)
		if size := len(n.file()); size > MaxFileBytes {
			t.Errorf("%d bytes", size)
		}
		doc := n.one()
		last := doc.Timeline[len(doc.Timeline)-1].Snapshot
		if doc.Timeline[0].Offset != 0 || last.State != facts.StateHealthy || doc.TimelineDropped+len(doc.Timeline) != 101 {
			t.Errorf("%d moments, %d dropped", len(doc.Timeline), doc.TimelineDropped)
		}
	})
}
