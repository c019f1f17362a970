package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestSettings: arguments win over drop-ins, a later drop-in over an
// earlier one, these over the file.
func TestSettings(t *testing.T) {
	root := t.TempDir()
	for file, content := range map[string]string{
		"/etc/k/config.yaml": "kind: KubeletConfiguration\nnodeStatusUpdateFrequency: 20s\nnodeLeaseDurationSeconds: 60\nruntimeRequestTimeout: 15s\ncontainerRuntimeEndpoint: unix:///a.sock\nfeatureGates:\n  EventedPLEG: true\n",
		"/etc/k/d/10.conf":   "nodeStatusUpdateFrequency: 30s\nruntimeRequestTimeout: 0s\n",
		"/etc/k/d/20.conf":   "nodeStatusUpdateFrequency: 40s\n",
		"/etc/k/d/25/a.conf": "nodeStatusUpdateFrequency: 45s\n",
		"/etc/k/d/30.txt":    "nodeStatusUpdateFrequency: 50s\n",
		"/etc/k/d/40.conf":   "nodeStatusUpdateFrequency: soon\n",
	} {
		must.Do(t, os.MkdirAll(filepath.Dir(root+file), 0o755))
		must.Do(t, os.WriteFile(root+file, []byte(content), 0o600))
	}
	r := settingsReader{root: root}
	read := r.read(t.Context(), 9, "kubelet", []string{"/usr/bin/kubelet", "--config=/etc/k/config.yaml", "--config-dir", "/etc/k/d", "--container-runtime-endpoint=unix:///b.sock", "--feature-gates=A=true,EventedPLEG=false", "--feature-gates=B=true", "--runtime-request-timeout=x"})
	got := read.KubeletProcess
	check.Equal(t, read.quietAfter(), 0, "with files that cannot be read")
	read.Problem = ""
	check.Equal(t, read.quietAfter(), 31200*time.Millisecond, "two renewals of a lease of 60 s")
	if want := "/etc/k/d/40.conf: not valid in line 1; --runtime-request-timeout: not a duration"; got.Problem != want {
		t.Errorf("problem %q, want %q", got.Problem, want)
	}
	got.Problem = ""
	args := "the kubelet's arguments"
	want := facts.KubeletProcess{
		Endpoint: "unix:///b.sock", Standalone: true, NodeStatusPeriod: 45 * time.Second, RequestTimeout: 15 * time.Second,
		From: map[string]string{
			facts.SettingEndpoint: args, facts.SettingEventedPLEG: args,
			facts.SettingNodeStatusPeriod: "/etc/k/d/25/a.conf", facts.SettingRequestTimeout: "/etc/k/config.yaml",
		},
	}
	check.Same(t, got, want, "settings")
	empty := settingsReader{root: t.TempDir()}
	if none := empty.read(t.Context(), 0, "", nil); none.Problem != "" || len(none.From) != 0 {
		t.Errorf("without a file: %+v", none)
	}
}

// TestGates: gates as the kubelet parses them; its own name wins over that of its stage.
func TestGates(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		gates    string
		evented  bool
		onDemand *bool
	}{
		{"EventedPLEG=t", true, nil},
		{"EventedPLEG=1, PLEGOnDemandRelist=F", true, &no},
		{"AllAlpha=true", true, nil},
		{"AllAlpha=true,EventedPLEG=false", false, nil},
		{"AllBeta=false", false, &no},
		{"AllBeta=false,PLEGOnDemandRelist=TRUE", false, &yes},
		{"EventedPLEG=soon", false, nil},
	} {
		r := settingsReader{root: t.TempDir()}
		got := r.read(t.Context(), 9, "kubelet", []string{"kubelet", "--feature-gates=" + tt.gates})
		if got.EventedPLEG != tt.evented || !cmp.Equal(got.OnDemandRelist, tt.onDemand) {
			t.Errorf("%s: evented %t, on demand %v", tt.gates, got.EventedPLEG, got.OnDemandRelist)
		}
	}
}

