// Package bundle writes an archive for a ticket: plegd's findings, the kernel's files about the
// processes in the wait chain, and the runtime's own view. It only reads, sends no signal and
// starts no process. The manifest lists missing parts.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/bounded"
)

const (
	// MaxTime is what all parts take together at most.
	MaxTime   = 30 * time.Second
	partTime  = 10 * time.Second // that one takes, which is abandoned then; its files until then are kept
	maxBytes  = 20 << 20         // of the files of an archive together, uncompressed
	fileBytes = 2 << 20          // of one
)

// Part is a function that adds files to an archive. Its error is listed there.
type Part struct {
	Name   string
	Gather func(ctx context.Context, add Add) error
}

// Add adds a file to the archive. A long one is cut off, and listed so.
type Add func(name string, content []byte)

// Manifest lists the files of an archive and the missing parts.
type Manifest struct {
	Made    time.Time `json:"made"`
	Node    string    `json:"node"`
	Plegd   string    `json:"plegd_version"`
	Seconds float64   `json:"seconds"` // that gathering took
	Files   []File    `json:"files"`
	Missing []string  `json:"missing"` // a part or a file, and why
}

// File is a file of the archive.
type File struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	CutFrom int    `json:"cut_from_bytes,omitempty"` // 0 for a complete file
	content []byte
}

// readme is the first file of the archive.
const readme = `This archive was written by "plegd bundle". It holds plegd's findings and what the
kernel shows of the container runtime and the processes in the wait chain.

It holds NAMES of pods and containers, command lines, paths, kernel messages and goroutines.
It holds no environment variables and no logs. Read it before you pass it on.

MANIFEST.json lists the files and what could not be had. Add the logs:

  journalctl -b --since -30min -u kubelet -u containerd -u crio -u docker -u plegd
`

// Write gathers the parts one after another and writes the archive, a .tar.gz, to w. The
// error is of writing; missing parts are in the manifest, which is returned.
func Write(ctx context.Context, w io.Writer, node, version string, parts []Part) (*Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	begun := time.Now()
	m := &Manifest{Node: node, Plegd: version, Files: []File{}, Missing: []string{}}
	m.Made = begun.UTC().Truncate(time.Second)
	m.gather(ctx, parts)
	m.Seconds = time.Since(begun).Seconds()
	head, _ := json.MarshalIndent(m, "", "  ") // plain values cannot fail
	files := []File{newFile("README.txt", []byte(readme)), newFile("MANIFEST.json", head)}
	if err := writeArchive(w, m.Made, append(files, m.Files...)); err != nil {
		return nil, err
	}
	return m, nil
}

// gather runs the parts and keeps their files until the archive is full.
func (m *Manifest) gather(ctx context.Context, parts []Part) {
	left := maxBytes
	for _, p := range parts {
		files, err := gather(ctx, p)
		if err != nil {
			m.Missing = append(m.Missing, p.Name+": "+strings.ReplaceAll(err.Error(), "\n", "; ")) // of joined errors
		}
		for _, f := range files {
			if f.Bytes > left {
				m.Missing = append(m.Missing, f.Name+": the archive is full")
				continue
			}
			left -= f.Bytes
			m.Files = append(m.Files, f)
		}
	}
}

func writeArchive(w io.Writer, made time.Time, files []File) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range files {
		err := t.WriteHeader(&tar.Header{
			Name: "plegd-bundle/" + f.Name, Mode: 0o600, Size: int64(f.Bytes), ModTime: made, Format: tar.FormatPAX,
		})
		if err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func newFile(name string, content []byte) File {
	kept := bytes.Clone(content[:min(len(content), fileBytes)])
	f := File{Name: name, Bytes: len(kept), content: kept}
	if f.Bytes < len(content) {
		f.CutFrom = len(content)
	}
	return f
}

// gather runs one part and returns its files.
func gather(ctx context.Context, p Part) ([]File, error) {
	var mu sync.Mutex
	var out []File
	_, err := new(bounded.Slot[any]).Do(ctx, partTime, func(ctx context.Context) (any, error) {
		return nil, p.Gather(ctx, func(name string, content []byte) {
			mu.Lock()
			defer mu.Unlock()
			out = append(out, newFile(name, content))
		})
	})
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(out), err // an abandoned part may still add
}
