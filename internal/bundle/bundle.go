// Package bundle writes an archive for a ticket: plegd's findings, and what the
// kernel shows of the processes in the wait chain.
//
// It only reads. It sends no signal, starts no process and does not call the runtime.
// Each part has limits of time and size; the manifest lists missing parts.
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// MaxBytes bounds the parts of an archive together, uncompressed.
	MaxBytes = 20 << 20
	// MaxTime bounds the time that all parts take together.
	MaxTime = 30 * time.Second
	// partTime bounds one part, where it does not say otherwise.
	partTime = 5 * time.Second
	// partBytes bounds one file, where its part does not say otherwise.
	partBytes = 1 << 20
)

// Part is one part of an archive: a function that adds files.
type Part struct {
	Name string
	// Time is the longest that it may take, 0 for the usual limit. A part that
	// takes longer is abandoned; the files that it has added by then are kept.
	Time time.Duration
	// Gather adds files. Its error is listed in the archive.
	Gather func(ctx context.Context, add Add) error
}

// Add adds a file to the archive. Content beyond limit bytes is cut off, which the
// manifest lists; 0 is the usual limit.
type Add func(name string, content []byte, limit int)

// Manifest lists what an archive holds and what could not be had.
type Manifest struct {
	Made  time.Time `json:"made"`
	Node  string    `json:"node"`
	Plegd string    `json:"plegd_version"`
	// Seconds is how long gathering took.
	Seconds float64   `json:"seconds"`
	Files   []File    `json:"files"`
	Missing []Missing `json:"missing"`
}

// File is a file of the archive.
type File struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// CutFrom is the size in bytes before truncation, 0 for a complete file.
	CutFrom int `json:"cut_from_bytes,omitempty"`
}

// Missing is what could not be had, and why.
type Missing struct {
	Part  string `json:"part"`
	Error string `json:"error"`
}

// note is the first file of the archive.
const note = `This archive was written by "plegd bundle". It holds plegd's findings and what the
kernel shows of the container runtime and the processes in the wait chain.

It holds NAMES of pods and containers, command lines, paths and kernel messages. It
holds no environment variables and no logs. Read it before you pass it on.

MANIFEST.json lists the files and what could not be had. Add the logs:

  journalctl -b --since -30min -u kubelet -u containerd -u crio -u docker -u plegd
`

// file is a file that a part has added.
type file struct {
	name    string
	content []byte
	cutFrom int
}

// Write gathers the parts one after another and writes the archive, a .tar.gz, to
// w. The error is of writing: what could not be gathered is in the manifest, which
// is returned.
func Write(ctx context.Context, w io.Writer, node, version string, parts []Part) (*Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	begun := time.Now()
	m := &Manifest{Made: begun.UTC().Truncate(time.Second), Node: node, Plegd: version, Files: []File{},
		Missing: []Missing{}}
	var files []file
	left := MaxBytes
	for _, p := range parts {
		added, err := gather(ctx, p)
		if err != nil {
			m.Missing = append(m.Missing, Missing{Part: p.Name, Error: err.Error()})
		}
		for _, f := range added {
			if len(f.content) > left {
				m.Missing = append(m.Missing, Missing{Part: f.name,
					Error: fmt.Sprintf("%d bytes: the archive has reached its limit of %d", len(f.content), MaxBytes)})
				continue
			}
			left -= len(f.content)
			files = append(files, f)
			m.Files = append(m.Files, File{Name: f.name, Bytes: len(f.content), CutFrom: f.cutFrom})
		}
	}
	m.Seconds = time.Since(begun).Seconds()
	head, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	files = slices.Insert(files, 0, file{name: "README.txt", content: []byte(note)},
		file{name: "MANIFEST.json", content: append(head, '\n')})
	return m, archive(w, "plegd-bundle", m.Made, files)
}

// archive writes the files below one folder.
func archive(w io.Writer, folder string, made time.Time, files []file) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range files {
		head := &tar.Header{Name: folder + "/" + f.name, Mode: 0o600, Size: int64(len(f.content)), ModTime: made,
			Format: tar.FormatPAX}
		if err := t.WriteHeader(head); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// errTooLong is of a part that was abandoned.
var errTooLong = errors.New("it did not end in time and was abandoned; its files until then are here")

// gather runs one part and returns the files that it added until it ended or was
// abandoned.
func gather(ctx context.Context, p Part) ([]file, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("not begun: the time for all parts is over: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Time, partTime))
	defer cancel()
	var mu sync.Mutex
	var out []file
	done := make(chan error, 1)
	go func() {
		done <- p.Gather(ctx, func(name string, content []byte, limit int) {
			f := file{name: name, content: bytes.Clone(content)}
			if limit = cmp.Or(limit, partBytes); len(content) > limit {
				f.content, f.cutFrom = f.content[:limit], len(content)
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, f)
		})
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = errTooLong
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(out), err // an abandoned part may still add
}
