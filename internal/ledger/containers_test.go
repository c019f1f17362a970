package ledger

import (
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
)

const fuseMounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n8 1 0:9 / /logs rw - ext4 /dev/sdb rw\n9 1 0:7 / /v rw - fuse.gcsfuse bucket rw\n"

// TestFailedContainers: new containers that the runtime cannot start are found by errors that only the node can cause, with
// the mount that shows the same; not those of a user, and not one that is tried again later.
func TestFailedContainers(t *testing.T) {
	const noSpace = "failed to open log file \"/logs/p/1.log\": open /logs/p/1.log: no space left on device"
	full := facts.FileSystem{Bytes: 1 << 30, FreeBytes: 1 << 29, Inodes: 1000, FreeInodes: 0}
	well := facts.FileSystem{Bytes: 1 << 30, FreeBytes: 1 << 29, Inodes: 1000, FreeInodes: 900}
	for name, tt := range map[string]struct {
		message  string
		apart    time.Duration
		count    int
		names    []string // of the containers, in turn
		hasRun   bool     // before
		state    facts.FileSystem
		stateErr error
		want     string // the culprit, "" for no finding
		evidence string
	}{
		"no inode is left":                  {message: noSpace, state: full, want: "/logs", evidence: "/logs: 0 of 1000 inodes free (ext4 on /dev/sdb)"},
		"containerd adds the kind of error": {message: "OCI runtime create failed: write /logs/x: no space left on device: unknown", state: full, want: "/logs"},
		"space is left there":               {message: noSpace, state: well, want: "containerd", evidence: "1.log: no space left on device"},
		"the state cannot be read":          {message: noSpace, stateErr: syscall.EACCES, want: "containerd"},
		"no path":                           {message: "pipe2: too many open files", want: "containerd"},
		"the server of a mount is gone":     {message: "stat /v/data: transport endpoint is not connected", stateErr: syscall.ENOTCONN, want: "/v", evidence: "fuse.gcsfuse on bucket"},
		"read-only for the node":            {message: "mkdir /logs/p: read-only file system", state: facts.FileSystem{ReadOnly: true}, want: "/logs"},
		"read-only in the container":        {message: "mkdir /logs/p: read-only file system", state: well},
		"a limit of one pod":                {message: "clone: resource temporarily unavailable"},
		"a limit of all pods":               {message: "clone: resource temporarily unavailable", names: []string{"a", "b"}, want: "containerd"},
		"a program that is not there":       {message: "exec: \"/app\": stat /app: no such file or directory: unknown"},
		"a program that may not run":        {message: "exec: \"/app\": permission denied: unknown"},
		"what has run before may not run":   {message: "exec: \"/app\": permission denied: unknown", hasRun: true, want: "containerd", evidence: "permission denied"},
		"it may not run, for once":          {message: "exec: \"/app\": permission denied: unknown", hasRun: true, count: 2},
		"a command that names an error":     {message: "exec: \"x: no space left on device\": executable file not found in $PATH: unknown"},
		"a command that names it, alone":    {message: "exec: \"x: no space left on device\": executable file not found in $PATH"},
		"two failures":                      {message: noSpace, state: full, count: 2},
		"far apart":                         {message: noSpace, state: full, apart: 61 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			root := node(t, nil)
			evidencetest.WriteTree(t, root, map[string]string{"10/mountinfo": fuseMounts})
			now := time.Now()
			var failed []cri.FailedStart
			options := optionsOf(t, root, &now)
			options.FailedStarts = func() []cri.FailedStart { return failed }
			options.StatFS = func(string) (facts.FileSystem, error) {
				if tt.stateErr != nil {
					return facts.FileSystem{}, &fs.PathError{Op: "statfs", Err: tt.stateErr}
				}
				return tt.state, nil
			}
			count := tt.count
			if count == 0 {
				count = 3
			}
			apart := max(tt.apart, 10*time.Second)
			for n := range count {
				f := cri.FailedStart{ID: fmt.Sprint(n), Name: "app", CreatedAt: now.Add(time.Duration(n-count) * apart).UnixNano(), Message: tt.message, HasRun: tt.hasRun}
				if tt.names != nil {
					f.Name = tt.names[n%len(tt.names)]
				}
				failed = append(failed, f)
			}
			l := New(options)
			found := l.Pass(t.Context()).Findings
			if tt.want == "" {
				check.Equal(t, len(found), 0, "findings: %+v", found)
				return
			}
			if len(found) != 1 {
				t.Fatalf("findings: %+v", found)
			}
			culprit := found[0].Chain.Culprit()
			check.Equal(t, found[0].Reason, podStartsFailing, "the reason")
			check.Equal(t, culprit.Name, tt.want, "the culprit")
			check.Equal(t, strings.Contains(culprit.Evidence, tt.evidence), true, "evidence: %s", culprit.Evidence)
			check.Equal(t, found[0].Chain.First().RuntimeID, "2", "the last container")
			failed = failed[2:] // the kubelet tries it less and less often
			now = now.Add(5 * time.Minute)
			check.Equal(t, len(l.Pass(t.Context()).Findings), 1, "findings while it may be tried again")
			now = now.Add(2 * time.Minute)
			check.Equal(t, len(l.Pass(t.Context()).Findings), 0, "findings once it is not tried again")
			failed = nil
			check.Equal(t, len(l.Pass(t.Context()).Findings), 0, "findings once a container has started")
		})
	}
}

