package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// open returns the files of an archive.
func open(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	must.Do(t, err)
	files := map[string]string{}
	r := tar.NewReader(z)
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must.Do(t, err)
		content, err := io.ReadAll(r)
		must.Do(t, err)
		files[strings.TrimPrefix(head.Name, "plegd-bundle/")] = string(content)
	}
}

// TestWrite: a part that hangs is abandoned and keeps its files, one that fails
// is listed, a file that is too long is cut, and the archive has a limit.
func TestWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		defer close(released)
		begun := time.Now()
		var out bytes.Buffer
		m, err := Write(t.Context(), &out, "node-1", "1.2.3", []Part{
			{Name: "hangs", Gather: func(_ context.Context, add Add) error {
				add("first.txt", []byte("first"))
				<-released
				return nil
			}},
			{Name: "fails", Gather: func(context.Context, Add) error {
				return errors.Join(errors.New("no permission"), errors.New("no file"))
			}},
			{Name: "long", Gather: func(_ context.Context, add Add) error {
				for i := range maxBytes / fileBytes {
					add(fmt.Sprintf("long%d.txt", i), make([]byte, fileBytes+1))
				}
				add("last.txt", []byte("last"))
				return nil
			}},
		})
		must.Do(t, err)
		check.Equal(t, time.Since(begun), partTime, "it took, want the limit of the part that hangs")
		files := open(t, out.Bytes())
		if files["first.txt"] != "first" || len(files["long0.txt"]) != fileBytes || files["last.txt"] != "last" || files["long9.txt"] != "" {
			t.Errorf("first %q, last %q, %d files", files["first.txt"], files["last.txt"], len(files))
		}
		check.Contains(t, files["README.txt"], "NAMES of pods", "the note does not warn")
		var listed Manifest
		if err := json.Unmarshal([]byte(files["MANIFEST.json"]), &listed); err != nil || len(listed.Files) != 11 || len(listed.Missing) != 3 || len(m.Missing) != 3 {
			t.Fatalf("%v: %s", err, files["MANIFEST.json"])
		}
		if listed.Files[1].CutFrom != fileBytes+1 || !strings.HasPrefix(listed.Missing[0], "hangs: ") || listed.Missing[1] != "fails: no permission; no file" || !strings.HasPrefix(listed.Missing[2], "long9.txt: ") {
			t.Errorf("%+v", listed)
		}
	})
}

// TestAllHang: the whole ends in its time when every part hangs.
func TestAllHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		defer close(released)
		var parts []Part
		for range 20 {
			parts = append(parts, Part{Name: "hangs", Gather: func(context.Context, Add) error { <-released; return nil }})
		}
		begun := time.Now()
		m, err := Write(t.Context(), io.Discard, "", "", parts)
		if err != nil || len(m.Missing) != len(parts) || time.Since(begun) != MaxTime {
			t.Errorf("%v, %d missing after %s", err, len(m.Missing), time.Since(begun))
		}
	})
}

// gathered runs a part and returns its files.
func gathered(t *testing.T, p Part) (map[string]string, error) {
	t.Helper()
	files, err := gather(t.Context(), p)
	out := map[string]string{}
	for _, f := range files {
		out[f.Name] = string(f.content)
	}
	return out, err
}

// TestProcesses: the threads and files of a process are described, its environment
// is not, and a process that is gone is listed as missing.
func TestProcesses(t *testing.T) {
	const secret = "PLEGD_TEST_SECRET=do-not-tell"
	other := exec.Command("cat")
	other.Env = []string{secret}
	in, err := other.StdinPipe()
	must.Do(t, err)
	out, err := other.StdoutPipe()
	must.Do(t, err)
	must.Do(t, other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	_, err = in.Write([]byte("x"))
	must.Do(t, err)
	_, err = out.Read(make([]byte, 1)) // an answer: it runs, and its environment is in place
	must.Do(t, err)
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", other.Process.Pid))
	must.Do(t, err)
	check.Contains(t, string(environment), secret, "the process has it")
	pid := os.Getpid()
	files, err := gathered(t, Processes(proc.NewTable("/proc"), "/sys", []int{0, 1 << 30, pid, pid, other.Process.Pid}))
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a process that is gone: %v", err)
	}
	text := files[fmt.Sprintf("processes/%d-bundle.test.txt", pid)]
	for _, want := range []string{"== status\nName:", "== threads", "wchan=", "== open files\n0 ", "== cgroup\n"} {
		check.Contains(t, text, want, "it lacks")
	}
	check.Contains(t, files[fmt.Sprintf("processes/%d-cat.txt", other.Process.Pid)], "== cmdline\ncat ", "it lacks")
	for name, content := range files {
		if strings.Contains(content, secret) {
			t.Errorf("%s has the environment", name)
		}
	}
}

// TestInvolved: the chain first.
func TestInvolved(t *testing.T) {
	s := &facts.Snapshot{}
	s.Chain = []facts.Link{{Kind: facts.KindCall}, {PID: 812}, {PID: 4711}}
	s.Facts.Evidence = facts.Evidence{
		Hop:            facts.Hop{Process: &facts.Process{PID: 812}},
		Children:       &facts.Children{Stuck: []facts.Child{{PID: 4711}, {PID: 4712}}},
		KubeletProcess: &facts.KubeletProcess{PID: 900},
	}
	if got, want := Involved(s), []int{0, 812, 4711, 812, 4711, 4712, 900, os.Getpid()}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestNewestKernelMessages: the oldest lines are dropped, never the newest.
func TestNewestKernelMessages(t *testing.T) {
	for _, size := range []int{1 << 10, 800 << 10, 3 << 20} {
		path := filepath.Join(t.TempDir(), "kmsg")
		var log bytes.Buffer
		for i := 0; log.Len() < size; i++ {
			fmt.Fprintf(&log, "%07d %s\n", i, strings.Repeat("x", 8<<10-9)) // a record per read
		}
		must.Do(t, os.WriteFile(path, log.Bytes(), 0o600))
		got, err := kernelMessages(path)
		if err != nil || len(got) > kernelBytes || !bytes.HasSuffix(log.Bytes(), got) || len(got) < min(log.Len(), kernelBytes-9<<10) {
			t.Errorf("of %d bytes: %d, %v", log.Len(), len(got), err)
		}
	}
}

func TestNode(t *testing.T) {
	files, err := gathered(t, Node("/proc"))
	if err != nil && !errors.Is(err, fs.ErrPermission) || !strings.Contains(files["node/meminfo.txt"], "MemTotal") || !strings.Contains(files["node/1/mountinfo.txt"], " / ") {
		t.Errorf("%v, %d files", err, len(files))
	}
	if files, err := gathered(t, Node(t.TempDir())); err != nil && !errors.Is(err, fs.ErrPermission) || len(files) > 1 {
		t.Errorf("an empty /proc: %v, %d files", err, len(files))
	}
}

// TestSockets: a listener with a connection that nobody accepts is listed with its
// queue.
func TestSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	l, err := net.Listen("unix", path)
	must.Do(t, err)
	defer l.Close()
	c, err := net.Dial("unix", path)
	must.Do(t, err)
	defer c.Close()
	files, err := gathered(t, Sockets())
	if err != nil && strings.HasPrefix(err.Error(), "sock_diag") {
		t.Skip(err)
	}
	for line := range strings.Lines(files["node/unix-sockets.txt"]) {
		if strings.HasPrefix(line, "listen") && strings.Contains(line, path) {
			check.Equal(t, strings.Fields(line)[3], "1", "queue: %s", line)
			return
		}
	}
	t.Errorf("%s is not listed", path)
}
