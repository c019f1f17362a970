package incident

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// cutFS is a file system that loses its power: of what was not synced any part
// may be lost, and the content of a file that was not synced may be anything.
type cutFS struct {
	mu sync.Mutex
	r  *rand.Rand
	// left counts the operations until the power goes; below 0: never.
	left int
	// now are the files as a reader sees them, disk as the disk has them: the
	// directory's entries are on it from SyncDir on, the contents from Sync on.
	now, disk map[string]*cutFile
}

type cutFile struct {
	fs     *cutFS
	data   []byte
	synced int // how much of it is on the disk
}

func newCutFS(r *rand.Rand) *cutFS {
	return &cutFS{r: r, left: -1, now: map[string]*cutFile{}, disk: map[string]*cutFile{}}
}

// op is one operation; it fails when there is no power any more.
func (c *cutFS) op(do func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return errDead
	}
	c.left--
	do()
	return nil
}

// restore is the file system after the power cut: each entry is what it was at
// the last sync of the directory or what it was made since, each content that
// was not synced is cut short.
func (c *cutFS) restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := map[string]*cutFile{}
	for _, entries := range []map[string]*cutFile{c.now, c.disk} {
		for path := range entries {
			f := c.now[path] // nil: it has been removed or renamed
			if c.r.IntN(2) == 0 {
				f = c.disk[path] // nil: it has come since
			}
			if f != nil {
				after[path] = f
			} else {
				delete(after, path)
			}
		}
	}
	c.now, c.disk = map[string]*cutFile{}, map[string]*cutFile{}
	for path, f := range after {
		keep := f.synced
		if extra := len(f.data) - f.synced; extra > 0 {
			keep += c.r.IntN(extra + 1)
		}
		f = &cutFile{fs: c, data: f.data[:keep], synced: keep}
		c.now[path], c.disk[path] = f, f
	}
	c.left = -1
}

func (*cutFS) MkdirAll(string) error { return nil }

func (c *cutFS) Create(path string) (file, error) {
	f := &cutFile{fs: c}
	return f, c.op(func() { c.now[path] = f })
}

func (f *cutFile) Write(b []byte) (int, error) {
	n := len(b)
	return n, f.fs.op(func() { f.data = append(f.data, b...) })
}

func (f *cutFile) Sync() error { return f.fs.op(func() { f.synced = len(f.data) }) }

func (f *cutFile) Close() error { return f.fs.op(func() {}) }

func (c *cutFS) Rename(from, to string) error {
	return c.op(func() { c.now[to] = c.now[from]; delete(c.now, from) })
}

func (c *cutFS) SyncDir(string) error {
	return c.op(func() {
		c.disk = map[string]*cutFile{}
		for path, f := range c.now {
			c.disk[path] = f
		}
	})
}

func (c *cutFS) Remove(path string) error { return c.op(func() { delete(c.now, path) }) }

func (c *cutFS) Names(string, int) (names []string, err error) {
	return names, c.op(func() {
		for path := range c.now {
			names = append(names, filepath.Base(path))
		}
	})
}

func (c *cutFS) Open(path string) (r io.ReadCloser, n int64, err error) {
	found := false
	err = c.op(func() {
		if f := c.now[path]; f != nil {
			r, n, found = io.NopCloser(bytes.NewReader(f.data)), int64(len(f.data)), true
		}
	})
	if err == nil && !found {
		err = fs.ErrNotExist
	}
	return r, n, err
}

// TestCrash takes the power at random moments from a file system that keeps no
// more than it was made to: what was reported as stored is there and whole.
func TestCrash(t *testing.T) {
	const rounds = 300
	cuts, reports := 0, 0
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(round)))
			disk := newCutFS(r)
			n := newNode(t)
			n.fs, n.limits = disk, childLimits()
			promised := map[string]int{}
			n.stored = func(one *Incident) { promised[one.ID] = one.Revision; reports++ }
			n.start()
			synctest.Wait()
			disk.mu.Lock()
			disk.left = r.IntN(120)
			disk.mu.Unlock()
			for range 30 {
				if r.IntN(3) == 0 {
					n.well()
				} else {
					n.degraded(fmt.Sprint(r.IntN(3)))
				}
				time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			}
			n.kill()
			if disk.left == 0 {
				cuts++
			}
			disk.restore()
			for id, revision := range promised {
				one, _, err := n.files.read(id)
				if err != nil || one.Revision < revision {
					t.Errorf("round %d: %s was reported as stored in revision %d: %v", round, id, revision, err)
				}
			}
			ids, err := n.files.names()
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if _, _, err := n.files.read(id); err != nil {
					t.Errorf("round %d: half an incident: %v", round, err)
				}
			}
			n.start()
			synctest.Wait()
			n.well()
			time.Sleep(resumeSettle)
			n.well()
			n.settle()
			for _, s := range n.List() {
				if s.Outcome == Open {
					t.Errorf("round %d: %s is open for ever", round, s.ID)
				}
			}
		})
	}
	t.Logf("%d power cuts, %d versions reported as stored", cuts, reports)
	if cuts < rounds/3 {
		t.Errorf("only %d of %d rounds lost their power", cuts, rounds)
	}
}
