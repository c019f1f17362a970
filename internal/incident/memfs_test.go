package incident

import (
	"bytes"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
)

// memFS is a disk in memory that counts.
type memFS struct {
	mu            sync.Mutex
	files         map[string][]byte
	created, most int
}

func newMemFS() *memFS { return &memFS{files: map[string][]byte{}} }

type memFile struct {
	bytes.Buffer
	fs   *memFS
	path string
}

func (*memFile) Sync() error { return nil }

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.files[f.path] = f.Bytes()
	f.fs.most = max(f.fs.most, len(f.fs.files))
	return nil
}

func (*memFS) MkdirAll(string) error { return nil }

func (m *memFS) Create(path string) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.created++
	return &memFile{fs: m, path: path}, nil
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

func (*memFS) SyncDir(string) error { return nil }

func (m *memFS) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, path)
	return nil
}

func (m *memFS) Names(string, int) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for path := range m.files {
		out = append(out, filepath.Base(path))
	}
	return out, nil
}

func (m *memFS) Open(path string) (io.ReadCloser, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.files[path]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}
