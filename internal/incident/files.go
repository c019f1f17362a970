package incident

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/statedir"
)

// ErrUnknown is wrapped by the error about an id that no incident has.
var ErrUnknown = errors.New("no such incident")

// Dir returns the directory of the incidents in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "incidents") }

func fileName(id string) string { return id + ".json" }

func path(dir, id string) string { return filepath.Join(dir, fileName(id)) }

// openDir opens the directory of the incidents, in a state directory that belongs to root.
func openDir(dir string, create bool) (*os.Root, error) {
	open := statedir.Open
	if create {
		open = statedir.Make
	}
	parent, err := open(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = parent.Close() }()
	return statedir.Below(parent, filepath.Base(dir), create)
}

// writeFile replaces a file by rename. The content is on disk if it returns nil.
func writeFile(path string, content []byte) error {
	root, err := openDir(filepath.Dir(path), true)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return statedir.Write(root, filepath.Base(path), content, true)
}

// removeFile removes the file of an incident.
func removeFile(path string) error {
	root, err := openDir(filepath.Dir(path), false)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return root.Remove(filepath.Base(path))
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

const (
	fileTimeout  = 2 * time.Second // of reading one file
	maxLateFiles = 3               // after which a disk counts as hung
)

// Read reads the heads of the incidents in a directory, newest first. bad is why files cannot be
// read, by name. A file that does not answer within fileTimeout is abandoned.
func Read(dir string) (list []Summary, bad map[string]error, err error) {
	root, err := openDir(dir, false)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, nil, err
	}
	list = []Summary{}
	bad = map[string]error{}
	late := 0
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), ".json")
		if !ok || !validID.MatchString(id) {
			continue
		}
		one, err := new(bounded.Slot[*Incident]).Do(context.Background(), fileTimeout,
			func(context.Context) (*Incident, error) { return ReadOne(dir, id) })
		switch {
		case err == nil:
			list = append(list, one.Summary)
		case !errors.Is(err, ErrUnknown): // else it was removed meanwhile
			bad[entry.Name()] = err
		}
		if errors.Is(err, bounded.ErrLate) {
			late++
		}
		if late >= maxLateFiles {
			return list, bad, fmt.Errorf("%s: %d files do not answer", dir, late)
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
	one, err := readStored(dir, id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", id, ErrUnknown)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path(dir, id), err)
	case one.ID != id:
		return nil, fmt.Errorf("%s: holds the incident %.40q", path(dir, id), one.ID)
	}
	return one, nil
}

func readStored(dir, id string) (*Incident, error) {
	root, err := openDir(dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	b, err := statedir.Read(root, fileName(id), maxRead)
	if err != nil {
		return nil, err
	}
	return Decode(b)
}

// ReadFile reads an incident from any file.
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
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return one, nil
}
