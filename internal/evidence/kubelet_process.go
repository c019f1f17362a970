package evidence

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	kubeletProcessTimeout = 2 * time.Second
	// kubeletFindAgain is the time between two searches of all processes,
	// kubeletNeverSeen while none has been found yet.
	kubeletFindAgain = 10 * time.Second
	kubeletNeverSeen = 30 * time.Second
	// searchesKept is in how many searches a process is looked at once that was there
	// in the two before, and was no kubelet: its pid may be another's meanwhile.
	searchesKept = 16
	// maxKubelets bounds the processes of that name that are looked at.
	maxKubelets = 16
)

// NewKubeletProcess returns the source of the kubelet's process: since when it
// runs and with which settings. Its arguments and files are read once for each
// start. endpoint is the path of the watched runtime's socket: a kubelet that is
// set to another one is not this node's.
func NewKubeletProcess(procFS string, endpoint func() string) *Watch[health.KubeletProcess] {
	k := &kubeletProcess{procFS: procFS, endpoint: endpoint}
	return NewWatch(Spec[health.KubeletProcess]{
		Name: "kubelet_process", Every: 2, Calm: 5, Timeout: kubeletProcessTimeout,
		Gather: k.gather, Store: func(e *health.Evidence, v *health.KubeletProcess) { e.KubeletProcess = v },
	})
}

// kubeletProcess is the state between two reads. gather is never called twice at
// once.
type kubeletProcess struct {
	procFS   string
	endpoint func() string
	reader   proc.Reader

	id       proc.ID
	known    *health.KubeletProcess
	searched time.Time
	// others are the processes of the last search that are no kubelets, with the
	// number of searches, 2 at most, in which they were found; searches counts all.
	others   map[int]int
	searches int
}

func (k *kubeletProcess) gather(context.Context) (*health.KubeletProcess, error) {
	if k.known != nil {
		if s, err := k.reader.Stat(k.procFS, k.id.PID); err == nil && s.ID() == k.id && !s.Dead() {
			return k.known, nil
		}
		k.known, k.searched = nil, time.Time{}
	}
	now, again := time.Now(), kubeletNeverSeen
	if k.id.PID != 0 {
		again = kubeletFindAgain
	}
	if now.Sub(k.searched) < again {
		return nil, ErrNoData
	}
	k.searched = now
	pids, err := k.find()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if p, id, ok := k.read(pid, now, len(pids) > 1); ok {
			k.known, k.id = p, id
			return p, nil
		}
	}
	return nil, ErrNoData
}

// find returns the processes that are named kubelet and are no pod's.
func (k *kubeletProcess) find() ([]int, error) {
	all, err := proc.Numbers(k.procFS, 32768)
	if err != nil {
		return nil, fmt.Errorf("looking for the kubelet: %w", err)
	}
	var pids []int
	k.searches++
	before := k.others
	k.others = make(map[int]int, len(all))
	for _, pid := range all {
		seen := before[pid]
		if seen == 2 && (pid+k.searches)%searchesKept != 0 {
			k.others[pid] = seen
			continue
		}
		dir := filepath.Join(k.procFS, strconv.Itoa(pid))
		comm, err := k.reader.ReadRecord(dir + "/comm")
		if err != nil || strings.TrimSpace(string(comm)) != "kubelet" {
			k.others[pid] = min(seen+1, 2) // it may have another name a moment after its start
			continue
		}
		cgroup, err := k.reader.Read(dir + "/cgroup")
		if err == nil && !strings.Contains(string(cgroup), "/kubepods") && len(pids) < maxKubelets {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// read reads one kubelet's start and settings; false when it is another runtime's
// or, where there are several, is not known to be this one's.
func (k *kubeletProcess) read(pid int, now time.Time, several bool) (*health.KubeletProcess, proc.ID, bool) {
	stat, err := k.reader.Stat(k.procFS, pid)
	if err != nil || stat.Dead() {
		return nil, proc.ID{}, false
	}
	b, err := os.ReadFile(filepath.Join(k.procFS, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil, proc.ID{}, false
	}
	settings, err := cri.ReadKubeletSettings("", strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"))
	path, parseErr := cri.ParseEndpoint(settings.Endpoint)
	switch watched := k.endpoint(); {
	case settings.Endpoint == "" && several, watched == "" && several:
		return nil, proc.ID{}, false
	case parseErr == nil && watched != "" && path != watched:
		return nil, proc.ID{}, false
	}
	p := &health.KubeletProcess{
		PID: pid, Started: proc.StartedAt(now, proc.Uptime(), stat.Start), StartTicks: stat.Start,
		NodeStatusPeriod: settings.NodeStatusPeriod, RequestTimeout: settings.RequestTimeout,
		EventedPLEG: settings.EventedPLEG, From: settings.From,
	}
	if err != nil {
		p.Problem = cut(err.Error())
	}
	return p, stat.ID(), true
}
