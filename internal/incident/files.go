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

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

const (
	suffix  = ".json"
	draft   = "draft.tmp" // renamed to an incident's name once it is complete
	maxRead = 8 << 20     // bytes of a file that are read
)

// ErrUnknown is wrapped by the error about an id that no incident has.
var ErrUnknown = errors.New("no such incident")

// Dir returns the directory of the incidents in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "incidents") }

func path(dir, id string) string { return filepath.Join(dir, id+suffix) }

// writeFile replaces a file by rename. The content is on disk if it returns nil.
func writeFile(path string, content []byte) error {
	dir := filepath.Dir(path)
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
	for {
		b, err := health.Marshal(doc)
		if err != nil {
			return nil, err
		}
		b = append(plain.JSON(b), '\n')
		moments := len(doc.Timeline)
		if len(b) <= MaxFileBytes || moments <= 2 {
			return b, nil
		}
		shorter := *doc
		shorter.shorten(max(2, min(moments-1, moments*MaxFileBytes/len(b))))
		doc = &shorter
	}
}

// Decode reads an incident from its JSON. Unknown fields are ignored.
func Decode(r io.Reader) (*Incident, error) {
	var one Incident
	return &one, decode(r, &one, &one.Summary)
}

// decode reads JSON into v, of which head is the head.
func decode(r io.Reader, v any, head *Summary) error {
	b, err := io.ReadAll(io.LimitReader(r, maxRead+1))
	if err != nil {
		return err
	}
	if len(b) > maxRead {
		return fmt.Errorf("not an incident of plegd: larger than %d bytes", maxRead)
	}
	err = health.Unmarshal(b, v)
	switch {
	case err != nil:
		return fmt.Errorf("not an incident of plegd: %w", err)
	case head.SchemaVersion == 0 || !ValidID(head.ID):
		return errors.New("not an incident of plegd: no schema_version and id of one")
	case head.SchemaVersion != SchemaVersion:
		return fmt.Errorf("schema_version %d: this plegd reads %d; use the plegd that wrote it (%.40q)",
			head.SchemaVersion, SchemaVersion, head.PlegdVersion)
	}
	return nil
}

// Read reads the heads of the incidents in a directory, newest first. bad holds an
// error for each file that cannot be read.
func Read(dir string) (list []Summary, bad []error, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	list = []Summary{}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok || !ValidID(id) {
			continue
		}
		var head Summary
		err := readFile(dir, id, &head, &head)
		switch {
		case err == nil:
			list = append(list, head)
		case !errors.Is(err, ErrUnknown): // else removed meanwhile
			bad = append(bad, err)
		}
	}
	newestFirst(list)
	return list, bad, nil
}

func newestFirst(list []Summary) {
	slices.SortStableFunc(list, func(a, b Summary) int { return b.Opened.Compare(a.Opened) })
}

// ReadOne reads one incident of a directory. The error wraps ErrUnknown if there is
// none with this id.
func ReadOne(dir, id string) (*Incident, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("%.40q: %w", id, ErrUnknown)
	}
	var one Incident
	if err := readFile(dir, id, &one, &one.Summary); err != nil {
		return nil, err
	}
	return &one, nil
}

// readFile decodes the file of an incident. It opens regular files only: a pipe would
// block.
func readFile(dir, id string, v any, head *Summary) error {
	name := path(dir, id)
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", id, ErrUnknown)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := decode(f, v, head); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if head.ID != id {
		return fmt.Errorf("%s: holds the incident %.40q", name, head.ID)
	}
	return nil
}
