package incident

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/health"
)

const (
	suffix = ".json"
	// draft is the suffix of a file that is being written.
	draft = ".tmp"
	// maxNames bounds what is read of the directory, maxFile a file, in bytes:
	// more than any limit lets a file grow to.
	maxNames = 4096
	maxFile  = 8 << 20
)

// ErrUnknown is wrapped by the error about an id that no incident has.
var ErrUnknown = errors.New("no such incident")

// Dir is where the incidents are in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "incidents") }

// files are the files of incidents in a directory.
type files struct {
	dir string
	fs  fsys
}

func (f *files) path(id string) string { return filepath.Join(f.dir, id+suffix) }

// write puts an incident on the disk: when it returns nil it is there for good,
// and at no moment is there half of one.
func (f *files) write(id string, content []byte) error {
	path := f.path(id)
	if err := f.put(path+draft, content); err != nil {
		_ = f.fs.Remove(path + draft) // on a full disk it is in the way
		return err
	}
	if err := f.fs.Rename(path+draft, path); err != nil {
		return err
	}
	return f.fs.SyncDir(f.dir)
}

func (f *files) put(path string, content []byte) error {
	w, err := f.fs.Create(path)
	if err != nil {
		return err
	}
	if _, err = w.Write(content); err == nil {
		err = w.Sync()
	}
	if closed := w.Close(); err == nil {
		err = closed
	}
	return err
}

// names returns the ids of the files that there are, newest first.
func (f *files) names() ([]string, error) {
	all, err := f.fs.Names(f.dir, maxNames)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range all {
		if id, ok := strings.CutSuffix(name, suffix); ok && ValidID(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, nil
}

// sweep removes what a crash has left half-written.
func (f *files) sweep() {
	all, err := f.fs.Names(f.dir, maxNames)
	if err != nil {
		return
	}
	for _, name := range all {
		if id, ok := strings.CutSuffix(name, suffix+draft); ok && ValidID(id) {
			_ = f.fs.Remove(filepath.Join(f.dir, name))
		}
	}
}

// read reads one incident.
func (f *files) read(id string) (*Incident, int64, error) { return f.decode(id, Decode) }

// head reads the head of an incident, up to its long parts.
func (f *files) head(id string) (*Incident, int64, error) {
	return f.decode(id, func(r io.Reader) (*Incident, error) { return decodeHead(io.LimitReader(r, maxFile)) })
}

// decode reads the file of an id, and returns its size too.
func (f *files) decode(id string, decode func(io.Reader) (*Incident, error)) (*Incident, int64, error) {
	r, size, err := f.fs.Open(f.path(id))
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	one, err := decode(r)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", f.path(id), err)
	}
	if one.ID != id {
		return nil, 0, fmt.Errorf("%s: it holds the incident %.40q", f.path(id), one.ID)
	}
	return one, size, nil
}

// Decode reads an incident from its JSON. Fields that it does not know are
// passed over; the error says what else stands in the way.
func Decode(r io.Reader) (*Incident, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes: it is not an incident of plegd", maxFile)
	}
	var one Incident
	if err := health.Unmarshal(b, &one); err != nil {
		return nil, fmt.Errorf("it is not an incident of plegd: %w", err)
	}
	return &one, one.check()
}

func decodeHead(r io.Reader) (*Incident, error) {
	d := json.NewDecoder(r)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not an incident of plegd: it is no JSON object")
	}
	head := map[string]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		long := name == "relists" || name == "timeline"
		if long && head["timeline_dropped"] != nil {
			break // plegd writes all of the head before these
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if !long {
			head[name] = value
		}
	}
	b, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	var one Incident
	if err := health.Unmarshal(b, &one); err != nil {
		return nil, fmt.Errorf("it is not an incident of plegd: %w", err)
	}
	return &one, one.check()
}

// check returns why this plegd cannot read the incident; nil where it can.
func (i *Incident) check() error {
	switch {
	case i.SchemaVersion == 0 || !ValidID(i.ID):
		return errors.New("it is not an incident of plegd: it has no schema_version and id of one")
	case i.SchemaVersion != SchemaVersion:
		return fmt.Errorf("its schema_version is %d and this plegd reads %d: use the plegd that wrote it (%.40q)", i.SchemaVersion, SchemaVersion, i.PlegdVersion)
	}
	return nil
}

func unknownIfMissing(id string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", id, ErrUnknown)
	}
	return err
}