// TestNamedFiles: of the files that a process names, only regular ones of root's are read,
// as the process sees them. No message has a part of a file.
func TestNamedFiles(t *testing.T) {
	root := t.TempDir()
	must.Do(t, os.WriteFile(root+"/config", []byte("s3cret"), 0o600))
	must.Do(t, os.WriteFile(root+"/shared", []byte("s3cret"), 0o600))
	must.Do(t, os.Chmod(root+"/shared", 0o666)) //nolint:gosec // a file that others may write is the case
	must.Do(t, os.WriteFile(root+"/large", make([]byte, maxFile+1), 0o600))
	must.Do(t, unix.Mkfifo(root+"/fifo", 0o600))
	for link, to := range map[string]string{
		"absolute": "/config", "proc": "/proc/self/status", "magic": "/proc/self/root" + root + "/config",
	} {
		must.Do(t, os.Symlink(to, root+"/"+link))
	}
	for _, tt := range []struct {
		tree place
		path string
		want string // in the error; "" for none
	}{
		{place{root: root}, "/config", ""},
		{place{root: root}, "/absolute", ""}, // as the process sees it
		{place{}, root + "/config", ""},
		{place{}, root + "/fifo", "not a regular file"},
		{place{}, root, "not a regular file"},
		{place{}, "/dev/zero", "not a regular file"},
		{place{}, root + "/shared", "writable by every user"},
		{place{}, root + "/proc", "a file of /proc"},
		{place{}, "/proc/1/environ", "a file of /proc"},
		{place{}, root + "/magic", "symbolic links"},
		{place{}, "/proc/self/root" + root + "/config", "symbolic links"},
		{place{}, root + "/large", "larger than"},
		{place{}, root + "/none", "no such file"},
		{place{hidden: true}, root + "/none", "those of the kubelet cannot be read"},
		{place{root: root}, root + "/config", "no such file"},
	} {
		var files namedFiles
		b, err := files.one(t.Context(), tt.tree, tt.path)
		if tt.want == "" && (err != nil || string(b) != "s3cret") {
			t.Errorf("%s: %q, %v", tt.path, b, err)
		}
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %q, %v; want %q", tt.path, b, err, tt.want)
		}
	}
}

// TestRelativeConfig: a relative path is the kubelet's own, and one that cannot be read is a
// named problem and not the default.
func TestRelativeConfig(t *testing.T) {
	procfs, root := t.TempDir(), t.TempDir()
	must.Do(t, os.MkdirAll(procfs+"/9", 0o755))
	must.Do(t, os.WriteFile(root+"/k.yaml", []byte("nodeStatusUpdateFrequency: 20s\n"), 0o600))
	r := settingsReader{procfs: procfs}
	args := []string{"kubelet", "--config=k.yaml"}
	if got := r.read(t.Context(), 9, "kubelet", args); got.NodeStatusPeriod != 0 || !strings.Contains(got.Problem, "k.yaml: a relative path") {
		t.Errorf("without its directory: %+v", got)
	}
	must.Do(t, os.Symlink(root, procfs+"/9/cwd"))
	if got := r.read(t.Context(), 9, "kubelet", args); got.NodeStatusPeriod != 20*time.Second || got.Problem != "" {
		t.Errorf("with its directory: %+v", got)
	}
	must.Do(t, os.Symlink(root, procfs+"/9/root"))
	args[1] = "--config=/k.yaml"
	if got := r.read(t.Context(), 9, "kubelet", args); got.NodeStatusPeriod != 20*time.Second || got.Problem != "" {
		t.Errorf("by its root: %+v", got)
	}
}

// TestManyDropIns: of a drop-in directory at most maxDropIns files are read, and the others
// are named.
func TestManyDropIns(t *testing.T) {
	root := t.TempDir()
	for i := range maxDropIns + 1 {
		must.Do(t, os.WriteFile(fmt.Sprintf("%s/%03d.conf", root, i), nil, 0o600))
	}
	files := place{}.dropIns(t.Context(), root)
	last := files[len(files)-1]
	if len(files) != maxDropIns+1 || last.path != root || !errors.Is(last.err, errTooLarge) {
		t.Errorf("%d files, the last is %+v", len(files), last)
	}
}
