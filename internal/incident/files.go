package incident

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

const (
	suffix      = ".json"
	draftSuffix = ".tmp"
	maxNames    = 4096    // directory entries that are read
	maxRead     = 8 << 20 // bytes of a file that are read
	keepFirst   = 16      // moments at the begin of a timeline that are never dropped
)

// ErrUnknown is wrapped by the error about an id that no incident has.
var ErrUnknown = errors.New("no such incident")

// Dir returns the directory of the incidents in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "incidents") }

func path(dir, id string) string { return filepath.Join(dir, id+suffix) }

// writeFile replaces a file by rename. The content is on disk if it returns nil.
func writeFile(path string, content []byte) error {
	draft := path + draftSuffix
	err := func() error {
		f, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		return errors.Join(err, f.Sync(), f.Close())
	}()
	if err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		_ = os.Remove(draft) // it takes space on a full disk
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// encode returns the content of an incident's file. Moments in the middle of the
// timeline are dropped until it is at most MaxFileBytes long.
func encode(doc *Incident) ([]byte, error) {
	moments := make([][]byte, len(doc.Timeline))
	total := 0
	for i := range doc.Timeline {
		b, err := health.Marshal(doc.Timeline[i])
		if err != nil {
			return nil, err
		}
		moments[i] = plain.JSON(b)
		total += len(moments[i]) + 1
	}
	out := *doc
	out.Timeline = []Moment{} // the last field: its content is inserted below
	head, err := health.Marshal(out)
	if err != nil {
		return nil, err
	}
	for len(moments) > 2 && len(head)+total > MaxFileBytes {
		middle := min(keepFirst, len(moments)/2)
		total -= len(moments[middle]) + 1
		moments = slices.Delete(moments, middle, middle+1)
		out.TimelineDropped++
	}
	if head, err = health.Marshal(out); err != nil {
		return nil, err
	}
	const end = "]}"
	b := append(bytes.TrimSuffix(plain.JSON(head), []byte(end)), bytes.Join(moments, []byte(","))...)
	return append(b, end+"\n"...), nil
}

// Decode reads an incident from its JSON. Unknown fields are ignored.
func Decode(r io.Reader) (*Incident, error) {
	var one Incident
	if err := decode(r, &one); err != nil {
		return nil, err
	}
	return &one, one.check(one.PlegdVersion)
}

func decode(r io.Reader, v any) error {
	b, err := io.ReadAll(io.LimitReader(r, maxRead+1))
	if err != nil {
		return err
	}
	if len(b) > maxRead {
		return fmt.Errorf("not an incident of plegd: larger than %d bytes", maxRead)
	}
	if err := health.Unmarshal(b, v); err != nil {
		return fmt.Errorf("not an incident of plegd: %w", err)
	}
	return nil
}

// check returns an error if this plegd cannot read the incident.
func (s *Summary) check(version string) error {
	switch {
	case s.SchemaVersion == 0 || !ValidID(s.ID):
		return errors.New("not an incident of plegd: no schema_version and id of one")
	case s.SchemaVersion != SchemaVersion:
		return fmt.Errorf("schema_version %d: this plegd reads %d; use the plegd that wrote it (%.40q)",
			s.SchemaVersion, SchemaVersion, version)
	}
	return nil
}

// names returns the ids of the files in a directory, newest first, and the drafts
// that a crash left behind.
func names(dir string) (ids, drafts []string, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = d.Close() }()
	all, err := d.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	for _, name := range all {
		if id, ok := strings.CutSuffix(name, suffix); ok && ValidID(id) {
			ids = append(ids, id)
		} else if id, ok := strings.CutSuffix(name, suffix+draftSuffix); ok && ValidID(id) {
			drafts = append(drafts, filepath.Join(dir, name))
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, drafts, nil
}

// open opens an incident's file. It opens regular files only: a pipe would block.
func open(dir, id string) (*os.File, error) {
	info, err := os.Lstat(path(dir, id))
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path(dir, id))
	}
	return os.Open(path(dir, id))
}

// Read reads the heads of the incidents in a directory, newest first. Files that
// cannot be read are counted.
func Read(dir string) (list []Summary, unreadable int, err error) {
	list, bad, err := read(dir)
	return list, len(bad), err
}

func read(dir string) (list []Summary, bad []error, err error) {
	ids, _, err := names(dir)
	if err != nil {
		return nil, nil, err
	}
	list = []Summary{}
	for _, id := range ids {
		var head struct {
			Summary
			PlegdVersion string `json:"plegd_version"`
		}
		err := readFile(dir, id, &head)
		if err == nil {
			err = head.check(head.PlegdVersion)
		}
		switch {
		case err == nil && head.ID == id:
			list = append(list, head.Summary)
		case err == nil:
			bad = append(bad, fmt.Errorf("%s: holds the incident %.40q", path(dir, id), head.ID))
		case !errors.Is(err, fs.ErrNotExist): // else removed meanwhile
			bad = append(bad, err)
		}
	}
	slices.SortStableFunc(list, func(a, b Summary) int { return b.Opened.Compare(a.Opened) })
	return list, bad, nil
}

func readFile(dir, id string, v any) error {
	f, err := open(dir, id)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := decode(f, v); err != nil {
		return fmt.Errorf("%s: %w", path(dir, id), err)
	}
	return nil
}

// ReadOne reads one incident of a directory. The error wraps ErrUnknown if there is
// none with this id.
func ReadOne(dir, id string) (*Incident, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("%.40q: %w", id, ErrUnknown)
	}
	var one Incident
	switch err := readFile(dir, id, &one); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", id, ErrUnknown)
	case err != nil:
		return nil, err
	case one.ID != id:
		return nil, fmt.Errorf("%s: holds the incident %.40q", path(dir, id), one.ID)
	}
	return &one, one.check(one.PlegdVersion)
}