// TestDeadMounts: a mount whose server is gone is found where a pod uses it, once it is not just mounted again; not one that
// merely does not answer, and none that no pod uses.
func TestDeadMounts(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	const volume = "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/v/mount"
	pod := &cri.Entry{ID: "abc", SandboxID: "abc", Sandbox: true, State: cri.StateRunning, PodUID: uid, PodNamespace: "ns", PodName: "p"}
	ended := *pod
	ended.State = cri.StateExited
	inPod := "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n9 1 0:7 / " + volume + " rw - fuse bucket rw\n"
	for name, tt := range map[string]struct {
		mounts, ofContainer string
		pod                 *cri.Entry
		err                 error
		hangs               bool
		want                string
	}{
		"in a pod's directory":          {mounts: inPod, pod: pod, err: syscall.ENOTCONN, want: volume},
		"NFS":                           {mounts: strings.ReplaceAll(inPod, "fuse", "nfs4"), pod: pod, err: syscall.ESTALE, want: volume},
		"in a container":                {mounts: fuseMounts, ofContainer: fuseMounts, pod: pod, err: syscall.ENOTCONN, want: "/v"},
		"in no container":               {mounts: fuseMounts, ofContainer: "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n", pod: pod, err: syscall.ENOTCONN},
		"of a pod that has ended":       {mounts: inPod, pod: &ended, err: syscall.ENOTCONN},
		"it answers":                    {mounts: inPod, pod: pod},
		"it hangs":                      {mounts: inPod, pod: pod, err: syscall.ENOTCONN, hangs: true},
		"it cannot be asked":            {mounts: inPod, pod: pod, err: syscall.EACCES},
		"one that is mounted on demand": {mounts: strings.ReplaceAll(inPod, "fuse", "autofs"), pod: pod, err: syscall.ENOTCONN},
		"a disk":                        {mounts: strings.ReplaceAll(inPod, "fuse", "ext4"), pod: pod, err: syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			root := node(t, []process{{pid: 30, parent: 20, comm: "app", state: 'S'}})
			evidencetest.WriteTree(t, root, map[string]string{"10/mountinfo": tt.mounts, "30/mountinfo": tt.ofContainer})
			now := time.Now()
			options := optionsOf(t, root, &now)
			options.Listed = func() map[string]*cri.Entry { return map[string]*cri.Entry{"abc": tt.pod} }
			var asked atomic.Int32
			createsFail := false
			options.CreatesFail = func() bool { return createsFail }
			release := make(chan struct{})
			options.StatFS = func(string) (facts.FileSystem, error) {
				asked.Add(1)
				if tt.hangs {
					<-release
				}
				if tt.err == nil {
					return facts.FileSystem{}, nil
				}
				return facts.FileSystem{}, &fs.PathError{Op: "statfs", Err: tt.err}
			}
			defer close(release)
			l := New(options)
			first := l.Pass(t.Context())
			check.Equal(t, len(first.Findings), 0, "findings of the first look")
			now = now.Add(remounted)
			found := l.Pass(t.Context()).Findings
			if tt.want == "" {
				check.Equal(t, len(found), 0, "findings: %+v", found)
				asksOnce := int32(0) // within a minute
				if asked.Load() > 0 {
					asksOnce = 1
				}
				check.Equal(t, asked.Load(), asksOnce, "questions")
				createsFail = true
				l.Pass(t.Context())
				if !tt.hangs { // which is not repeated
					asksOnce *= 2
				}
				check.Equal(t, asked.Load(), asksOnce, "questions once creates fail")
				check.Equal(t, first.Next, Interval, "the next pass")
				return
			}
			if len(found) != 1 {
				t.Fatalf("findings: %+v", found)
			}
			link := found[0].Chain.Culprit()
			check.Equal(t, first.Next, SuspectInterval, "the next pass")
			check.Same(t, []string{found[0].Reason, link.Name, link.Pod, link.RuntimeID}, []string{podStartsFailing, tt.want, "ns/p", "abc"}, "the finding")
			check.Equal(t, asked.Load(), 2, "questions")
			tt.err = nil // it is mounted again
			check.Equal(t, len(l.Pass(t.Context()).Findings), 0, "findings once it is mounted again")
		})
	}
}

// TestFailedCreates: that containers cannot be created is a finding where several pods have a sandbox for long and no container.
func TestFailedCreates(t *testing.T) {
	for name, tt := range map[string]struct {
		pods      int
		age       time.Duration
		succeed   bool
		container cri.State
		want      int
	}{
		"of several pods":         {pods: failedStarts, age: podWaits, container: cri.StateExited, want: 1},
		"of two pods":             {pods: failedStarts - 1, age: podWaits, container: cri.StateExited},
		"of new pods":             {pods: failedStarts, age: podWaits / 2, container: cri.StateExited},
		"the calls do not fail":   {pods: failedStarts, age: podWaits, container: cri.StateExited, succeed: true},
		"the pods have some each": {pods: failedStarts, age: podWaits, container: cri.StateRunning},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			listed := map[string]*cri.Entry{}
			for i := range tt.pods {
				id := fmt.Sprint("pod", i)
				listed[id] = &cri.Entry{ID: id, SandboxID: id, PodUID: id, Sandbox: true, State: cri.StateRunning, CreatedAt: now.Add(-tt.age).UnixNano()}
				listed["c"+id] = &cri.Entry{ID: "c" + id, SandboxID: id, PodUID: id, State: tt.container}
			}
			options := optionsOf(t, node(t, nil), &now)
			options.Listed = func() map[string]*cri.Entry { return listed }
			options.CreatesFail = func() bool { return !tt.succeed }
			found := New(options).Pass(t.Context()).Findings
			check.Equal(t, len(found), tt.want, "%+v", found)
			for _, f := range found {
				check.Equal(t, f.Reason, podStartsFailing, "%+v", f)
				check.Equal(t, strings.Contains(f.Chain.First().Evidence, "3 pods"), true, "%+v", f)
			}
		})
	}
}
