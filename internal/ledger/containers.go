package ledger

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

const (
	// failedWithin is the time within which failedStarts containers fail.
	failedWithin = 2 * time.Minute
	// containerRetry is more than a kubelet waits at most until it starts a container again (MaxContainerBackOff, 5 min).
	containerRetry = 6 * time.Minute
	// maxWords bounds what is shown of an error of the runtime's, in bytes: its end.
	maxWords = 240
)

var (
	// nodeErrors are the errors of the kernel's for which a start fails whatever its pod asks for.
	nodeErrors = []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.ENOTCONN, syscall.ECONNABORTED, syscall.ESHUTDOWN, syscall.ESTALE,
		syscall.EMFILE, syscall.ENFILE,
	}
	// sharedErrors are those that the limits of one pod cause, too. They count for containers of different names.
	sharedErrors = []syscall.Errno{syscall.ENOMEM, syscall.EAGAIN, syscall.ENODEV}
	// maxErrno is the last error of the kernel's that has a text (ERFKILL and EHWPOISON follow ENOTRECOVERABLE).
	maxErrno = syscall.Errno(133)
	// paths finds the paths in an error.
	paths = regexp.MustCompile(`/[^\s":']+`)
)

// failedContainers returns the finding that containers cannot be started for a fault of the node, by the errors that the
// runtime states, none while it starts some. It ends in the mount that the last error is about, where that shows the same.
func (p *pass) failedContainers(ctx context.Context) []facts.Finding {
	failed, errno := ofNode(p.FailedStarts())
	last := cri.FailedStart{}
	if len(failed) > 0 {
		last = failed[len(failed)-1]
	}
	runtime, err := p.Table.Alive(p.pids[0])
	if err != nil || p.moment.Sub(time.Unix(0, last.CreatedAt)) > containerRetry {
		p.containersFailed = time.Time{}
		return nil
	}
	isOneName := !slices.ContainsFunc(failed, func(f cri.FailedStart) bool { return f.Name != last.Name })
	mayBeOnePods := slices.Contains(sharedErrors, errno) && isOneName
	if p.containersFailed.IsZero() && !mayBeOnePods {
		p.containersFailed = firstOfSeveral(failed)
	}
	if p.containersFailed.IsZero() {
		return nil
	}
	mount := p.failedMount(ctx, last.Message)
	if mount == nil && errno == syscall.EROFS { // it may be so in the container alone
		return nil
	}
	words := last.Message[max(0, len(last.Message)-maxWords):]
	links := []facts.Link{{
		Kind: facts.KindRuntime, Name: runtime.Comm, PID: runtime.PID, RuntimeID: last.ID, State: facts.LinkFailing, Since: p.containersFailed,
		Evidence: fmt.Sprintf("at least %d new containers could not be started since %s and none could, the last for: %s",
			failedStarts, p.containersFailed.UTC().Format(clock), plain.Text(strings.TrimSpace(words))),
	}}
	if mount != nil {
		links = append(links, *mount)
	}
	return []facts.Finding{{Reason: podStartsFailing, Since: p.containersFailed, Chain: facts.Chain{At: time.Now(), Links: links}}}
}

// failedCreates returns the finding that the kubelet's calls that create containers fail, and several pods have none for
// that, none while they succeed.
func (p *pass) failedCreates() []facts.Finding {
	if !p.CreatesFail() {
		return nil
	}
	bare := p.barePods()
	runtime, err := p.Table.Alive(p.pids[0])
	if err != nil || len(bare) < failedStarts {
		return nil
	}
	oldest := slices.MinFunc(bare, func(a, b *cri.Entry) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	since := time.Unix(0, oldest.CreatedAt)
	link := facts.Link{
		Kind: facts.KindRuntime, Name: runtime.Comm, PID: runtime.PID, RuntimeID: oldest.ID, State: facts.LinkFailing, Since: since,
		Evidence: fmt.Sprintf("create_container: the kubelet's calls fail and none succeeds, and %d pods have a sandbox and no container", len(bare)),
	}
	return []facts.Finding{{Reason: podStartsFailing, Since: since, Chain: facts.Chain{At: time.Now(), Links: []facts.Link{link}}}}
}

// ofNode returns the failed starts that a fault of the node may cause: those with the last error of the kernel's that it may
// cause, and that error; without such those of containers that have run before, whatever their error.
func ofNode(failed []cri.FailedStart) (out []cri.FailedStart, last syscall.Errno) {
	for _, f := range failed {
		errno := errnoOf(f.Message)
		if slices.Contains(nodeErrors, errno) || slices.Contains(sharedErrors, errno) || errno == syscall.EROFS {
			last = errno
		}
	}
	for _, f := range failed {
		isOfNode := last != 0 && errnoOf(f.Message) == last || last == 0 && f.HasRun
		if isOfNode {
			out = append(out, f)
		}
	}
	return out, last
}

// firstOfSeveral returns when the first of failedStarts containers was made that failed within failedWithin, zero for none.
func firstOfSeveral(failed []cri.FailedStart) time.Time {
	for i := failedStarts - 1; i < len(failed); i++ {
		first := time.Unix(0, failed[i-failedStarts+1].CreatedAt)
		if time.Unix(0, failed[i].CreatedAt).Sub(first) <= failedWithin {
			return first
		}
	}
	return time.Time{}
}

// errnoOf returns the error of the kernel's that an error ends in, 0 for none. Only one word may follow it: the kind of
// error that containerd adds.
func errnoOf(message string) syscall.Errno {
	parts := strings.Split(message, ": ")
	for i, part := range slices.Backward(parts) {
		part = strings.TrimSpace(part)
		for errno := syscall.Errno(1); errno <= maxErrno; errno++ {
			if part == errno.Error() {
				return errno
			}
		}
		if i < len(parts)-1 || strings.Contains(part, " ") {
			break
		}
	}
	return 0
}

// failedMount returns the mount of the last path in an error, if it is dead, full or read-only, else nil.
func (p *pass) failedMount(ctx context.Context, message string) *facts.Link {
	found := paths.FindAllString(message, -1)
	if len(found) == 0 {
		return nil
	}
	mounts, err := p.Table.Mounts(ctx, p.pids[0])
	p.unread.Add(mountTable, err)
	return p.mounted.lacking(ctx, p, mounts, found[len(found)-1])
}
