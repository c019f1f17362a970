package incident

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

// ErrUnknown is wrapped by the error about an id that no incident has.
var ErrUnknown = errors.New("no such incident")

// Dir returns the directory of the incidents in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "incidents") }

func path(dir, id string) string { return filepath.Join(dir, id+".json") }

// writeFile replaces a file by rename. The content is on disk if it returns nil.
func writeFile(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp := filepath.Join(dir, draft)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // it takes space on a full disk
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// encode returns the content of an incident's file. Moments in the middle of the
// timeline are dropped until it is at most MaxFileBytes long.
func encode(doc *Incident) ([]byte, error) {
	stored := *doc
	stored.Stored = true
	for {
		b, err := facts.Marshal(&stored)
		if err != nil {
			return nil, fmt.Errorf("encode the incident %s: %w", doc.ID, err)
		}
		b = append(plain.JSON(b), '\n')
		n := len(stored.Timeline)
		if len(b) <= MaxFileBytes || n <= 2 {
			return b, nil
		}
		stored.shorten(max(2, min(n-1, n*MaxFileBytes/len(b))))
	}
}

// Decode reads an incident from its JSON. Unknown fields are ignored.
func Decode(b []byte) (*Incident, error) {
	var one Incident
	err := facts.Unmarshal(b, &one)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not an incident of plegd: %w", err)
	case one.SchemaVersion == 0 || !validID.MatchString(one.ID):
		return nil, errors.New("not an incident of plegd: no schema_version and id of one")
	case one.SchemaVersion != facts.SchemaVersion:
		return nil, fmt.Errorf("schema_version %d: this plegd reads %d; use the plegd that wrote it (%.40q)",
			one.SchemaVersion, facts.SchemaVersion, one.PlegdVersion)
	}
	one.Timeline = slices.DeleteFunc(one.Timeline, func(m Moment) bool { return m.Snapshot == nil })
	return &one, nil
}

// Read reads the heads of the incidents in a directory, newest first. bad is why files cannot be read, one error each.
func Read(dir string) (list []Summary, bad []error, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	list = []Summary{}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), ".json")
		if one, err := ReadOne(dir, id); ok && err == nil {
			list = append(list, one.Summary)
		} else if ok && !errors.Is(err, ErrUnknown) { // another file, or removed meanwhile
			bad = append(bad, err)
		}
	}
	slices.SortStableFunc(list, func(a, b Summary) int { return b.Opened.Compare(a.Opened) })
	return list, bad, nil
}

// ReadOne reads one incident of a directory. The error wraps ErrUnknown if there is
// none with this id.
func ReadOne(dir, id string) (*Incident, error) {
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("%.40q: %w", id, ErrUnknown)
	}
	one, err := ReadFile(path(dir, id))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", id, ErrUnknown)
	case err == nil && one.ID != id:
		return nil, fmt.Errorf("%s: holds the incident %.40q", path(dir, id), one.ID)
	}
	return one, err
}

// ReadFile reads an incident from a file.
func ReadFile(path string) (*Incident, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, err
	}
	one, err := Decode(b)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return one, err
}
